"""Deletes without a commit ts beside rows that carry one.

TiCDC writes an Avro DELETE as a null value, without a commit ts, in every release of the old architecture, and in
v8.5.4 to v8.5.6 and v26.3.1 to v26.3.3 of the new one, also with `avro-enable-watermark`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.applied_offsets import AppliedOffsets, Reach
from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition, by_place
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.options import DecoderOptions
from applier.order.feed_order import OffsetOrder, Passage, ResolvedOrder
from applier.order.merge import merge_keyed
from applier.pipeline.scan import decode_task
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks
from tests.unit.decode.avro_messages import EXTENSION, ID, TS, Schemas, column, record

SCHEMAS = Schemas(
    key=record(ID), value=record(ID, column("v", "BIGINT", "long", null="first", default=None), *EXTENSION)
)
EVER = (1 << 63) - 1
SHOP = TableName("shop", "t")
PLACE = TopicPartition("shop_t", 0)

Message = tuple[bytes | None, bytes | None]


@pytest.fixture(autouse=True)
def _scripted_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder asks no registry for its schemas."""
    monkeypatch.setattr(decode_task, "decoder_of_thread", lambda protocol, options: AvroDecoder(SCHEMAS))


def written(op: str, ts: int, key: int, value: int = 0) -> Message:
    """A row that carries its commit ts."""
    fields = {"_tidb_op": op, "_tidb_commit_ts": ts, "_tidb_commit_physical_time": ts >> 18}
    return SCHEMAS.message("key", id=key), SCHEMAS.message("value", id=key, v=value, **fields)


def deleted(key: int) -> Message:
    """A delete as a null value."""
    return SCHEMAS.message("key", id=key), None


def statement(ts: int, sql: str) -> Message:
    """A DDL message."""
    said = {"query": sql, "type": 11, "schema": "shop", "table": "t", "commitTs": ts}
    return None, b"\x01" + json.dumps(said).encode()


def found(messages: Sequence[Message], **settings: Any) -> TaskResult:
    """What a row pass finds in messages of one partition."""
    rows = [
        {"topic": PLACE.topic, "partition": 0, "offset": offset, "key": key, "value": value}
        for offset, (key, value) in enumerate(messages)
    ]
    table = pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)
    base: dict[str, Any] = {"include": ("*.*",), "upto": EVER}
    job = DecodeTask("avro", DecoderOptions(), TypeRules(), versions=(), **{**base, **settings})
    return job(by_place(table))


def last(results: TaskResult, segment: int = 0) -> tuple[dict[int, int], list[int]]:
    """Rows that the changes of a segment leave, and keys that they delete, in offset order."""
    parts = [part.here for (_, number), found in results.parts.items() if number == segment for part in found]
    if not parts:
        return {}, []
    batch = merge_keyed(parts, ["id"], by_place=True, exact=False)
    rows = {row["id"]: row["v"] for row in batch.upserts.to_pylist()}
    return rows, sorted(row["id"] for row in batch.deletes.to_pylist())


@pytest.mark.parametrize("rows", [1, 3000], ids=["one by one", "many at once"])
def test_a_delete_without_a_commit_ts_is_refused_in_resolved_order(rows: int) -> None:
    """Its table and its place are named, and the way out is one that the user can take."""
    keys = range(rows)

    results = found([*(written("c", TS + key, key) for key in keys), *(deleted(key) for key in keys)])

    assert len(results.bad) == rows
    assert results.bad[0].offset == rows
    assert str(results.bad[0].error) == (
        f"Cannot decode avro message at shop_t/0:{rows}: A delete of table shop.t has no commit ts, so its "
        'place among the changes of the row is unknown. Hint: set changefeed.order = "offset", where the place in the '
        "topic orders changes, or upgrade TiCDC: its Avro deletes carry a commit ts from v8.5.7 and v26.3.4 on."
    )


