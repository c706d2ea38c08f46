"""When tables of a job have every DDL that the changefeed has applied at exactly its resolved ts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName
from applier.order.feed_order import ORDERS
from applier.pipeline.resume.handover import Handover

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
