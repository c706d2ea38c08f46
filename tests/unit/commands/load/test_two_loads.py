"""Two loads of one table at once, beside a run: neither takes away what the other has brought."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, RequestOutcome, Tracked
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import TableFilter, exactly
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.commands.load import command
from applier.commands.tables.command import ended
from applier.decode.dump.csv_form import CsvForm
from applier.errors import CheckpointConflict, TableMismatch, ValueRefused
from applier.pipeline.load import loading
from applier.pipeline.load.loading import Loader
from applier.pipeline.load.spark import Staged
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.loads import LOADED, LoadRecord
from applier.runtime.outages import OUTAGES
from applier.sink.control.rows import TableRequest
from applier.ways_out import WaysOut

ITEMS, NOTES = TableName("bank", "items"), TableName("bank", "notes")
VERSION = TableVersion(ITEMS, 7, (Column("id", ColumnType("bigint"), nullable=False),), handle_key=("id",))
BROUGHT = Completeness(Reason(Why.CATCHING_UP), position=FeedPosition(ITEMS, 7, version=7, is_loaded=True), is_due=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BROUGHT, BROUGHT),
        (
            Completeness(Reason(Why.LOADING), since=7),
            Completeness(Reason(Why.LOADING, "a value is bad; first, mend it"), since=7),
        ),
        (Completeness(Reason(Why.WHOLE)), Completeness(Reason(Why.WHOLE))),
    ],
)
def test_a_load_that_cannot_go_on_leaves_what_another_one_has_handed_over(
    before: Completeness, after: Completeness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is caught up would be parked by hand, which no start ends; one that nothing loads says why."""
    known = {ITEMS: before, NOTES: Completeness(Reason(Why.LOADING))}
    state = SimpleNamespace(completeness=known, checkpoint=SimpleNamespace(moving=None), tables={ITEMS: 1})
    config = SimpleNamespace(filter=TableFilter(("*.*",)))
    asked: list[TableRequest] = []

    def waited(_: object, request: TableRequest, *__: object, **___: object) -> str:
        asked.append(request)
        if request.why:
            Requests(cast("Pipeline", SimpleNamespace(state=state, config=config, targets=None)))._done(request)
        return "done"

    refused = {ITEMS: ValueRefused("a value is bad", "mend it")}
    for name, value in {"waited": waited, "looking": mock.MagicMock(), "_led_on": mock.Mock()}.items():
        monkeypatch.setattr(command, name, value)
    monkeypatch.setattr(command, "_bulk", lambda *_: refused)
    monkeypatch.setattr(command, "stop_signals", mock.MagicMock())
    export = SimpleNamespace(names=[ITEMS, NOTES])

    pipeline = mock.MagicMock()
    pipeline.config.ways_out = WaysOut()
    outcome = command._beside(pipeline, cast("Any", export), print, again=False)

    assert known[ITEMS] == after
    assert [item.kind for item in asked] == ["load", "load", "loaded"]
    assert outcome.refused == ("a value is bad. Hint: mend it",)


def test_why_no_table_could_be_loaded_is_kept_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends by the error, and `status` must not show a load that goes on."""
    asked: list[TableRequest] = []
    monkeypatch.setattr(command, "_bulk", lambda *_: {ITEMS: TableMismatch("no column att", "Correct partition_by.")})
    main: Any = SimpleNamespace(config=SimpleNamespace(ways_out=WaysOut()))

    def ask(request: TableRequest) -> str:
        asked.append(request)
        return ""

    with pytest.raises(TableMismatch, match=r"no column att\. Hint: Correct partition_by"):
        command._brought(
            main,
            cast("Any", SimpleNamespace(names=[ITEMS])),
            print,
            ask,
            nullcontext(threading.Event()),
        )

    assert [(item.kind, item.why) for item in asked] == [
        ("load", ""),
        ("load", "no column att; first, correct partition_by"),
    ]


def test_a_load_that_is_done_is_not_undone_by_the_next_one() -> None:
    """The table has come back, and another load parks it again before this one looks."""
    tracked = {ITEMS: Tracked(1, completeness=Completeness(Reason(Why.LOADING), since=9))}
    last = Checkpoint(Lease(1, Holder("t", "h")), 1, 9, 0, tables=tracked)
    request = TableRequest("one", "loaded", ("bank.items",), "", "me")

    said = ended(last, request, cast("Any", SimpleNamespace(path="a.toml")), RequestOutcome("catching up", (ITEMS,)))

    assert said.startswith("loaded: bank.items.")
    assert "Table bank.items is loading since resolved ts 9: its rows are still to be loaded." in said


def test_only_the_holder_lets_a_table_forget_its_last_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load may run beside the applier that holds the changefeed."""
    shown, targets, calls = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
    targets.catalog.load.return_value, targets.confirm = shown, calls.confirm
    monkeypatch.setattr("applier.pipeline.requests.unset_properties", calls.unset)
    known = Completeness(Reason(Why.LOADING), since=7)
    state = SimpleNamespace(completeness={ITEMS: known}, checkpoint=SimpleNamespace(moving=None), tables={ITEMS: 1})
    config = SimpleNamespace(filter=TableFilter(("*.*",)))
    main = cast("Pipeline", SimpleNamespace(state=state, config=config, targets=targets))

    Requests(main)._done(TableRequest("one", "load", exactly([ITEMS]), "", "me"))

    assert calls.mock_calls == [mock.call.confirm(), mock.call.unset(shown, LOADED)]


