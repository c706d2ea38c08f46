"""Any spread over partitions, order of reading, duplication and delay gives the model's table at the watermark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.order.feed_order import ResolvedOrder
from applier.order.merge import merge_keyed
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult

NAME = TableName("shop", "account")
COLUMNS = [
    {"name": name, "dataType": {"mysqlType": "int", "charset": "binary", "collate": "binary"}, "nullable": name != "id"}
    for name in ("id", "v")
]
BOOTSTRAP = {
    "version": 1,
    "type": "BOOTSTRAP",
    "commitTs": 0,
    "buildTs": 0,
    "tableSchema": {
        "schema": NAME.database,
        "table": NAME.table,
        "tableID": 1,
        "version": 7,
        "columns": [column | {"default": None} for column in COLUMNS],
        "indexes": [{"name": "PRIMARY", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}],
    },
}

Change = tuple[int, str, int]
"""Commit ts, type and key of a row change; the value of a row is the commit ts that wrote it."""


def message(change: Change) -> dict[str, Any]:
    """A row change as TiCDC's Simple protocol writes it."""
    ts, kind, key = change
    row, old = {"id": str(key), "v": str(ts)}, {"id": str(key), "v": "0"}
    images = {"INSERT": {"data": row}, "UPDATE": {"data": row, "old": old}, "DELETE": {"old": old}}[kind]
    names = {"database": NAME.database, "table": NAME.table, "tableID": 1, "schemaVersion": 7}
    return {"version": 1, "type": kind, "commitTs": ts, "buildTs": 0, **names, **images}


def messages(partitions: Sequence[Sequence[dict[str, Any]]]) -> pa.Table:
    """Partitions as a frame of messages."""
    rows = [
        {"topic": "t", "partition": number, "offset": offset, "value": json.dumps(value).encode()}
        for number, values in enumerate(partitions)
        for offset, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)


@st.composite
def feeds(draw: st.DrawFn) -> tuple[list[Change], list[list[Change]]]:
    """A history that is possible in a database, and the same spread over partitions, out of order, some of it twice."""
    history: list[Change] = []
    live: set[int] = set()
    for ts in range(1, draw(st.integers(1, 14)) + 1):
        key = draw(st.integers(0, 4))
        kind = "INSERT" if key not in live else draw(st.sampled_from(["UPDATE", "DELETE"]))
        live = live - {key} if kind == "DELETE" else live | {key}
        history.append((ts, kind, key))
    sent = draw(st.permutations(history + draw(st.lists(st.sampled_from(history), max_size=5))))
    count = draw(st.integers(1, 3))
    placed = [(draw(st.integers(0, count - 1)), change) for change in sent]
    return history, [[change for number, change in placed if number == partition] for partition in range(count)]


@settings(max_examples=200)
@given(feeds(), st.integers(0, 15), st.integers(0, 15))
def test_table_is_the_model_at_the_watermark(
    feed: tuple[list[Change], list[list[Change]]], applied: int, ahead: int
) -> None:
    """Rows at or below the applied ts change nothing, rows above the watermark stay out, the rest is applied once."""
    history, partitions = feed
    upto = max(applied, ahead)
    frame = messages([[BOOTSTRAP, *map(message, partition)] for partition in partitions])
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto, ResolvedOrder(applied))
    # Each partition in a task of its own, as Spark reads them.
    batches = [frame.filter(pc.field("partition") == n) for n in range(len(partitions))]
    found = TaskResult.sum(job(by_place(part)) for part in batches)

    table = model(history, applied)
    parts = found.parts.get((NAME, 0), [])
    if parts:
        batch = merge_keyed([part.here for part in parts], ("id",))
        fresh = {row["id"] for row, new in zip(batch.upserts.to_pylist(), batch.fresh.to_pylist(), strict=True) if new}
        assert not fresh & table.keys()
        table |= {row["id"]: row["v"] for row in batch.upserts.to_pylist()}
        for row in batch.deletes.to_pylist():
            table.pop(row["id"], None)

    assert table == model(history, upto)
    above = {change for partition in partitions for change in partition if change[0] > upto}
    assert bool(found.held) == bool(above)


def model(history: Sequence[Change], upto: int) -> dict[int, int]:
    """The table as of a commit ts."""
    table: dict[int, int] = {}
    for ts, kind, key in history:
        if ts <= upto and kind == "DELETE":
            table.pop(key)
        elif ts <= upto:
            table[key] = ts
    return table