@pytest.mark.parametrize("rows", [1, 3000], ids=["one by one", "many at once"])
def test_such_a_delete_of_a_table_that_is_left_out_stops_nothing(rows: int) -> None:
    """It is counted as excluded."""
    messages = [*(written("c", TS + key, key) for key in range(rows)), *(deleted(key) for key in range(rows))]

    results = found(messages, include=("*.*", "!shop.t"))

    assert results.bad == []
    assert results.counts["left_out"] == 2 * rows


def test_such_a_delete_removes_no_row_that_is_applied() -> None:
    """A copy that TiCDC sends again after the row came back is refused, as nothing shows that the row is newer."""
    results = found([deleted(1), written("c", TS + 5, 1)], order=ResolvedOrder(TS + 6))

    assert [bad.offset for bad in results.bad] == [0]
    assert results.parts == {}


@given(st.data())
def test_in_offset_order_the_last_change_of_each_key_wins(data: st.DataObject) -> None:
    """A delete without a commit ts follows what came before it in the topic, and what comes after it stays.

    Each change of a key is newer than the one before it, and a stretch of them may be sent again, as a restart does.
    """
    ops = data.draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30))
    sent: list[Message] = [
        deleted(key) if is_delete else written("u", TS + at, key, at) for at, (key, is_delete) in enumerate(ops)
    ]
    start = data.draw(st.integers(0, len(sent)))
    sent += sent[start:]

    rows, deletes = last(found(sent, order=OffsetOrder()))

    wanted = {key: at for at, (key, _) in enumerate(ops)}
    living = {key: at for key, at in wanted.items() if not ops[at][1]}
    assert rows == living
    assert deletes == sorted(wanted.keys() - living.keys())


def test_many_rows_that_come_and_go_in_offset_order() -> None:
    """Rows that are read together are ordered by their place, too."""
    keys = range(1500)
    again = range(0, 1500, 2)
    messages = [*(written("c", TS + key, key) for key in keys), *(deleted(key) for key in keys)]

    rows, deletes = last(
        found([*messages, *(written("c", TS + 9000 + key, key, 1) for key in again)], order=OffsetOrder())
    )

    assert rows == dict.fromkeys(again, 1)
    assert deletes == list(range(1, 1500, 2))


@pytest.mark.parametrize("rows", [1, 3000], ids=["one by one", "many at once"])
def test_in_offset_order_such_a_delete_stays_behind_a_ddl(rows: int) -> None:
    """A delete that follows a DDL in the topic is applied after it, as the rows that it removes are written there."""
    ddl = TS + 10
    keys = range(rows)
    messages = [
        *(written("c", TS + 1, key) for key in keys),
        statement(ddl, "TRUNCATE TABLE t"),
        *(written("c", ddl + 1 + key, key, 1) for key in keys),
        *(deleted(key) for key in keys if key % 2 == 0),
    ]

    results = found(
        messages,
        marks=DdlMarks(cuts={SHOP: [ddl]}),
        order=OffsetOrder(passages={SHOP: {PLACE: [Passage(rows, ddl)]}}),
    )

    assert last(results, 0) == (dict.fromkeys(keys, 0), [])
    assert last(results, 1) == ({key: 1 for key in keys if key % 2}, [key for key in keys if key % 2 == 0])


def test_such_a_delete_behind_a_ddl_is_not_taken_for_applied() -> None:
    """A crash left the rows below a DDL in the table: the delete that follows the DDL is still to be applied."""
    ddl = TS + 10
    messages = [written("c", TS + 1, 1), statement(ddl, "CREATE INDEX i ON t (v)"), deleted(1)]
    covered = {SHOP: AppliedOffsets({PLACE: (Reach(3, ddl),)}, {})}

    order = OffsetOrder(covered=covered, passages={SHOP: {PLACE: [Passage(1, ddl)]}})
    results = found(messages, marks=DdlMarks(cuts={SHOP: [ddl]}), order=order)

    assert results.counts["had"] == 1
    assert last(results, 1) == ({}, [1])
