from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.errors import TableMismatch, TransientError
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import FIELD_ID, Field, TableSchema, schema_json
from applier.sink.iceberg.files import DataFile, parse_plan
from applier.sink.write import lookup
from applier.sink.write.file_index import FileIndex, IndexedFile, read_index
from applier.sink.write.file_writer import conform, row_groups, write_files
from applier.sink.write.key_cache import FILE_ROWS
from applier.sink.write.lookup import positions_of, remember
from applier.sink.write.parquet import ParquetSource

STORAGE = LocalStorage()
LONG = Field(1, "id", "long", pa.int64(), required=True)
TEXT = Field(2, "name", "string", pa.string(), required=True)


def written(folder: Path, rows: pa.Table, **options: Any) -> IndexedFile:
    """A data file without bounds."""
    folder.mkdir(exist_ok=True)
    path = str(folder / f"{len(list(folder.iterdir()))}.parquet")
    pq.write_table(rows, path, **options)
    return IndexedFile(DataFile(path, "parquet", rows.num_rows, 1), (None,), (None,), None)


def numbered(values: dict[str, Any], kinds: list[pa.DataType]) -> pa.Table:
    """Columns with field ids 1, 2, …."""
    fields: list[Any] = [
        pa.field(name, kind, metadata={FIELD_ID: str(index).encode()})
        for index, (name, kind) in enumerate(zip(values, kinds, strict=True), 1)
    ]
    return pa.table(values, schema=pa.schema(fields))


def positions(found: dict[str, Any]) -> list[list[int]]:
    """Positions by file, in order of the files' names."""
    return [found[path].tolist() for path in sorted(found)]


@pytest.mark.parametrize("group_rows", [1, 100, 10**6])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_version_of_a_key_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, threads: int
) -> None:
    """Positions are right whatever the split into joins, row groups and threads."""
    values = np.random.default_rng(1).integers(0, 500, (4, 300))
    files = [written(tmp_path, numbered({"id": part}, [pa.int64()]), row_group_size=70) for part in values]
    keys = pa.table({"id": pa.array([3, 77, 200, 499, 10**6])})

    monkeypatch.setattr(lookup, "GROUP_ROWS", group_rows)

    found = positions_of(files, keys, [LONG], STORAGE, threads)

    expected = [np.flatnonzero(np.isin(part, keys["id"].to_numpy())).tolist() for part in values]
    assert positions(found) == [part for part in expected if part]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us", "UTC"), pa.float64()])
