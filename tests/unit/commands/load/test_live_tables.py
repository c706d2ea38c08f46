"""A load leaves live tables alone unless it is asked for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from applier.changefeed.completeness import LIVE, Completeness, Reason, Why, incomplete
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.commands.load import command
from applier.commands.load.outlook import Opened
from applier.decode.dump.csv_form import CsvForm
from applier.pipeline.tables.loads import LOADED, LoadRecord
from tests.unit.commands.load.test_two_loads import VERSION

NAMES = [TableName("shop", name) for name in ("new", "live", "same", "parked", "incomplete", "damaged")]
NEW, FED, SAME, PARKED, DOUBTED, DAMAGED = NAMES
STATES = {
    FED: LIVE,
    SAME: LIVE,
    PARKED: Completeness(Reason(Why.BY_HAND), position=FeedPosition(PARKED, 5)),
    DOUBTED: incomplete(Why.NO_CREATE),
    DAMAGED: LIVE,
}


def _opened(*, is_chosen: bool, tso: int = 9) -> Opened:
    export: Any = SimpleNamespace(tso=tso)
    return Opened(export, CsvForm(), NAMES, is_chosen=is_chosen)


def _pipeline() -> Any:
    record = LoadRecord(SAME, 9, 0, 0, VERSION.to_json(), is_unique=True, form=repr(CsvForm()))
    tables = {SAME: SimpleNamespace(properties={LOADED: record.to_json()})}
    targets = SimpleNamespace(
        damage=lambda name: "others changed it" if name == DAMAGED else None,
        identifier=lambda name: name,
        catalog=SimpleNamespace(load=lambda name: tables.get(name, SimpleNamespace(properties={}))),
    )
    return SimpleNamespace(targets=targets, state=SimpleNamespace(completeness=STATES, resolved_ts=0))


@pytest.mark.parametrize(
    ("tso", "is_chosen", "again", "left"),
    [
        (9, False, False, [FED, SAME]),
        (10, False, False, [FED, SAME]),
        (9, True, False, [SAME]),
        (10, True, False, []),
        (9, False, True, []),
    ],
    ids=["the same export", "a newer one", "named, the same", "named, a newer one", "again"],
)
def test_tables_that_are_live_are_left_alone_and_named(
    tso: int, is_chosen: bool, again: bool, left: list[TableName]
) -> None:
    """A newer export must not take tables from their readers that the feed keeps equal; what needs it is loaded."""
    told: list[str] = []

    found = command._lacking(_pipeline(), _opened(is_chosen=is_chosen, tso=tso), told.append, again=again)

    assert [name for name in NAMES if name not in found.names] == left
    assert sorted(name for line in told for name in map(str, NAMES) if name in line) == sorted(map(str, left))
    assert all(line.endswith("give --again.") for line in told)


def test_a_plan_says_what_the_load_would_leave_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the tables that are live, and reads no table for them."""
    looking = mock.MagicMock()
    looking.return_value.__enter__.return_value = _pipeline()
    export: Any = SimpleNamespace(
        address="/e",
        title="Export /e",
        tso=10,
        files={},
        version=lambda _: SimpleNamespace(columns=()),
        size=lambda _: 0,
    )
    monkeypatch.setattr(command, "looking", looking)
    monkeypatch.setattr(command, "opened", lambda *_: Opened(export, CsvForm(), [FED]))

    _, *lines = command.planned(mock.Mock(), None, ())

    assert lines == [
        "shop.live: 0 files, 0 bytes",
        "These tables are live, and the feed keeps them equal: shop.live. To load them all the same, give --again.",
        "Nothing is left to load.",
    ]
