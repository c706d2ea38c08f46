"""A task of a load writes a file of an export from values alone."""

from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import File
from applier.decode.dump.part_reader import PartReader
from applier.errors import OutsideRefused, ValueRefused
from applier.pipeline.load import spark
from applier.pipeline.load.generated import Generated
from applier.pipeline.load.key_order import KeyRange
from applier.pipeline.load.spark import LoadTask, Staged, stage_files
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.write.file_writer import FileWriter
from tests.builders import version

VERSION = version(("id", "bigint"), ("v", "int"), name=TableName("shop", "t"), key=("id",))
SCHEMA = TableSchema.parse(schema_json(pa.schema({"id": pa.int64(), "v": pa.int32()}), ["id"]))
SPEC = {"spec-id": 2, "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "truncate[10]"}]}


def staged_in_task(folder: Path, text: str) -> Staged:
    """What a task that has been in another process makes of a file of an export."""
    file = folder / "shop.t.0.csv"
    file.write_bytes(text.encode())
    layout = FileLayout("shop.t", str(folder / "table"), SCHEMA, SPEC, {"order-id": 0, "fields": []}, {}, 3)
    reader = PartReader(str(folder), CsvForm(), VERSION, TypeRules())
    task = LoadTask(reader, Generated(VERSION, TypeRules(), ""), FileWriter(layout, LocalStorage()), 1)
    copy: LoadTask = pickle.loads(pickle.dumps(task))  # noqa: S301 - it was written here
    return copy(File(str(file), "csv", "", len(text)))


def rows_of(staged: Staged) -> list[list[Any]]:
    """The keys in each data file."""
    return [pq.read_table(file.path)["id"].to_pylist() for file in staged.files]


def test_rows_are_written_by_partition_in_the_order_of_the_key(tmp_path: Path) -> None:
    """As the feed writes them."""
    staged = staged_in_task(tmp_path, '"id","v"\r\n3,1\r\n12,2\r\n1,\\N\r\n')

    assert rows_of(staged) == [[1, 3], [12]]
    assert [(file.spec_id, file.partition, file.records) for file in staged.files] == [(2, [0], 2), (2, [10], 1)]
    assert staged.ranges == [KeyRange((3,), (1,), is_rising=False)]
    assert all(file.path.startswith(f"{tmp_path}/table/data/b=") for file in staged.files)


def test_rows_beyond_what_a_task_holds_go_to_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packed file may hold more rows than memory does."""
    monkeypatch.setattr(spark, "_HELD_BYTES", 1)
    monkeypatch.setattr("applier.decode.dump.blocks.BLOCK_BYTES", 18)
    staged = staged_in_task(tmp_path, '"id","v"\r\n1,1\r\n2,2\r\n3,3\r\n4,4\r\n')

    assert len(staged.files) > 1
    assert sorted(chain.from_iterable(rows_of(staged))) == [1, 2, 3, 4]
    assert staged.ranges == [KeyRange((1,), (4,))]


def test_a_file_that_is_refused_is_named(tmp_path: Path) -> None:
    """The value that does not fit is not."""
    with pytest.raises(ValueRefused) as refused:
        staged_in_task(tmp_path, '"id","v"\r\n1,x\r\n')

    assert "shop.t.0.csv" in refused.value.what
    assert refused.value.hint


def test_storage_that_python_does_not_reach_is_refused() -> None:
    """Its bytes would have to pass the driver."""
    table: Any = SimpleNamespace(
        location="odd://lake/t", storage_properties={}, handle=SimpleNamespace(io=lambda: None)
    )
    none: Any = None
    with pytest.raises(OutsideRefused) as caught:
        stage_files(none, table, none, none, (), 1)

    assert "Python does not reach its files at odd://lake/t." in str(caught.value)
    assert caught.value.hint == (
        "Install the package that PyIceberg needs for them, set its properties under [catalog], and load again."
    )
