"""What a request does to tables that are parked already."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from applier import wording
from applier.changefeed.checkpoint import Cut, Moving
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.filter import TableFilter, exactly
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.ddl.schema_tracker import Tables
from applier.errors import ConfigError, TransientError
from applier.pipeline.requests import Requests
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.sink.control.rows import TableRequest, open_requests, request_rows
from applier.sink.iceberg.clock import Clock
from applier.ways_out import WaysOut

ORDERS, ITEMS, NOTES = (TableName("shop", name) for name in ("orders", "items", "notes"))
PLACE = FeedPosition(ORDERS, 7, (), {}, 1)


def requests(completeness: dict[TableName, Completeness], include: tuple[str, ...] = ("*.*",)) -> Requests:
    """The requests to a changefeed of these tables, whose feed never shows a CREATE TABLE."""
    config = SimpleNamespace(filter=TableFilter(include), path="applier.toml")
    state = SimpleNamespace(
        completeness=completeness,
        ways=WaysOut("applier.toml"),
        control=None,
        tables=Tables(),
        topics={},
        resolved_ts=9,
        versions={},
        ahead={},
        checkpoint=SimpleNamespace(cut=Cut(), handled={}, resuming=None, moving=None),
    )
    targets = SimpleNamespace(
        identifier=str,
        damage=lambda name, **_: None,
        feed=SimpleNamespace(order=SimpleNamespace(parts_at_ddl=False)),
    )
    return Requests(cast("Pipeline", SimpleNamespace(state=state, targets=targets, config=config)))


@pytest.mark.parametrize("why", [Why.DDL, Why.ROW, Why.LEFT_OUT, Why.LOADING, Why.BY_HAND])
def test_a_parked_table_keeps_its_reason(why: Why) -> None:
    """On the cause it depends whether the next start resumes it."""
    known = Completeness(Reason(why, "a DDL was refused"), since=7)
    state = SimpleNamespace(completeness={ORDERS: known}, tables={ORDERS: 1}, checkpoint=SimpleNamespace(moving=None))
    main = cast("Pipeline", SimpleNamespace(state=state, targets=None))

    outcome = Requests(main)._done(TableRequest("one", "park", ("shop.*",), "a look", "me"))

    assert state.completeness == {ORDERS: known}
    assert outcome.left == (ORDERS,)
    assert wording.outcome(outcome) == (
        "nothing to park. Left as they were: Table shop.orders is parked since resolved ts 7: a DDL was refused."
    )


def test_a_request_that_is_repeated_finds_its_tables_parked_as_asked() -> None:
    """The tables said so before the checkpoint failed: `park` must not end as if it had done nothing."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7, position=PLACE)
    known = {ORDERS: parked, ITEMS: Completeness(Reason(Why.DDL, "a DDL was refused"), since=7)}

    outcome = requests(known)._done(TableRequest("one", "park", ("shop.*",), "a look", "me"))

    assert known[ORDERS] == parked
    assert (outcome.tables, outcome.left) == ((ORDERS,), (ITEMS,))
    assert wording.outcome(outcome).startswith("parked: shop.orders. Left as they were: Table shop.items is parked")


def test_each_table_resumes_for_itself() -> None:
    """One that cannot come back keeps none of the others, and has its reason and its way out in the outcome."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
    known = {ORDERS: replace(parked, position=PLACE), ITEMS: parked, NOTES: replace(parked, position=PLACE)}
    found = requests(known, ("*.*", "!shop.notes"))

    outcome = wording.outcome(found._done(TableRequest("one", "resume", ("shop.*",), "", "me")))

    assert [name for name, item in known.items() if item.is_due] == [ORDERS]
    assert outcome.startswith("resumes: shop.orders. refused: Table shop.items is parked since resolved ts 7: a look. ")
    assert "run `applier load -c applier.toml --from DIR --tables 'shop.items'`." in outcome
    assert "Table shop.notes is left out by tables.include: admit it there" in outcome


def test_what_the_holder_itself_asks_for_is_kept_in_the_checkpoint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row in the table of requests is for another process; a load that holds the changefeed leaves none."""
    known = {ORDERS: Completeness(Reason(Why.BY_HAND, "a look"), since=7, position=PLACE)}
    found = requests(known)
    state, keep = cast("Any", found.main.state), mock.Mock()
    state.keep, cast("Any", found.main.targets).snapshots = keep, {}
    cast("Any", found.main.targets).catalog = SimpleNamespace(java=SimpleNamespace(clock=Clock()))
    monkeypatch.setattr("applier.pipeline.tables.completeness.table_records.keep", lambda *_: None)

    outcome = found.carry_out(TableRequest("one", "resume", ("shop.*",), "", "me"))

    assert state.control is None
    keep.assert_called_once_with(Cut(), None, {"one": outcome})


