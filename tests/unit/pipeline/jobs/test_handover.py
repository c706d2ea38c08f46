"""When tables of a job have every DDL that the changefeed has applied at exactly its resolved ts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why, incomplete
from applier.changefeed.position import DdlId, FeedPosition
from applier.changefeed.table import TableName
from applier.errors import SchemaChangeRefused, TableMismatch
from applier.order.feed_order import ORDERS as FEED_ORDERS
from applier.pipeline.jobs.handover import Handover
from applier.pipeline.jobs.resumption import Replay
from applier.pipeline.state import State
from applier.sink.control.control import SchemaDecision
from applier.ways_out import WaysOut

TS = 470606913376878593
ITEMS, ORDERS = TableName("shop", "items"), TableName("shop", "orders")
ALTER = DdlId("ALTER TABLE orders ADD COLUMN c INT", "shop.orders", TS)


@pytest.mark.parametrize(
    ("table", "applied", "loaded", "wanted"),
    [
        ("orders", set(), 0, False),
        ("orders", {ALTER}, 0, True),
        ("items", set(), 0, True),
        ("order", set(), 0, True),
        ("orders", set(), TS, True),
        ("orders", set(), TS - 1, False),
    ],
    ids=[
        "lacks it",
        "has it",
        "of another table",
        "its name is a part of another",
        "an export of this ts has it",
        "an export of before lacks it",
    ],
)
def test_a_table_that_lacks_a_ddl_of_the_resolved_ts_waits(
    table: str, applied: set[DdlId], loaded: int, wanted: bool
) -> None:
    """Else readers would see it without the change."""
    name = TableName("shop", table)
    ddl = SimpleNamespace(applied={ALTER})
    main: Any = SimpleNamespace(
        state=SimpleNamespace(ddl=ddl), targets=SimpleNamespace(feed=SimpleNamespace(order=FEED_ORDERS["resolved"]))
    )
    state: Any = SimpleNamespace(ddl=SimpleNamespace(applied=applied), tables=[name], loaded={name: loaded})
    assert Handover(main, state, cast("Any", None))._has_all_ddl() is wanted


@pytest.mark.parametrize(
    ("found", "ended"),
    [
        (LIVE, Completeness(Reason(Why.LATE, "9"))),
        (incomplete(Why.UNRECORDED), incomplete(Why.UNRECORDED)),
        (Completeness(Reason(Why.DDL)), Completeness(Reason(Why.DDL), lacked=Reason(Why.LATE, "9"))),
    ],
    ids=["whole", "incomplete already", "parked again"],
)
def test_a_late_row_that_the_changefeed_met_meanwhile_is_not_forgotten(
    found: Completeness, ended: Completeness
) -> None:
    """It came under the former name of the table, which its job does not read."""
    name = TableName("shop", "orders")
    parked = Completeness(Reason(Why.BY_HAND), lacked=Reason(Why.LATE, "9"))
    main: Any = SimpleNamespace(state=SimpleNamespace(completeness={name: parked}))
    assert Handover(main, cast("Any", None), cast("Any", None))._ended(name, found) == ended


@pytest.mark.parametrize("is_parked", [False, True])
def test_the_partner_of_a_table_that_comes_back_with_a_late_row_is_in_doubt_too(*, is_parked: bool) -> None:
    """The row may belong in either since their partitions changed places."""
    orders, items = (TableName("shop", name) for name in ("orders", "items"))
    state = State(cast("Any", None), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0), completeness={items: LIVE})
    sql = "ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE items"
    state.ddl.note([SchemaDecision(TS, orders, sql, "exchange-partition", "rewritten")])
    known = Completeness(Reason(Why.LATE, str(TS)), origin=FeedPosition(orders, 0))
    if is_parked:
        known = replace(known, reason=Reason(Why.ROW), lacked=known.reason)

    Handover(cast("Any", SimpleNamespace(state=state)), cast("Any", None), cast("Any", None))._doubt_others(known)

    assert state.completeness == {items: Completeness(Reason(Why.LATE, str(TS)))}


def _job(hold: str = "") -> tuple[Handover, dict[TableName, Completeness], Mock]:
    """A job of two tables that an export was loaded into; others have changed `items` since."""
    at = FeedPosition(ITEMS, TS, version=TS, is_loaded=True)
    parked = Completeness(Reason(Why.CATCHING_UP), position=at, is_due=True)
    known = {ITEMS: parked, ORDERS: parked}
    main, copies, state = MagicMock(), Mock(), MagicMock()
    main.state.completeness, main.state.ways = known, WaysOut()
    main.state.checkpoint.resuming.hold = hold
    state.completeness = {ITEMS: replace(LIVE, origin=at), ORDERS: replace(LIVE, origin=replace(at, name=ORDERS))}
    copies.show.side_effect = lambda name, *_: _refuse() if name == ITEMS else None
    return Handover(main, state, copies), known, copies


def _refuse() -> None:
    raise TableMismatch("The metadata of table shop.items is gone", "Register it again.")


def test_a_table_that_cannot_be_shown_is_given_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are shown; and what the export brought of that one stays."""
    monkeypatch.setattr("applier.pipeline.jobs.handover.loads", loads := MagicMock())
    handover, known, copies = _job()

    handover.show({ITEMS: ITEMS, ORDERS: ORDERS})

    assert [call.args[0] for call in copies.show.call_args_list] == [ITEMS, ORDERS]
    assert known[ORDERS] == LIVE
    assert (known[ITEMS].is_due, known[ITEMS].reason.detail) == (False, "The metadata of table shop.items is gone")
    assert [call.args[1] for call in loads.discard.call_args_list] == [ORDERS]


def test_a_backfill_shows_all_of_its_copies_or_ends() -> None:
    """Its command says why."""
    handover, _, _ = _job("a branch")
    with pytest.raises(TableMismatch, match=r"The metadata of table shop\.items is gone"):
        handover.show({ITEMS: ITEMS, ORDERS: ORDERS})


@pytest.mark.parametrize(("tables", "wanted"), [([ITEMS], [ITEMS]), ([], [ITEMS, ORDERS])], ids=["one", "none named"])
def test_an_error_gives_up_the_tables_that_it_names(tables: list[TableName], wanted: list[TableName]) -> None:
    """All where it names none: the range of none of them can be read."""
    places = {name: FeedPosition(name, TS, version=1) for name in (ITEMS, ORDERS)}
    parked = {name: Completeness(Reason(Why.DDL), position=at, is_due=True) for name, at in places.items()}
    inside = {name: replace(LIVE, origin=at) for name, at in places.items()}
    main: Any = SimpleNamespace(state=SimpleNamespace(completeness=parked))
    pipeline: Any = SimpleNamespace(state=SimpleNamespace(completeness=inside))
    refused = SchemaChangeRefused("The columns of table items are not known")
    refused.tables = tuple(tables)
    assert Replay(main, pipeline, cast("Any", None), cast("Any", None)).concerned(refused) == wanted
