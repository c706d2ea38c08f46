"""Versions of the rows of one step, in a feed whose DDL do not come: which of them a table follows, in what order."""

from __future__ import annotations

import pyarrow as pa

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.decode.avro.decoder import row_version
from applier.pipeline.batches.batch import Batch
from applier.pipeline.scan.task_result import Part

NAME = TableName("s", "t")


def part(value_id: int, *stamps: int) -> Part:
    """Rows of a value schema, by their commit ts."""
    ids, columns = ((1, 11), (value_id, value_id)), (Column("id", ColumnType("int")), Column("a", ColumnType("int")))
    version = TableVersion(NAME, row_version(1, value_id), columns, handle_key=("id",), schemas=ids)
    rows = pa.table({"\0ts": pa.array(stamps, pa.int64()), "\0present": [True] * len(stamps)})
    return Part.of(version, rows)


def followed(*parts: Part) -> list[int]:
    """Value schemas in the order in which the table follows them."""
    return [version.version & 0xFFFF for version in Batch(NAME, parts, 9).followed(0)]


def test_rows_from_before_the_newest_schema_bring_no_column_back() -> None:
    """Their commit ts show that they lie before all rows of it: what only they have was dropped."""
    assert followed(part(2, 5, 6), part(3, 7)) == [3]


def test_rows_of_an_older_schema_behind_the_newest_are_followed_after_it() -> None:
    """The table returned to that schema: its id is lower, but its rows are later."""
    assert followed(part(2, 5), part(3, 7), part(2, 8)) == [3, 2]


def test_rows_without_a_commit_ts_may_be_of_a_schema_that_came_back() -> None:
    """Nothing shows that they are not, and a column too many loses no value."""
    assert followed(part(2, 0), part(3, 0)) == [3, 2]
