"""Tables without a key: a transaction that TiCDC sends again counts once."""

from __future__ import annotations

import json

import pyarrow as pa

from applier.changefeed.applied_offsets import AppliedOffsets, Reach
from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.order.feed_order import OffsetOrder
from applier.order.merge import merge_bag
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.window_scan import NO_WATERMARK

TABLE = TableVersion(TableName("shop", "log"), 1, (Column("a", ColumnType("int")),), ())


def test_a_run_sent_again_behind_rows_above_the_watermark_counts_once() -> None:
    """Commit ts 7, then 19, then a restart sends 7 again, while the watermark is 7."""
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (TABLE,), upto=7)
    rows = [_record(offset, ts) for offset, ts in enumerate((7, 7, 19, 7, 7, 19))]

    found = job([pa.RecordBatch.from_pylist(rows, MESSAGE_SCHEMA)])
    (parts,) = found.parts.values()

    assert found.counts["left"] == 2
    assert merge_bag([part.rows for part in parts]).inserts.to_pylist() == [{"a": 1}, {"a": 1}]


def test_rows_below_the_offset_of_the_stamp_count_no_second_time() -> None:
    """Offset 3 ends a step in the middle of a transaction: of the same rows read again those beyond it are new."""
    covered = {TABLE.name: AppliedOffsets({TopicPartition("t", 0): (Reach(3), Reach(5, upto=7))})}
    order = OffsetOrder(covered=covered)
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (TABLE,), NO_WATERMARK, order)
    rows = [_record(offset, ts) for offset, ts in enumerate((7, 7, 8, 7, 8, 7))]

    found = job([pa.RecordBatch.from_pylist(rows, MESSAGE_SCHEMA)])
    (parts,) = found.parts.values()

    assert found.counts["replayed"] == 4
    assert parts[0].rows["m.offset"].to_pylist() == [4, 5]
    assert parts[0].topic == "t"


def _record(offset: int, ts: int) -> dict[str, object]:
    message = {
        "version": 1,
        "type": "INSERT",
        "database": "shop",
        "table": "log",
        "tableID": 1,
        "commitTs": ts,
        "buildTs": 1,
        "schemaVersion": 1,
        "data": {"a": "1"},
    }
    value = json.dumps(message).encode()
    return {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "key": None, "value": value}
