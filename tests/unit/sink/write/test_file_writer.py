"""Files are written from values alone: no table, and no JVM."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.errors import TableMismatch
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import ADDED_COLUMNS, TableSchema, schema_json
from applier.sink.write.file_writer import FileWriter, check_columns

COLUMNS: dict[str, Any] = {"id": pa.int64(), "day": pa.date32()}
SCHEMA = TableSchema.parse(schema_json(pa.schema(COLUMNS), ["id"]))
UNSORTED = {"order-id": 0, "fields": []}
BY_DAY = {"spec-id": 3, "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}]}
DESCENDING = {
    "order-id": 7,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}],
}


def writer(folder: Path, spec: dict[str, Any], order: dict[str, Any]) -> FileWriter:
    """A writer that has been in another process."""
    found = FileWriter(FileLayout("shop.t", str(folder), SCHEMA, spec, order, {}, 3), LocalStorage())
    copy: FileWriter = pickle.loads(pickle.dumps(found))  # noqa: S301 - it was written here
    return copy


def rows(*found: tuple[int, int]) -> pa.Table:
    """Rows of an id and a day."""
    ids, days = zip(*found, strict=True)
    return pa.Table.from_arrays([pa.array(ids, pa.int64()), pa.array(days, pa.date32())], schema=SCHEMA.arrow)


def test_rows_go_to_their_partitions_in_the_order_of_the_key(tmp_path: Path) -> None:
    """Each file says of itself what a commit has to know."""
    files = writer(tmp_path, BY_DAY, UNSORTED).stage(rows((3, 1), (2, 0), (1, 1)), ["id"])

    found = {file.partition[0]: pq.read_table(file.path)["id"].to_pylist() for file in files}
    assert found == {"1970-01-01": [2], "1970-01-02": [1, 3]}
    assert all(file.path.startswith(f"{tmp_path}/data/day={file.partition[0]}/") for file in files)
    assert {(file.records, file.spec_id, file.json["sort-order-id"]) for file in files} == {(1, 3, 0), (2, 3, 0)}


def test_the_sort_order_of_the_table_comes_before_the_key(tmp_path: Path) -> None:
    """The file is marked with the order that its rows are in."""
    (file,) = writer(tmp_path, {"spec-id": 0, "fields": []}, DESCENDING).stage(rows((1, 0), (2, 0)), ["id"])

    assert pq.read_table(file.path)["id"].to_pylist() == [2, 1]
    assert (file.partition, file.json["sort-order-id"]) == ([], 7)


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    """An empty file would be an orphan, or a file that every look-up opens."""
    assert writer(tmp_path, BY_DAY, UNSORTED).stage(SCHEMA.arrow.empty_table(), ["id"]) == []


def test_an_upstream_column_with_the_name_of_one_that_was_added_is_refused() -> None:
    """As in a table that is adopted with its columns: a column of another type is no such one."""
    for kind in (pa.string(), pa.int32()):
        columns = pa.schema([*SCHEMA.arrow, pa.field("_op", kind)])
        schema = TableSchema.parse(schema_json(columns, ["id"]), {ADDED_COLUMNS: "_op"})
        if kind == pa.string():
            with pytest.raises(
                TableMismatch, match="Column _op of table t has the name of a column that applier added"
            ):
                check_columns("t", columns, schema)
        else:
            check_columns("t", columns, schema)
            assert [field.name for field in schema.upstream] == ["id", "day", "_op"]