@pytest.mark.parametrize("rows", [FILE_ROWS, FILE_ROWS + 1])
def test_a_second_search_finds_the_same_without_the_file(tmp_path: Path, kind: pa.DataType, rows: int) -> None:
    """Keys stay in memory: those of large files where they are numbers that ascend."""
    field = Field(1, "id", str(kind), kind, required=True)

    def ids(values: Any) -> pa.Table:
        whole = pa.array(np.asarray(values, np.int32 if kind.bit_width == 32 else np.int64))
        return numbered({"id": whole.cast(kind)}, [kind])

    file = written(tmp_path, ids(np.arange(rows) * 3), row_group_size=9_000)
    keys = [ids([0, 4, 27_000, rows * 3 - 3, rows * 3]), ids(np.arange(rows * 2))]
    expected = [[0, 9_000, rows - 1], list(range((rows * 2 + 2) // 3))]

    assert [positions(positions_of([file], key, [field], STORAGE))[0] for key in keys] == expected
    Path(file.file.path).unlink()
    if pa.types.is_floating(kind) and rows > FILE_ROWS:
        with pytest.raises(TransientError, match="Cannot read"):
            positions_of([file], keys[0], [field], STORAGE)
    else:
        assert [positions(positions_of([file], key, [field], STORAGE))[0] for key in keys] == expected


def test_keys_in_any_order_are_sorted_once_a_file_is_looked_through_again(tmp_path: Path) -> None:
    """The third search needs no file; a key that is there twice is joined each time."""
    values = np.random.default_rng(2).permutation(FILE_ROWS + 1)
    file = written(tmp_path, numbered({"id": values}, [pa.int64()]), row_group_size=9_000)
    twice = written(tmp_path, numbered({"id": np.append(values, values[0])}, [pa.int64()]))
    keys = pa.table({"id": [3, 18_500, FILE_ROWS, 10**6]})
    expected = np.flatnonzero(np.isin(values, keys["id"].to_numpy())).tolist()

    for _ in range(3):
        assert positions(positions_of([file], keys, [LONG], STORAGE)) == [expected]
        found = positions_of([twice], pa.table({"id": [values[0]]}), [LONG], STORAGE)
        assert positions(found) == [[0, FILE_ROWS + 1]]
    Path(file.file.path).unlink()
    assert positions(positions_of([file], keys, [LONG], STORAGE)) == [expected]


def test_a_row_group_is_read_when_a_key_may_be_in_it(tmp_path: Path) -> None:
    """What was no candidate in one search is in the next."""
    file = written(tmp_path, numbered({"id": list(range(300))}, [pa.int64()]), row_group_size=100)

    found = [positions_of([file], pa.table({"id": [key, 10**6]}), [LONG], STORAGE) for key in (250, 5, 150, 250)]
    assert [positions(each) for each in found] == [[[250]], [[5]], [[150]], [[250]]]


def test_ascending_and_other_row_groups_of_a_file_count_alike(tmp_path: Path) -> None:
    """A file that another writer made may hold a key twice, NULL, and rows in any order."""
    values = [1, 2, 3, 9, 3, 3, 4, None, 5]
    file = written(tmp_path, numbered({"id": values}, [pa.int64()]), row_group_size=3)

    for _ in range(2):
        assert positions(positions_of([file], pa.table({"id": [3, 5, 3]}), [LONG], STORAGE)) == [[2, 4, 5, 8]]


def test_keys_of_a_file_just_written_are_known(tmp_path: Path) -> None:
    """In the table's types, as a slice, and by more than one column."""
    rows = numbered({"id": [1, 1, 2], "name": ["a", "b", "a"]}, [pa.int64(), pa.string()])
    path = str(tmp_path / "never written")
    file = IndexedFile(DataFile(path, "parquet", 3, 1), (None,), (None,), None)
    remember(path, [LONG, TEXT], pa.concat_tables([rows, rows]).slice(3, 3))

    keys = pa.table({"id": [1, 2], "name": ["b", "b"]})
    assert positions(positions_of([file], keys, [LONG, TEXT], STORAGE)) == [[1]]


def test_all_columns_of_a_key_must_match(tmp_path: Path) -> None:
    """A composite key is one key: parts of it from different keys find nothing."""
    rows = numbered({"id": [1, 1, 2], "name": ["a", "b", "a"]}, [pa.int64(), pa.string()])
    keys = pa.table({"id": [1, 2], "name": ["b", "b"]})

    assert positions(positions_of([written(tmp_path, rows)], keys, [LONG, TEXT], STORAGE)) == [[1]]


def test_old_names_and_types_of_a_key_column_count(tmp_path: Path) -> None:
    """A file from before the key was renamed and widened is read by field id; one without ids by name."""
    old = written(tmp_path, numbered({"old name": [5, 7]}, [pa.int32()]))
    foreign = written(tmp_path, pa.table({"x": [0], "id": [7]}))
    keys = pa.table({"id": pa.array([7])})

    assert positions(positions_of([old, foreign], keys, [LONG], STORAGE)) == [[1], [0]]


def test_key_column_after_a_list_column_is_read(tmp_path: Path) -> None:
    """Columns are counted by their leaves: a list takes one, a struct several."""
    members: dict[str, Any] = {"a": pa.int32(), "b": pa.int32()}
    kinds: list[pa.DataType] = [pa.int64(), pa.list_(pa.float32()), pa.struct(members)]
    values = {"x": [1], "l": [[1.0]], "s": [{"a": 1, "b": 2}], "id": [9]}
    rows = numbered(values, [*kinds, pa.int64()])

    field = Field(4, "id", "long", pa.int64(), required=True)
    assert positions(positions_of([written(tmp_path, rows)], pa.table({"id": [9]}), [field], STORAGE)) == [[0]]


def test_negative_zero_is_zero(tmp_path: Path) -> None:
    """MySQL knows one zero, so a key of -0.0 finds the row of 0.0."""
    field = Field(1, "id", "double", pa.float64(), required=True)
    file = written(tmp_path, numbered({"id": [1.0, 0.0]}, [pa.float64()]))

    assert positions(positions_of([file], pa.table({"id": [-0.0]}), [field], STORAGE)) == [[1]]


def test_column_that_a_file_does_not_have_reads_its_default(tmp_path: Path) -> None:
    """Rows from before a column existed hold its initial default."""
    file = written(tmp_path, numbered({"id": [1, 2]}, [pa.int64()]))
    added = Field(9, "new", "decimal(9, 2)", pa.decimal128(9, 2), required=False, initial_default="1.50")
    empty = Field(8, "none", "string", pa.string(), required=False)

    with ParquetSource(STORAGE, file.file.path) as source:
        rows = source.take(np.array([1]), [LONG, added, empty])

    assert [str(value) for value in rows.to_pylist()[0].values()] == ["2", "1.50", "None"]


def test_unfit_and_damaged_files_are_named(tmp_path: Path) -> None:
    """A column that cannot be read as the table's type is a mismatch; a broken or missing file may be tried again."""
    file = written(tmp_path, numbered({"id": ["x"]}, [pa.string()]))
    (tmp_path / "broken").write_bytes(b"PAR1nothing")

    with pytest.raises(TableMismatch, match="cannot be read as long"), ParquetSource(STORAGE, file.file.path) as source:
        source.read(0, [LONG])
    for path in ("broken", "missing"):
        with pytest.raises(TransientError, match=path):
            ParquetSource(STORAGE, str(tmp_path / path))


def test_plan_prunes_by_bounds_and_follows_commits() -> None:
    """Only files that may hold a key are looked at, and a file of an own commit is known without planning again."""
    scanned = parse_plan({"file-scan-tasks": [_task("a", 0, 9), _task("b", 10, 19), {"data-file": _bare("c")}]})
    index = read_index("t", 1, [LONG], lambda _snapshot, _columns: scanned)

    assert [found.file.path for found in index.candidates(pa.table({"id": [12, 30]}))] == ["b", "c"]
    index.advance(2, [parse_plan({"file-scan-tasks": [_task("d", 30, 31)]})[0]], {})
    assert [found.file.path for found in index.candidates(pa.table({"id": [12, 30]}))] == ["b", "c", "d"]
    assert (index.snapshot_id, index.rows) == (2, 40)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"data-file": {"file-format": "orc"}}, "data file in orc format"),
        ({"delete-file-references": [0]}, "holds equality deletes"),
    ],
)
def test_plan_refuses_what_cannot_be_told_by_position(task: dict[str, Any], said: str) -> None:
    """Equality deletes and other formats stop the table, with the way out."""
    delete = {"content": "equality-deletes", "file-path": "e", "file-format": "parquet"}
    whole = {**task, "data-file": {**_bare("a"), **task.get("data-file", {})}}

    with pytest.raises(TableMismatch, match=f"{said}.*rewrite_data_files"):
        read_index("t", 1, [LONG], lambda _s, _c: parse_plan({"delete-files": [delete], "file-scan-tasks": [whole]}))


def test_empty_plan_and_empty_keys_find_nothing(tmp_path: Path) -> None:
    """A table without a snapshot and a batch without keys need no look-up."""
    assert FileIndex(None, (LONG,)).candidates(pa.table({"id": [1]})) == []
    assert positions_of([], pa.table({"id": [1]}), [LONG], STORAGE) == {}
    schema = TableSchema.parse(schema_json(pa.schema({"id": pa.int64()})))
    rows = conform("t", pa.table({"id": pa.array([], pa.int64())}), schema)
    assert write_files(row_groups(rows), rows.schema, STORAGE, lambda name: str(tmp_path / name)) == []


def _bare(path: str) -> dict[str, Any]:
    return {"spec-id": 0, "file-path": path, "file-format": "parquet", "record-count": 10, "file-size-in-bytes": 1}


def _task(path: str, lower: int, upper: int) -> dict[str, Any]:
    bounds = {
        name: {"keys": [1], "values": [value.to_bytes(8, "little").hex()]}
        for name, value in (("lower-bounds", lower), ("upper-bounds", upper))
    }
    return {"data-file": {**_bare(path), **bounds}}