def test_a_load_changes_no_table_that_readers_see() -> None:
    """It need not hold the changefeed."""
    export = SimpleNamespace(tso=7, files={}, tables=SimpleNamespace(partitioning=lambda _: None))
    aside, targets = mock.MagicMock(), mock.MagicMock()
    aside.writer.return_value = None
    aside.ensure.return_value.table.properties = {
        LOADED: LoadRecord(ITEMS, 7, 0, 0, VERSION.to_json(), is_unique=True, form=repr(CsvForm())).to_json()
    }
    with mock.patch.object(loading, "Copies", return_value=SimpleNamespace(targets=aside)):
        Loader(targets, cast("Any", export), CsvForm())._begun(VERSION)

    assert targets.catalog.mock_calls == []


def test_a_commit_ends_an_outage_of_what_holds_the_rows() -> None:
    """One that comes hours later has five minutes of its own."""
    writer = mock.MagicMock()
    writer.append.return_value.upserted = 1
    before = OUTAGES.done["other"]
    with mock.patch.object(loading, "Copies", return_value=mock.MagicMock()):
        loader = Loader(mock.MagicMock(), cast("Any", SimpleNamespace(tso=7)), CsvForm())

    loader._add(writer, LoadRecord(ITEMS, 7, 1, 2, VERSION.to_json()), Staged([], 0, []), 10)

    assert OUTAGES.done["other"] == before + 1


@pytest.mark.parametrize(("files", "is_met"), [(0, False), (1, True)])
def test_rows_that_another_load_brought_in_between_are_not_brought_once_more(files: int, is_met: bool) -> None:
    """A load finds no table, and before it makes one, another load has made it and brought the first files."""
    tables = SimpleNamespace(partitioning=lambda _: None)
    export = SimpleNamespace(tso=7, files={ITEMS: ("one", "two")}, tables=tables)
    found = LoadRecord(ITEMS, 7, files, 2, VERSION.to_json(), form=repr(CsvForm()))
    aside, targets = mock.MagicMock(), mock.MagicMock()
    aside.writer.return_value = targets.catalog.load.return_value = None
    aside.ensure.return_value.table.properties = {LOADED: found.to_json()}
    with mock.patch.object(loading, "Copies", return_value=SimpleNamespace(targets=aside)):
        load = Loader(targets, cast("Any", export), CsvForm())

    with (
        pytest.raises(CheckpointConflict, match=r"Another process loads table bank\.items") if is_met else nullcontext()
    ):
        assert load._begun(VERSION)[1] == found


@pytest.mark.parametrize(
    ("known", "is_kept"),
    [
        (None, False),
        (Completeness(Reason(Why.WHOLE)), False),
        (Completeness(Reason(Why.DDL), position=FeedPosition(ITEMS, 9, version=8)), False),
        (Completeness(Reason(Why.LOADING), since=7), True),
        (Completeness(Reason(Why.BY_HAND), position=BROUGHT.position), True),
        (BROUGHT, True),
    ],
    ids=["unknown", "live", "shown and parked", "loading", "parked by hand", "due"],
)
def test_what_an_earlier_load_left_counts_until_readers_have_it(
    known: Completeness | None, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the table maintains the files, and may have let them go."""
    targets = mock.MagicMock()
    targets.feed.name, targets.catalog.load.return_value = "c", None
    monkeypatch.setattr("applier.pipeline.requests.parking.park", lambda *_: None)
    completeness = {} if known is None else {ITEMS: known}
    state = SimpleNamespace(completeness=completeness, checkpoint=SimpleNamespace(moving=None), tables={ITEMS: 1})
    config = SimpleNamespace(filter=TableFilter(("*.*",)))
    main = cast("Pipeline", SimpleNamespace(state=state, config=config, targets=targets))

    Requests(main)._done(TableRequest("one", "load", exactly([ITEMS]), "", "me"))

    dropped = [] if is_kept else [mock.call(("applier_c__load", "bank__items"))]
    assert targets.catalog.drop.mock_calls == dropped
