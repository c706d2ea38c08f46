"""Work on the files of a table, in groups by bytes: the same in this process and where only values come."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from applier.changefeed.table import ColumnType
from applier.runtime.places import Places
from applier.sink.evolve.casts.cast import CastRefused
from applier.sink.evolve.move_rows import stage_rows
from applier.sink.evolve.rewrite import LiveRows, ValueSource, rewrite
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.files import DataFile, DeleteFile, JavaStorage
from applier.sink.iceberg.java import FileTasks
from applier.sink.write import file_groups, file_writer, merge
from applier.sink.write.deletes import load_deleted, puffin, stage_vectors
from applier.sink.write.file_groups import FileRows, bytes_of, groups, run_on_groups
from applier.sink.write.file_index import IndexedFile, read_index
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.stage import stage_where

STORAGE = LocalStorage()
COLUMNS: dict[str, Any] = {"id": pa.int64(), "v": pa.string()}
SCHEMA = TableSchema.parse(schema_json(pa.schema(COLUMNS), ["id"]))
NUMBERS = TableSchema.parse(schema_json(pa.schema({**COLUMNS, "v": pa.int64()}), ["id"]))
TO_NUMBER = ConvertField(
    "v", ColumnType("varchar", length=9), ColumnType("bigint"), pa.string(), pa.int64(), holds_null=True
)
SOURCES = [
    ValueSource(SCHEMA.fields[0], SCHEMA.fields[0]),
    ValueSource(NUMBERS.fields[1], SCHEMA.fields[1], TO_NUMBER),
]


class Tasks:
    """Does work as other processes would: nothing but bytes comes to them."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, action: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """See `Each`."""
        self.said.append(action)
        there: Any = pickle.loads(pickle.dumps(work))  # noqa: S301 - it was written here
        return [pickle.loads(pickle.dumps(there(pickle.loads(pickle.dumps(part))))) for part in parts]  # noqa: S301


class Lake:
    """A table of files of five rows; of each file the second row is dead.

    Args:
        folder: Where it is.
        tasks: What does work elsewhere, which no work is too small for.
        values: The text of each row.
    """

    def __init__(self, folder: Path, tasks: Tasks | None, values: Sequence[str]) -> None:
        self.folder = folder
        self.tasks = tasks
        self.properties = dict[str, str]()
        self.order = list[dict[str, Any]]()
        self.places = Places(has_tasks=True, file_bytes=-1)
        self.files = list[DataFile]()
        for start in range(0, len(values), 5):
            ids = list(range(start, start + 5))
            rows = pa.Table.from_arrays(
                [pa.array(ids), pa.array(values[start : start + 5], pa.string())], schema=SCHEMA.arrow
            )
            (file,) = FileWriter(self.layout(SCHEMA), STORAGE).stage(rows, ["id"])
            self.files.append(self._worn(file, start))

    def _worn(self, file: DataFile, start: int) -> DataFile:
        body, blobs = puffin({file.path: BitMap64([1])})
        (self.folder / f"{start}.puffin").write_bytes(body)
        vector = DeleteFile.vector(f"{self.folder}/{start}.puffin", len(body), blobs[file.path], 1, file)
        return DataFile(file.path, file.format, file.records, file.size, 0, (), {}, {}, (vector,), start, 7)

    def layout(self, schema: TableSchema) -> FileLayout:
        """How its files are written once it has a schema."""
        spec = {"spec-id": 0, "fields": []}
        order = {"order-id": len(self.order), "fields": [{**part, "null-order": "nulls-last"} for part in self.order]}
        return FileLayout("shop.t", str(self.folder), schema, spec, order, self.properties, 3)

    def kill(self, numbers: Collection[int]) -> None:
        """Let the rows of these ids be dead as well."""
        dead = {index: [number % 5 for number in numbers if number // 5 == index] for index in range(len(self.files))}
        indexed = {each.file.path: each for each in self.indexed}
        hits = {self.files[index].path: BitMap64(positions) for index, positions in dead.items() if positions}
        deletes = stage_vectors(hits, indexed, STORAGE, lambda name: str(self.folder / name))
        self.files = [
            replace(file, deletes=deletes.state[file.path][0]) if file.path in hits else file for file in self.files
        ]

    def table(self, schema: TableSchema = SCHEMA) -> Any:
        """The table, as far as work on its rows looks at it."""
        return _Table(self, schema)

    @property
    def indexed(self) -> list[IndexedFile]:
        """Its files, with their dead rows."""
        found = list(read_index("shop.t", 1, (), lambda *_: self.files).files.values())
        load_deleted(found, STORAGE)
        return found


class _Table:
    snapshot_id = 1
    format_version = 3
    uuid = "u"

    def __init__(self, lake: Lake, schema: TableSchema) -> None:
        tasks = None if lake.tasks is None else FileTasks(lake.tasks, lake.places)
        self.java = SimpleNamespace(tasks=tasks)
        self.location, self.storage_properties = str(lake.folder), dict[str, str]()
        self.file_layout, self.schema = lake.layout(schema), schema
        self.scan = lambda *_: lake.files

    def __str__(self) -> str:
        return "shop.t"


@pytest.fixture(params=["here", "in tasks"])
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tasks | None:
    """Where work is done: two files a group at most, and no work is too small for a task."""
    monkeypatch.setattr(file_groups, "GROUP_BYTES", 2000)
    return Tasks() if request.param == "in tasks" else None


def held(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    """The rows of some files, in order of `id`."""
    return sorted((row for file in files for row in pq.read_table(file.path).to_pylist()), key=lambda row: row["id"])


def test_rows_are_written_anew_without_dead_ones(tmp_path: Path, tasks: Tasks | None) -> None:
    """Each living row once, in the new type, in a file for each group."""
    lake = Lake(tmp_path, tasks, list(map(str, range(30))))
    shown = list[int]()

    files = rewrite(LiveRows(lake.table(), 1), SOURCES, lake.table(NUMBERS), shown.append)

    assert held(files) == [{"id": number, "v": number} for number in range(30) if number % 5 != 1]
    assert len({file.path for file in files}) == len(files) == len(groups(lake.indexed)) > 1
    assert shown == sorted(shown)
    assert shown[-1] == 24
    if tasks is not None:
        assert tasks.said == ["write anew the rows of table shop.t"]


def test_a_value_that_cannot_be_cast_refuses_the_rewrite(tmp_path: Path, tasks: Tasks | None) -> None:
    """By the column, wherever the value is met; no value is named."""
    lake = Lake(tmp_path, tasks, [*map(str, range(9)), "secret"])

    with pytest.raises(CastRefused, match="^column v: a value does not fit bigint") as refused:
        rewrite(LiveRows(lake.table(), 1), SOURCES, lake.table(NUMBERS), lambda _: None)

    assert "secret" not in str(refused.value)


def is_high(rows: pa.Table) -> Any:
    """Whether rows are behind the first seven."""
    return pc.greater(rows["id"], pa.scalar(6))


def test_rows_move_and_go_by_a_predicate(tmp_path: Path, tasks: Tasks | None) -> None:
    """It is asked about living rows only, a group at a time."""
    lake = Lake(tmp_path, tasks, ["x"] * 15)

    moved = stage_rows(lake.table(), lake.table(), 1, is_high)
    find = partial(_gone, STORAGE)
    found = list(run_on_groups(lake.table(), "look for rows in", find, groups(lake.indexed), lake.indexed, STORAGE))

    assert [row["id"] for row in held(moved)] == [7, 8, 9, 10, 12, 13, 14]
    gone = {path: list(positions) for each in found for path, positions in each.items()}
    assert list(gone.values()) == [[2, 3, 4], [0, 2, 3, 4]]


def _gone(storage: LocalStorage, group: Sequence[FileRows]) -> dict[str, BitMap64]:
    return stage_where(is_high, SCHEMA.fields[:1], storage, group).living


def test_what_all_rows_have_is_asked_of_each_group(tmp_path: Path, tasks: Tasks | None) -> None:
    """A value of any file that changes is found."""
    same = ConvertField(
        "v", ColumnType("varchar", length=9), ColumnType("char", length=9), pa.string(), pa.string(), holds_null=True
    )
    lake, spaced = Lake(tmp_path / "a", tasks, ["x"] * 10), Lake(tmp_path / "b", tasks, [*["x"] * 9, "x "])

    assert not LiveRows(lake.table(), 1).are_changed(SCHEMA.fields[1], same)
    assert LiveRows(spaced.table(), 1).are_changed(SCHEMA.fields[1], same)


def test_merged_files_keep_the_identity_of_rows(tmp_path: Path, tasks: Tasks | None) -> None:
    """The row ids and the sequence number of the files that are gone."""
    lake = Lake(tmp_path, tasks, ["x"] * 20)
    index = read_index("shop.t", 1, (), lambda *_: lake.files)
    files = list(index.files.values())

    merged = merge.stage(lake.table(), STORAGE, [files[:2], files[2:]])

    assert merged is not None
    change = merged.change(lake.table(), STORAGE, index)
    assert change is not None
    assert [file.records for file in change.rows] == [8, 8]
    assert [(row["id"], row["_row_id"], row["_last_updated_sequence_number"]) for row in held(change.rows)] == [
        (number, number, 7) for number in range(20) if number % 5 != 1
    ]
    assert len(change.rewritten) == len(change.replaced) == 4


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_die_while_files_are_merged_are_dead_in_the_new_ones(
    tmp_path: Path, tasks: Tasks | None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """However their order changes, and into however many files they go; so are those of a file that is only cut."""
    draw = random.Random(seed)
    monkeypatch.setattr(merge, "MOST_ROWS", draw.choice([3, 100]))
    monkeypatch.setattr(file_writer, "GROUP_BYTES", draw.choice([20, 1000]))
    lake = Lake(tmp_path, tasks, ["x"] * 30)
    lake.properties = draw.choice([{}, {"write.target-file-size-bytes": "1"}])
    lake.order = draw.choice([[], [{"source-id": 1, "transform": "identity", "direction": "desc"}]])
    lake.kill(draw.sample(range(30), 4))
    before = lake.indexed
    merged = merge.stage(lake.table(), STORAGE, [before[:3], before[3:4], before[4:5]])
    assert merged is not None
    dead = draw.sample(range(30), draw.randrange(1, 12))
    lake.kill(dead)
    living = {file.path: set(range(start, start + 5)) for start, file in zip(range(0, 30, 5), lake.files, strict=True)}
    for indexed, ids in zip(lake.indexed, living.values(), strict=True):
        ids -= {min(ids) + position for position in indexed.deleted or ()}

    change = merged.change(lake.table(), STORAGE, read_index("shop.t", 2, (), lambda *_: lake.files))

    assert change is not None
    deletes = {str(delete.json["referenced-data-file"]): (delete,) for delete in change.deletes}
    new = [replace(file, deletes=deletes.get(file.path, ())) for file in change.rows]
    index = list(read_index("shop.t", 3, (), lambda *_: new).files.values())
    load_deleted(index, STORAGE)
    found = [row["id"] for each in index for row in _living(each)]
    gone = [file.path for file in change.rewritten]
    assert sorted(found) == sorted(number for path in gone for number in living[path])
    assert len(gone) == 5


def _living(indexed: IndexedFile) -> list[dict[str, Any]]:
    rows = pq.read_table(indexed.file.path).to_pylist()
    return [row for position, row in enumerate(rows) if position not in (indexed.deleted or ())]


def test_a_table_that_was_set_back_takes_no_merged_files(tmp_path: Path) -> None:
    """A row that was dead and lives again is not in them; nor is what a file has that is gone."""
    lake = Lake(tmp_path, None, ["x"] * 20)
    earlier = lake.files
    lake.kill([3])
    merged = merge.stage(lake.table(), STORAGE, [lake.indexed[:3]])
    assert merged is not None

    def change(files: list[DataFile]) -> object:
        return merged.change(lake.table(), STORAGE, read_index("shop.t", 2, (), lambda *_: files))

    assert change(earlier) is None
    assert change(lake.files[1:]) is None
    assert change(lake.files) is not None


def test_large_files_are_cut_between_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is in one group, however its file is cut, and the groups keep the order."""
    monkeypatch.setattr("applier.sink.write.file_writer.GROUP_BYTES", 100)
    rows = pa.Table.from_arrays([pa.array(range(100)), pa.array(["x"] * 100)], schema=SCHEMA.arrow)
    layout = FileLayout(
        "shop.t", str(tmp_path), SCHEMA, {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}, {}, 3
    )
    (file,) = FileWriter(layout, STORAGE).stage(rows, ["id"])
    assert pq.ParquetFile(file.path).num_row_groups > 5
    monkeypatch.setattr(file_groups, "GROUP_BYTES", file.size // 3)
    indexed = IndexedFile(file, (), (), BitMap64(range(0, 100, 2)))

    found = groups([indexed])

    assert len(found) > 2
    read = [part for group in found for each in group for part in each.living(STORAGE, SCHEMA.fields[:1])]
    assert [number for positions, _ in read for number in positions.tolist()] == list(range(1, 100, 2))
    assert [number for _, part in read for number in part["id"].to_pylist()] == list(range(1, 100, 2))


def test_files_of_fewer_rows_than_parts_are_cut_all_the_same() -> None:
    """A row may have more bytes than a group, and a file that another writer has added may have no row."""
    empty, large, small = (
        IndexedFile(DataFile(path, "parquet", records, size), (), (), None)
        for path, records, size in [("e", 0, 1_000), ("l", 2, 5 * file_groups.GROUP_BYTES), ("s", 1, 1_000)]
    )

    found = groups([empty, large, small])

    told = [[(rows.file.file.path, rows.first, rows.end) for rows in group] for group in found]
    assert told == [[("l", 0, 1)], [("l", 1, 2)], [("s", 0, 1)]]
    assert groups([empty]) == []


def test_small_files_and_what_java_alone_reaches_stay_here(tmp_path: Path) -> None:
    """A job costs more than a few megabytes, and a task has no JVM to ask."""
    tasks = Tasks()
    lake = Lake(tmp_path, tasks, ["x"] * 10)
    lake.places = Places(has_tasks=True)
    small, large = lake.indexed, [IndexedFile(DataFile("x", "parquet", 1, 1 << 30), (), (), None)]
    java = JavaStorage(SimpleNamespace(io=lambda: None))
    assert bytes_of(small) < Places().file_bytes

    assert list(run_on_groups(lake.table(), "see", str, [1], small, STORAGE)) == ["1"]
    assert list(run_on_groups(lake.table(), "see", str, [2], large, STORAGE, java)) == ["2"]
    assert tasks.said == []
    assert list(run_on_groups(lake.table(), "see", str, [3], large, STORAGE)) == ["3"]
    assert tasks.said == ["see table shop.t"]