def test_a_request_of_a_later_version_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process goes on as it was; the refusal is kept as the outcome, so the command that waits for it ends."""
    live = {ORDERS: LIVE}
    found = requests(dict(live))
    state, keep = cast("Any", found.main.state), mock.Mock()
    monkeypatch.setattr("applier.pipeline.tables.completeness.kept", lambda *_: Cut())
    state.keep = keep
    rows = request_rows(TableRequest("one", cast("Any", "polish"), ("shop.*",), "", "me"))

    [request] = open_requests(rows.to_pylist())
    outcome = found.carry_out(request)

    assert wording.outcome(outcome) == (
        f"refused: A request of kind polish is not known to applier {version('applier')}, which has the changefeed: "
        "end it, and start `applier run -c applier.toml` of the version that asked; then give the command again."
    )
    keep.assert_called_once_with(Cut(), None, {"one": outcome})
    assert state.completeness == live


def test_tables_that_resume_together_do_so_or_not_at_all() -> None:
    """They exchanged rows: one without the other would lack some."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
    known = {
        ORDERS: replace(parked, position=PLACE, partners=(ITEMS,)),
        ITEMS: replace(parked, partners=(ORDERS,)),
        NOTES: replace(parked, position=PLACE),
    }

    outcome = wording.outcome(
        requests(known)._done(TableRequest("one", "resume", ("shop.orders", "shop.notes"), "", "me"))
    )

    assert [name for name, item in known.items() if item.is_due] == [NOTES]
    assert "refused: Table shop.orders resumes together with shop.items: Table shop.items is parked" in outcome


def test_where_no_table_can_resume_nothing_is_done() -> None:
    """The refusal has every reason."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
    known = {ITEMS: parked, NOTES: parked}

    with pytest.raises(ConfigError) as raised:
        requests(known)._done(TableRequest("one", "resume", ("shop.*",), "", "me"))

    assert [problem.split()[1] for problem in raised.value.problems] == ["shop.items", "shop.notes"]
    assert known == {ITEMS: parked, NOTES: parked}


def test_an_outage_leaves_no_request_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try finds the tables as they were, and its outcome is true."""
    known = {ORDERS: Completeness(Reason(Why.BY_HAND, "a look"), since=7, position=PLACE)}
    found = requests(known)
    state = found.main.state
    monkeypatch.setattr("applier.pipeline.requests.completeness.kept", lambda *_: {})

    def keep(*_: object) -> None:
        raise TransientError("The catalog does not answer.")

    monkeypatch.setattr(state, "keep", keep, raising=False)
    for _ in range(2):
        with pytest.raises(TransientError):
            found.carry_out(TableRequest("one", "resume", ("shop.orders",), "", "me"))
        assert not state.completeness[ORDERS].is_due


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({ORDERS: 8, NOTES: 8}, "has renamed or dropped some of these tables: shop.notes, shop.orders"),
        ({}, "has changed partitions"),
    ],
)
def test_a_step_that_stopped_half_way_is_finished_before_a_request_is_kept(
    names: dict[TableName, int], said: str
) -> None:
    """Its names may stand for other tables; the refusal names the command that finishes it."""
    found = requests({ORDERS: replace(Completeness(Reason(Why.BY_HAND), since=7), position=PLACE)})
    moving = Moving(names, {})
    state = cast("Any", found.main.state)
    state.checkpoint = SimpleNamespace(moving=moving, handled={})
    state.ways, state.unsettled = WaysOut("a.toml"), moving.tables

    with pytest.raises(ConfigError, match=rf"half-way {said}\. Let `applier run -c a.toml --once` finish it"):
        found.ask(TableRequest("one", "park", ("shop.orders",), "a look", "me"))


def test_a_table_is_not_left_out_between_a_step_that_failed_and_its_repetition() -> None:
    """The repetition would end at the name that the table frees, below the end of the step, again and again."""
    state = State(mock.MagicMock(), mock.MagicMock(moving=Moving({ORDERS: 8, NOTES: 8}, {})), ways=WaysOut("a.toml"))
    state.completeness = {ORDERS: LIVE, NOTES: Completeness(Reason(Why.LEFT_OUT))}
    moved_names.refuse_left_out(state, TableFilter(("*.*", "!shop.notes")))

    with pytest.raises(
        ConfigError, match=r"now tables.include leaves out shop.orders. Admit it, let `applier run -c a."
    ):
        moved_names.refuse_left_out(state, TableFilter(("*.*", "!shop.orders")))


def test_a_table_that_was_left_out_while_it_was_loaded_is_not_handed_over() -> None:
    """It would be shown as whole without the rows that came since; the load goes on once it is admitted."""
    known = {ORDERS: Completeness(Reason(Why.LOADING), since=7), ITEMS: Completeness(Reason(Why.LOADING), since=7)}
    found = requests(dict(known), ("*.*", "!shop.orders"))

    with pytest.raises(ConfigError, match=r"Table shop.orders is left out by tables.include: admit it there and start"):
        found._done(TableRequest("one", "loaded", exactly([ITEMS, ORDERS]), "", "me"))

    assert found.main.state.completeness == known
