from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.config.table_layout import SortField
from applier.errors import TableMismatch, TransientError, ValueRefused
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import FIELD_ID, TableSchema, schema_json
from applier.sink.write import file_writer


def table(*columns: tuple[str, pa.DataType], key: tuple[str, ...] = ()) -> TableSchema:
    """A table's schema."""
    fields: list[Any] = [pa.field(name, kind) for name, kind in columns]
    return TableSchema.parse(schema_json(pa.schema(fields), key))


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (pa.int32(), pa.int64(), 7, 7),
        (pa.int64(), pa.int32(), 7, 7),
        (pa.int32(), pa.decimal128(5, 0), 7, Decimal(7)),
        (pa.decimal128(20, 0), pa.int64(), Decimal(2**62), 2**62),
        (pa.decimal128(9, 2), pa.decimal128(12, 4), Decimal("1.25"), Decimal("1.2500")),
        (pa.string(), pa.decimal128(20, 2), "-12.50", Decimal("-12.50")),
        (pa.decimal128(9, 2), pa.string(), Decimal("1.50"), "1.50"),
        (pa.float32(), pa.float64(), 0.5, 0.5),
        (pa.bool_(), pa.int32(), True, 1),
        (pa.list_(pa.float32()), pa.list_(pa.float64()), [0.5], [0.5]),
    ],
)
def test_values_that_fit_are_cast_exactly(source: pa.DataType, target: pa.DataType, value: Any, expected: Any) -> None:
    """A batch in the upstream's types lands in a table whose columns are as wide or wider."""
    found = file_writer.conform("t", pa.table({"c": pa.array([value, None], source)}), table(("c", target)))

    assert found["c"].to_pylist() == [expected, None]
    assert found.schema.field("c").metadata == {FIELD_ID: b"1"}


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (pa.int64(), pa.int32(), 2**31),
        (pa.decimal128(9, 2), pa.decimal128(9, 1), Decimal("1.25")),
        (pa.int32(), pa.decimal128(3, 0), 1000),
        (pa.string(), pa.decimal128(3, 0), "x"),
        (pa.int64(), pa.float64(), 2**60 + 1),
    ],
)
def test_value_that_does_not_fit_is_refused(source: pa.DataType, target: pa.DataType, value: Any) -> None:
    """Nothing is rounded, wrapped or cut: the refusal names table and column, not the value."""
    with pytest.raises(ValueRefused, match="A value for column c of table t does not fit") as refused:
        file_writer.conform("t", pa.table({"c": pa.array([value], source)}), table(("c", target)))

    assert str(value) not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.string(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.float64(), pa.float32()),
        (pa.binary(), pa.string()),
        (pa.float32(), pa.int32()),
    ],
)
def test_column_of_another_kind_is_a_mismatch(source: pa.DataType, target: pa.DataType) -> None:
    """A column whose type can never hold the upstream's values stops the table before any value is looked at."""
    with pytest.raises(TableMismatch, match="Column c of table t is .* cannot hold upstream values"):
        file_writer.conform("t", pa.table({"c": pa.array([], source)}), table(("c", target)))


def test_columns_are_matched_by_name() -> None:
    """Order does not matter, a column without image is NULL, and one without a place is named."""
    schema = table(("a", pa.int32()), ("b", pa.int32()), ("id", pa.int32()), key=("id",))

    found = file_writer.conform("t", pa.table({"id": [1], "a": [2]}), schema)

    assert found.to_pylist() == [{"a": 2, "b": None, "id": 1}]
    with pytest.raises(TableMismatch, match="no column z, .*Columns are: a, b, id"):
        file_writer.conform("t", pa.table({"z": [1]}), schema)
    with pytest.raises(ValueRefused, match="Column id of table t is required but 1 row has"):
        file_writer.conform("t", pa.table({"a": [1]}), schema)


def test_keys_must_be_there_in_the_right_type() -> None:
    """A key column that is missing or of another kind is a mismatch, not a key that is never found."""
    fields = table(("id", pa.int64())).fields

    assert file_writer.conform_keys("t", pa.table({"id": pa.array([1], pa.int32())}), fields)["id"].type == pa.int64()
    with pytest.raises(TableMismatch, match="no key column id"):
        file_writer.conform_keys("t", pa.table({"x": [1]}), fields)
    with pytest.raises(TableMismatch, match="Key column id of table t is long") as refused:
        file_writer.conform_keys("t", pa.table({"id": ["1"]}), fields)
    assert "applier load -c FILE" in refused.value.hint


def test_files_are_cut_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch beyond the target size becomes several files, in order, each with field ids and statistics."""
    monkeypatch.setattr(file_writer, "GROUP_BYTES", 4000)
    schema = table(("a.b", pa.int64()), ("1st", pa.decimal128(9, 2)))
    values = pa.table({"a.b": list(range(2000)), "1st": pa.array([Decimal(1)] * 2000)})
    rows = file_writer.sort(file_writer.conform("t", values, schema), [SortField("a.b")])

    written = file_writer.write_files(
        file_writer.row_groups(rows), rows.schema, LocalStorage(), lambda name: str(tmp_path / "new" / name), 3000
    )

    assert [Path(file.path).stat().st_size for file in written] == [file.size for file in written]
    files = [pq.ParquetFile(file.path) for file in written]
    assert len(files) > 2
    assert [row for file in files for row in file.read().column(0).to_pylist()] == list(range(2000))
    column: Any = files[0].metadata.row_group(0).column(0)
    assert (column.path_in_schema, column.statistics.min, column.compression) == ("a_x2Eb", 0, "ZSTD")
    assert files[0].schema_arrow.field("_1st").metadata == {FIELD_ID: b"2"}
    for file in files:
        file.close()


def test_storage_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    """A file that cannot be written is reported by its location."""
    (tmp_path / "file").write_text("")
    rows = file_writer.conform("t", pa.table({"a": [1]}), table(("a", pa.int64())))

    with pytest.raises(TransientError, match="Cannot write"):
        file_writer.write_files(
            file_writer.row_groups(rows), rows.schema, LocalStorage(), lambda name: str(tmp_path / "file" / name)
        )
    with pytest.raises(TransientError, match="Cannot write /dev/full: No space left on device."):
        _written(rows, lambda name: "/dev/full")


def test_rows_are_sorted_as_the_order_of_the_table_says() -> None:
    """NULL comes first where a column ascends and last where it descends; equal rows keep their order."""
    values = pa.table({"a": [1, None, 2, 1, None], "b": [None, "x", "y", "z", "z"], "n": [0, 1, 2, 3, 4]})

    found = file_writer.sort(values, [SortField("a"), SortField("b", descending=True)])
    backwards = file_writer.sort(values, [SortField("a", descending=True)])

    assert found["n"].to_pylist() == [4, 1, 3, 0, 2]
    assert backwards["n"].to_pylist() == [2, 0, 3, 1, 4]


def _written(
    rows: pa.Table, locate: Callable[[str], str], target: int = file_writer.TARGET_BYTES
) -> list[file_writer.Written]:
    return file_writer.write_files(file_writer.row_groups(rows), rows.schema, LocalStorage(), locate, target)
