"""What a task hands to the driver: all of it, once, and only for as long as somebody wants it."""

from __future__ import annotations

import pyarrow as pa

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.pipeline.scan.task_result import collect, finding, finding_batch, rows_batch

NAME = TableName("db", "t")
VERSION = TableVersion(NAME, 7, (Column("id", ColumnType("bigint")),))


def _rows(count: int) -> pa.Table:
    return pa.table({"m.ts": pa.array(range(count), pa.int64()), "c.id": [str(number) for number in range(count)]})


def test_rows_arrive_as_they_were_found() -> None:
    """With their version, segment and topic, among findings of other kinds."""
    batches = [
        rows_batch(NAME, VERSION, _rows(3), 0, "a"),
        rows_batch(NAME, VERSION, _rows(1000), 2, "b"),
        finding_batch(finding("count", name=TableName("", "rows"), count=1003)),
    ]

    found = collect(pa.Table.from_batches(batches))
    together = collect(pa.Table.from_batches(batches).combine_chunks())

    for results in (found, together):
        parts = {where: [(part.version, part.topic) for part in parts] for where, parts in results.parts.items()}
        assert parts == {(NAME, 0): [(VERSION, "a")], (NAME, 2): [(VERSION, "b")]}
        assert results.parts[NAME, 0][0].rows.equals(_rows(3))
        assert results.parts[NAME, 2][0].rows.equals(_rows(1000))
        assert results.counts == {"rows": 1003}


def test_rows_that_nobody_wants_any_more_take_no_memory() -> None:
    """A long backlog would fill the machine with what was applied long ago."""
    before = pa.total_allocated_bytes()
    found = collect(pa.Table.from_batches([rows_batch(NAME, VERSION, _rows(100_000), 0, "a")]))
    held = pa.total_allocated_bytes() - before

    del found

    assert held > 1_000_000
    assert pa.total_allocated_bytes() == before
