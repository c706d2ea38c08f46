"""A load at which the changefeed begins: its tables come back as those of any other load."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.commands.load import command
from applier.errors import TerminalError
from applier.order.feed_order import ORDERS
from applier.pipeline.load.begin import refuse_unloaded
from applier.pipeline.requests import Requests
from applier.pipeline.tables.loads import LoadRecord
from applier.sink.control.rows import TableRequest
from tests.unit.commands.load.test_two_loads import ITEMS, NOTES, VERSION

DUE = Completeness(Reason(Why.CATCHING_UP), position=FeedPosition(ITEMS, 7, version=7, is_loaded=True), is_due=True)
LOST = Completeness(Reason(Why.CATCHING_UP, "its metadata is gone"))


@pytest.mark.parametrize(
    ("notes", "is_stopped", "what", "refused"),
    [
        (
            LIVE,
            False,
            "Loaded 2 tables: the changefeed begins at resolved ts 7. Next, start `applier run -c a.toml`.",
            (),
        ),
        (
            LOST,
            False,
            (
                "Loaded 1 table: the changefeed begins at resolved ts 7. 1 table is parked without rows. Do what "
                "follows for each, and give the command again; `applier run -c a.toml` follows the others alone."
            ),
            ["its metadata is gone"],
        ),
        (LIVE, True, "Catching up: bank.items. `applier run -c a.toml` does the rest.", ()),
    ],
    ids=["all", "one is given up", "stopped"],
)
def test_it_ends_once_its_tables_are_shown(
    notes: Completeness,
    is_stopped: bool,
    what: str,
    refused: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First they are due, then the changefeed begins, and the job shows them; what is lost is said."""
    states, went, stop = {ITEMS: DUE, NOTES: DUE}, list[str](), threading.Event()
    pipeline: Any = SimpleNamespace(state=SimpleNamespace(completeness=states))

    def piece() -> bool:
        went.append("piece")
        states.update({ITEMS: LIVE, NOTES: notes})
        return len(went) < 4

    def brought(*_: object) -> command.LoadOutcome:
        went.append("brought")
        if is_stopped:
            stop.set()
        return command.LoadOutcome("Catching up: bank.items.", ())

    for name, value in {
        "opened": lambda *_: SimpleNamespace(
            lines=list, names=[ITEMS, NOTES], left_out=[], export=SimpleNamespace(tso=7)
        ),
        "is_held": lambda _: False,
        "stop_signals": lambda *_: nullcontext(stop),
        "assembled": lambda *_, **__: nullcontext(pipeline),
        "_led_on": mock.Mock(),
        "is_unstarted": lambda _: True,
        "Follower": lambda _: SimpleNamespace(piece=piece),
        "_brought": brought,
        "begin": lambda *_: went.append("begin"),
    }.items():
        monkeypatch.setattr(command, name, value)

    done = command.load(mock.MagicMock(path="a.toml"), None, (), print)

    assert went == ["brought", "begin", *([] if is_stopped else ["piece", "piece"])]
    assert done.what == what
    assert [sentence.rpartition(": ")[2].rstrip(".") for sentence in done.refused] == list(refused)


@pytest.mark.parametrize("known", [Completeness(Reason(Why.LOADING)), DUE])
def test_a_run_does_not_begin_before_a_load_has(known: Completeness) -> None:
    """Killed before the first checkpoint, the load goes on; a run would begin elsewhere."""
    state = SimpleNamespace(completeness={ITEMS: known}, resolved_ts=0, checkpoint=SimpleNamespace(partitions={}))
    config = SimpleNamespace(
        changefeed=SimpleNamespace(name="shop"), path="a.toml", upstream=SimpleNamespace(dump=None)
    )
    with pytest.raises(
        TerminalError,
        match=r"begins at an export: a load has begun .* Run `applier load -c a.toml` again, which goes on",
    ):
        refuse_unloaded(SimpleNamespace(state=state, config=config))  # type: ignore[arg-type]


def test_many_tables_are_handed_over_with_one_look_at_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version or offset that was kept, or asked for, by itself would take a load of hundreds minutes."""
    names = [TableName("bank", f"t{number}") for number in range(3)]
    records = {name: LoadRecord(name, 7, 0, 0, replace(VERSION, name=name).to_json(), is_unique=True) for name in names}
    monkeypatch.setattr("applier.pipeline.requests.loads", SimpleNamespace(find=lambda _, name: (records[name], None)))
    main, since = mock.MagicMock(), {TopicPartition("shop", 0): Reading(5)}
    main.state.completeness = {name: Completeness(Reason(Why.LOADING)) for name in names}
    main.targets.feed.order, main.since.return_value = ORDERS["offset"], since
    main.state.checkpoint.moving = None
    main.config.tables.include = ("*.*",)

    outcome = Requests(main)._done(
        TableRequest("one", "loaded", tuple(f"`bank`.`{name.table}`" for name in names), "", "")
    )

    assert outcome.tables == tuple(names)
    assert (main.since.call_count, main.state.learn.call_count) == (1, 1)
    for name, known in main.state.completeness.items():
        assert (known.is_due, known.position) == (True, FeedPosition(name, 0, (), since, 7, is_loaded=True))
