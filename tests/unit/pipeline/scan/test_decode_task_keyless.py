"""Tables without a key: a transaction that TiCDC sends again counts once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from applier.changefeed.applied_offsets import AppliedOffsets, Reach
from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition, by_place
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

    found = job(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))
    (parts,) = found.parts.values()

    assert found.counts["held"] == 2
    assert merge_bag([part.here for part in parts]).inserts.to_pylist() == [{"a": 1}, {"a": 1}]


def test_rows_below_the_offset_of_the_stamp_count_no_second_time() -> None:
    """Offset 3 ends a step in the middle of a transaction: of the same rows read again those beyond it are new."""
    covered = {TABLE.name: AppliedOffsets({TopicPartition("t", 0): (Reach(3), Reach(5, upto=7))})}
    order = OffsetOrder(covered=covered)
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (TABLE,), NO_WATERMARK, order)
    rows = [_record(offset, ts) for offset, ts in enumerate((7, 7, 8, 7, 8, 7))]

    found = job(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))
    (parts,) = found.parts.values()

    assert found.counts["had"] == 4
    assert parts[0].here["\0offset"].to_pylist() == [4, 5]
    assert parts[0].topic == "t"


EXACT = (7 << 18) + 3
WATERMARK = EXACT + 1
OTHER = (9 << 18) + 1


@pytest.mark.parametrize(
    ("partitions", "count"),
    [
        (((EXACT, EXACT),), 2),
        (((EXACT, EXACT, OTHER, EXACT, EXACT),), 2),
        (((EXACT, EXACT), (EXACT, EXACT)), 2),
        (((EXACT, EXACT), (EXACT,)), 2),
        (((7 << 18,), (7 << 18,)), 2),
        (((7 << 18, 7 << 18, OTHER, 7 << 18),), 2),
    ],
)
def test_in_offset_order_a_window_counts_what_was_surely_sent_again_once(
    partitions: Sequence[Sequence[int]], count: int
) -> None:
    """In its partition behind other rows, and with an exact commit ts in any; no row of a transaction is lost."""
    assert _added(partitions) == count


def test_in_offset_order_a_later_window_counts_again_whatever_was_sent_again() -> None:
    """A row comes twice, in whichever partition; where a window ends in a run, no row of it is lost."""
    first, cut = ((EXACT, EXACT),), ((EXACT,),)
    for again in (((), (EXACT, EXACT)), ((OTHER, EXACT, EXACT),)):
        assert _added(first) + _added(again) == 4
        assert _added(cut) + _added(again) == 3
    assert _added(cut) + _added(cut) == 2


@pytest.mark.parametrize(("ts", "count"), [(7 << 18, 1), (6 << 18, 0), (EXACT, 0), (WATERMARK, 0), (WATERMARK + 1, 1)])
def test_in_offset_order_a_row_is_sent_again_only_if_it_surely_is_below_the_watermark(ts: int, count: int) -> None:
    """A millisecond may be above a watermark in it."""
    table = pa.Table.from_pylist([_watermark(0), _record(1, ts)], MESSAGE_SCHEMA)
    (parts,) = _by_offset()(by_place(table)).parts.values()

    assert len(merge_bag([part.here for part in parts], by_place=True).inserts) == count


def _by_offset() -> DecodeTask:
    return DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (TABLE,), NO_WATERMARK, OffsetOrder())


def _added(partitions: Sequence[Sequence[int]]) -> int:
    """How many rows a window adds, beside those of `OTHER`; its rows are given by commit ts."""
    rows = [_record(at, ts, number) for number, sent in enumerate(partitions) for at, ts in enumerate(sent)]
    (parts,) = _by_offset()(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA))).parts.values()
    others = sum(ts == OTHER for sent in partitions for ts in sent)
    return len(merge_bag([part.here for part in parts], by_place=True).inserts) - others


def _watermark(offset: int) -> dict[str, object]:
    message = {"version": 1, "type": "WATERMARK", "commitTs": WATERMARK, "buildTs": 1}
    return _message(offset, message)


def _record(offset: int, ts: int, partition: int = 0) -> dict[str, object]:
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
    return _message(offset, message, partition)


def _message(offset: int, message: dict[str, object], partition: int = 0) -> dict[str, object]:
    value = json.dumps(message).encode()
    return {"topic": "t", "partition": partition, "offset": offset, "timestamp": None, "key": None, "value": value}
