"""CREATE TABLE … LIKE in a window: it parts the rows of its source only where these alone describe it."""

from __future__ import annotations

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.order.feed_order import FeedOrder, OffsetOrder, ResolvedOrder
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.builders import version
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_dead_letters import _SCHEMA, PLACE, MessageSource, _message, _row

STOCK = TableName("shop", "stock")
LIKE = _message(
    "CREATE", 5, sql="CREATE TABLE `shop`.`copy` LIKE `shop`.`stock`", tableSchema=_SCHEMA | {"table": "copy"}
)


def _scan(order: FeedOrder, tables: Tables) -> WindowScan:
    described = {**_message("BOOTSTRAP", 0, tableSchema=_SCHEMA), "commitTs": 0}
    source = MessageSource([described, LIKE, _row("INSERT", 2, "1", 3), _message("WATERMARK", 9)])
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0, order=order)
    ends: dict[TopicPartition, int] = {PLACE: 4}
    known = known_at(0, tables)
    return WindowScanner(source, template, rows_describe=False, keep_bad=False).scan(
        source.window, known, ends, Stopwatch(), where=Where.TASKS
    )


@pytest.mark.parametrize("order", [OffsetOrder(), ResolvedOrder()])
@pytest.mark.parametrize("tables", [Tables(), Tables([version(("id", "int"), ("left", "int"), name=STOCK)])])
def test_a_row_of_the_source_behind_it_counts(order: FeedOrder, tables: Tables) -> None:
    """One with a lower commit ts was not sent before: the DDL sends rows of its own table in front of it alone."""
    found = _scan(order, tables)

    assert found.results.counts["applied"] == 1
    assert found.results.counts.get("had", 0) == 0
    assert [number for name, number in found.results.parts if name == STOCK] == [0]
    assert (STOCK in found.job.marks.cuts) == (STOCK not in tables)
    assert STOCK not in found.job.order.passages
