"""A batch is staged from values alone: no table, and no JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from applier.changefeed.change_batch import ChangeBatch, KeylessBatch
from applier.config.table_layout import ROW_IDS
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.write.file_groups import groups
from applier.sink.write.file_index import FileIndex, read_index
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.stage import Stage, StagedBatch, stage_where
from tests.builders import added

COLUMNS: dict[str, Any] = {"id": pa.int64(), "v": pa.int32()}
SCHEMA = TableSchema.parse(schema_json(pa.schema(COLUMNS), ["id"]))
STORAGE = LocalStorage()


def rows(**columns: list[int | None]) -> pa.Table:
    """Some columns of some rows."""
    return pa.table({name: pa.array(values, COLUMNS[name]) for name, values in columns.items()})


def begun(folder: Path, columns: int) -> tuple[FileLayout, FileIndex]:
    """A table of two rows, indexed by its first columns."""
    layout = FileLayout(
        "shop.t", str(folder), SCHEMA, {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}, {}, 3
    )
    held = pa.Table.from_arrays(rows(id=[1, 2], v=[10, 20]).columns, schema=SCHEMA.arrow)
    files = FileWriter(layout, STORAGE).stage(held, ["id"])
    return layout, read_index("shop.t", 1, SCHEMA.fields[:columns], lambda *_: files)


def removed(staged: StagedBatch) -> list[tuple[str, list[int]]]:
    """Positions that go from each data file."""
    return [(path, list(dead)) for path, dead in staged.living.items()]


@pytest.mark.parametrize(("exact", "missing"), [(True, 1), (False, 0)])
def test_a_batch_is_new_files_and_positions_of_old_rows(tmp_path: Path, exact: bool, missing: int) -> None:
    """A column that no image holds keeps its value; a key to delete that is not there is missing."""
    layout, index = begun(tmp_path, 1)
    batch = ChangeBatch(rows(id=[2, 3]), pa.array([False, True]), rows(id=[9]))

    staged = Stage(layout, index, STORAGE, exact=exact, needs_rows=True).run(batch)

    (path,) = index.files
    assert removed(staged) == [(path, [1])]
    assert (added(staged), staged.missing) == (2, missing)
    assert [pq.read_table(file.path).to_pylist() for file in staged.rows or ()] == [
        [{"id": 2, "v": 20}, {"id": 3, "v": None}]
    ]


def test_rows_of_an_earlier_attempt_stay_good(tmp_path: Path) -> None:
    """Only the positions are those of the new head."""
    layout, index = begun(tmp_path, 1)
    batch = ChangeBatch(rows(id=[2], v=[5]), pa.array([False]), rows(id=[1]))

    staged = Stage(layout, index, STORAGE, exact=True, needs_rows=False).run(batch)

    assert staged.rows is None
    assert removed(staged) == [(*index.files, [0, 1])]


@pytest.mark.parametrize("properties", [{}, {ROW_IDS: "keep"}], ids=["a column", "ids"])
def test_what_rows_of_an_earlier_attempt_took_over_does_not(tmp_path: Path, properties: dict[str, str]) -> None:
    """The row that they replaced there has another key at the new head, and keeps its id and its values."""
    layout, index = begun(tmp_path, 1)
    columns: dict[str, list[int | None]] = {"v": [5]} if properties else {}
    batch = ChangeBatch(rows(id=[3], **columns), pa.array([False]), rows(id=[]))

    staged = Stage(replace(layout, properties=properties), index, STORAGE, exact=True, needs_rows=False).run(batch)

    assert removed(staged) == []
    assert [pq.read_table(file.path).to_pylist() for file in staged.rows or ()] == [
        [{"id": 3, "v": 5 if properties else None}]
    ]


def test_a_bag_loses_one_row_for_each_that_is_deleted(tmp_path: Path) -> None:
    """Rows without a key are found by all their values."""
    layout, index = begun(tmp_path, 2)
    batch = KeylessBatch(rows(id=[4], v=[4]), rows(id=[1, 1], v=[10, 11]))

    staged = Stage(layout, index, STORAGE, exact=True, needs_rows=True).run(batch)

    assert removed(staged) == [(*index.files, [0])]
    assert (added(staged), staged.missing) == (1, 1)


def test_rows_that_a_predicate_names_are_removed(tmp_path: Path) -> None:
    """No row is written, and none is looked up by key."""
    _, index = begun(tmp_path, 1)

    staged = stage_where(
        lambda held: pc.greater(held["id"], pa.scalar(1)), index.columns, STORAGE, groups(index.files.values())[0]
    )

    assert removed(staged) == [(*index.files, [1])]
    assert staged.rows is None


def test_parts_of_a_batch_sum_up_to_it(tmp_path: Path) -> None:
    """Also where only one of them had rows to write, and keys that may be new hide others."""
    layout, index = begun(tmp_path, 1)
    stage = Stage(layout, index, STORAGE, exact=True, needs_rows=True)
    none, bools = rows(id=[], v=[]), pa.array([], pa.bool_())
    first = stage.run(ChangeBatch(rows(id=[2], v=[5]), pa.array([False]), rows(id=[9])))
    second = stage.run(ChangeBatch(none, bools, rows(id=[1]), may_be_new=1))

    staged = StagedBatch.sum([first, second])

    assert removed(staged) == [(*index.files, [0, 1])]
    assert (added(staged), staged.missing, len(staged.rows or ())) == (1, 0, 1)
