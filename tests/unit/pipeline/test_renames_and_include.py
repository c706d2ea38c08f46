"""What `tables.include` says of the new name of a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.checkpoint import Feed
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.schema_tracker import Tables
from applier.order.feed_order import ORDERS
from applier.pipeline.tables.parking import follow_include

NAME = TableName("shop", "items")
LEFT_OUT = Completeness(Reason(Why.LEFT_OUT), position=FeedPosition(NAME, 5, version=1))


@pytest.mark.parametrize(
    ("before", "is_wanted", "state", "is_due"),
    [(LIVE, False, "parked", False), (LIVE, True, "live", False), (LEFT_OUT, True, "parked", True)],
    ids=["leaves", "stays", "comes back"],
)
def test_a_table_that_is_renamed_out_of_the_included_names_is_not_shown_as_whole(
    before: Completeness, is_wanted: bool, state: str, is_due: bool
) -> None:
    """Its Iceberg table is dropped: a name that is admitted later must not pass for a whole table without rows."""
    last = SimpleNamespace(resolved_ts=5, ddl=(), partitions={}, feed=Feed())
    progress: Any = SimpleNamespace(
        completeness={NAME: before},
        tables=Tables([TableVersion(NAME, 1, ())]),
        checkpoint=last,
        resolved_ts=5,
        ddl=SimpleNamespace(altered={}),
    )
    feed = SimpleNamespace(order=ORDERS["resolved"])
    answers: dict[str, Any] = dict.fromkeys(("damage", "applied_ts"), lambda _: None)
    listed = SimpleNamespace(identity=lambda _: "of-t", head=lambda _: None)
    targets: Any = SimpleNamespace(feed=feed, listed=listed, identifier=tuple, **answers)

    follow_include(progress, targets, NAME, is_wanted=is_wanted)

    assert (progress.completeness[NAME].state, progress.completeness[NAME].is_due) == (state, is_due)
