"""When tables of a job have every DDL that the changefeed has applied at exactly its resolved ts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why, incomplete
from applier.changefeed.position import DdlId, FeedPosition
from applier.changefeed.table import TableName
from applier.order.feed_order import ORDERS
from applier.pipeline.resume.handover import Handover
from applier.pipeline.state import State
from applier.sink.control.control import SchemaDecision

TS = 470606913376878593
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
        state=SimpleNamespace(ddl=ddl), targets=SimpleNamespace(feed=SimpleNamespace(order=ORDERS["resolved"]))
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
    state = State(cast("Any", None), Checkpoint(1, 1, 0, 0, Holder("t", "h")), completeness={items: LIVE})
    sql = "ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE items"
    state.ddl.note([SchemaDecision(TS, orders, sql, "exchange-partition", "rewritten")])
    known = Completeness(Reason(Why.LATE, str(TS)), origin=FeedPosition(orders, 0))
    if is_parked:
        known = replace(known, reason=Reason(Why.ROW), lacked=known.reason)

    Handover(cast("Any", SimpleNamespace(state=state)), cast("Any", None), cast("Any", None))._doubt_others(known)

    assert state.completeness == {items: Completeness(Reason(Why.LATE, str(TS)))}
