from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.changefeed.shape import METADATA_COLUMNS
from applier.errors import TableMismatch
from applier.pipeline.load.spark import has_twice
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog, JavaError, PartitionField
from applier.sink.upkeep import Thresholds, Upkeep
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import read
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

TABLES = [
    ("sel ect", "TABLE"),
    ("a.b", "c.d`e"),
    ("UPPER", 'o\'clock "quoted"'),
    ("ünïcode", "表😀"),
    ("odd", "50%?#&;"),
    ("odd", "a:b/c\\d"),
    ("odd", ".."),
    ("..", "up"),
]

COLUMNS = ["a.b", "select", "ta`ck", 'quo"te', "spa ce", "ünï😀", "1st", "UPPER", "_file_"]


@pytest.mark.parametrize("name", TABLES, ids=str)
def test_any_name_of_table_and_column_works(spark: SparkSession, lake: Catalog, name: tuple[str, str]) -> None:
    """Names are data: none is parsed, none leaves the warehouse, and rows come back under each of them."""
    lake.drop(name, purge=True)
    columns = pa.schema([pa.field(column, pa.int64()) for column in COLUMNS])
    lake.create(name, columns, key=["a.b", "select"], partition=[PartitionField("ta`ck", "bucket[2]")], sort=["a.b"])
    table = lake.load(name)
    assert table is not None
    assert name in lake.list(name[:-1])
    writer = TableWriter(table, "shop", 1)

    for step, values in enumerate(([1, 2, 3], [2, 3, 4]), 1):
        rows = pa.table({column: pa.array([step * key for key in values]) for column in COLUMNS})
        rows = rows.set_column(0, "a.b", pa.array(values)).set_column(1, "select", pa.array(values))
        deletes = pa.table({"a.b": pa.array([1]), "select": pa.array([1])}).slice(0, step - 1)
        apply(writer, ChangeBatch(rows, pa.array([False] * 3), deletes), Stamp("shop", 1, step), exact=False)

    found = read(spark, name)
    assert found.column_names == COLUMNS
    assert set(found["a.b"].to_pylist()) == {2, 3, 4}
    assert set(found["UPPER"].to_pylist()) == {4, 6, 8}
    assert "/tables/" in table.location
    assert ".." not in table.location


@pytest.mark.parametrize("key", ["_Pos", "_row_id"])
def test_names_of_icebergs_own_columns_work_without_spark(
    lake: Catalog, warehouse: Path, fresh_name: Callable[[], tuple[str, str]], key: str
) -> None:
    """Spark refuses such columns, or takes a position for a value; applier never lets it read or write the rows."""
    name, columns = fresh_name(), [key, *sorted(METADATA_COLUMNS - {key.lower()})]
    lake.create(name, pa.schema([pa.field(column, pa.int64()) for column in columns]), key=[key])
    table = lake.load(name)
    assert table is not None
    writer = TableWriter(table, "shop", 1)

    for step, values in enumerate(([1, 2, 3], [2, 3, 4]), 1):
        rows = pa.table(
            {column: pa.array([value * place for value in values]) for place, column in enumerate(columns, 1)}
        )
        deletes = pa.table({key: pa.array([1])}).slice(0, step - 1)
        apply(writer, ChangeBatch(rows, pa.array([False] * 3), deletes), Stamp("shop", 1, step), exact=False)

    assert Upkeep(writer, Thresholds(small_files=1)).compact() == {}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/tables")
    found = catalog.load_table(name).scan().to_arrow()
    catalog.engine.dispose()
    assert found.num_rows == 3
    assert set(found[key].to_pylist()) == {2, 3, 4}
    assert set(found[columns[-1]].to_pylist()) == {place * len(columns) for place in (2, 3, 4)}


def test_keys_that_come_twice_are_seen_in_columns_of_any_name(
    spark: SparkSession, lake: Catalog, fresh_name: Callable[[], tuple[str, str]]
) -> None:
    """A column named as what Spark adds to a count is still a column of the key."""
    name, names = fresh_name(), ["count", "0", "hash"]
    columns = [*names, "_row_id", "_file"]
    lake.create(name, pa.schema([pa.field(column, pa.int64()) for column in columns]), key=names)
    table = lake.load(name)
    assert table is not None
    writer = TableWriter(table, "shop", 1)

    file_writer, answers = FileWriter(table.file_layout, writer.storage), []
    for step, values in enumerate(([1, 2], [2, 3]), 1):
        rows = pa.Table.from_arrays([pa.array(values)] * len(columns), schema=table.schema.arrow)
        writer.append(lambda rows=rows: file_writer.stage(rows, names), Stamp("shop", 1, step))  # type: ignore[misc]
        answers.append(has_twice(spark, "lake", table, names))

    assert answers == [False, True]


def test_rename_and_drop(lake: Catalog) -> None:
    """A table keeps its identity under another name, also in a namespace that has to be made."""
    lake.create(("here", "it"), pa.schema([pa.field("id", pa.int64())]))
    table = lake.load(("here", "it"))
    assert table is not None

    lake.rename(("here", "it"), ("there.now", "that"))

    moved = lake.load(("there.now", "that"))
    assert moved is not None
    assert moved.uuid == table.uuid
    assert lake.load(("here", "it")) is None
    assert lake.drop(("there.now", "that"))
    assert not lake.exists(("there.now", "that"))
    assert lake.load(("nowhere", "nothing")) is None
    assert lake.list(("nowhere",)) == []


def test_refusals_of_iceberg_are_sentences(lake: Catalog) -> None:
    """What Iceberg refuses at creation is told as a mismatch of the table; a name taken is an error of its own."""
    with pytest.raises(TableMismatch, match="Cannot create table odd.spec"):
        lake.create(
            ("odd", "spec"), pa.schema([pa.field("f", pa.float64())]), partition=[PartitionField("f", "bucket[2]")]
        )
    with pytest.raises(TableMismatch, match="no column nope"):
        lake.create(("odd", "spec"), pa.schema([pa.field("f", pa.float64())]), partition=[PartitionField("nope")])
    lake.create(("odd", "twice"), pa.schema([pa.field("f", pa.float64())]))
    with pytest.raises(JavaError, match="already exists"):
        lake.create(("odd", "twice"), pa.schema([pa.field("f", pa.float64())]))
