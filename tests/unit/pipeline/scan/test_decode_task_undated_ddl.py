"""A DDL without a commit ts, in a feed that is applied in the order of commit ts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.order.feed_order import FeedOrder, OffsetOrder, ResolvedOrder
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult

DDL = {"id": 0, "database": "d", "table": "t", "pkNames": None, "isDdl": True, "type": "ERASE", "sql": "DROP TABLE d.t"}


def _pass(upto: int, order: FeedOrder) -> TaskResult:
    place = {"topic": "t", "partition": 0, "offset": 0, "timestamp": None, "key": None}
    row = {**place, "value": json.dumps(DDL | {"es": 9}).encode()}
    messages = pa.Table.from_pylist([row], schema=MESSAGE_SCHEMA)
    options = DecoderOptions(by_offset=order.by_place)
    return DecodeTask("canal-json", options, TypeRules(), ("*.*",), (), upto, order)(by_place(messages))


def test_a_ddl_without_a_commit_ts_is_refused() -> None:
    """It would pass for one that was applied long ago, and the table would be there for ever."""
    found = _pass(5, ResolvedOrder())

    assert [str(bad.error) for bad in found.bad] != []
    assert "A DDL has no commit ts" in str(found.bad[0].error)
    assert found.barriers == []


@pytest.mark.parametrize(("upto", "order"), [(-1, ResolvedOrder()), (5, OffsetOrder())])
def test_a_ddl_without_a_commit_ts_is_reported_where_no_watermark_or_no_order_counts(
    upto: int, order: FeedOrder
) -> None:
    """Without a watermark nothing is applied, and in offset order its place decides."""
    found = _pass(upto, order)

    assert found.bad == []
    assert len(found.barriers) == 1
