from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.errors import TableIncomplete
from applier.sink.commit.stamp import Stamp
from applier.sink.format.storage import local_path
from applier.sink.iceberg import files
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.files import JavaStorage
from applier.sink.write.key_cache import SMALL
from applier.sink.write.table_writer import TableWriter
from tests.few import few
from tests.spark.feeds import KINDS, Feed, read, sql_name
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]

CASES: list[Any] = [
    *(pytest.param((kind,), 3, (), id=kind) for kind in KINDS),
    pytest.param(("long", "string"), 3, (), id="composite"),
    pytest.param(("long",), 2, (), id="format-2"),
    pytest.param(("bool", "decimal"), 2, (("v", "identity"),), id="format-2-by-value"),
    pytest.param(("long",), 3, (("k0", "bucket[3]"),), id="by-bucket-of-key"),
    pytest.param(("date", "int"), 3, (("k0", "month"), ("text", "truncate[2]")), id="by-month-and-value"),
    pytest.param(("timestamp",), 3, (("k0", "day"),), id="by-day"),
]


@pytest.mark.parametrize(("kinds", "version", "partition"), CASES)
def test_table_equals_model_after_every_batch(
    spark: SparkSession, lake: Catalog, fresh_name: Name, kinds: Any, version: int, partition: Any
) -> None:
    """Whatever the key, format and partitioning, a table holds exactly the last image of each living key."""
    name = fresh_name()
    feed = Feed(kinds)
    writer = TableWriter(feed.create(lake, name, partition=partition, format_version=version), "shop", 1)

    for step in range(1, 6):
        apply(writer, feed.batch(), Stamp("shop", 1, step), exact=step % 2 == 0)
        if step in (2, 5):
            feed.check(read(spark, name))

    assert writer.known == Stamp("shop", 1, 5)


@pytest.mark.parametrize("version", few([3, 2]))
def test_table_equals_merge(spark: SparkSession, lake: Catalog, fresh_name: Name, version: int) -> None:
    """A commit leaves the same rows as Spark's MERGE of the same batch, and PyIceberg reads them too."""
    ours, merged = fresh_name(), fresh_name()
    feed = Feed(("int", "string"), seed=version)
    writer = TableWriter(feed.create(lake, ours, format_version=version), "shop", 1)
    feed.create(lake, merged, format_version=version, properties={"write.merge.mode": "merge-on-read"})

    for step in range(1, 4):
        batch = feed.batch()
        apply(writer, batch, Stamp("shop", 1, step), exact=False)
        _merge(spark, merged, batch)

    order: Any = [("k0", "ascending"), ("k1", "ascending")]
    assert read(spark, ours).sort_by(order).to_pylist() == read(spark, merged).sort_by(order).to_pylist()


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_reads_the_same_rows(lake: Catalog, fresh_name: Name, warehouse: Path, version: int) -> None:
    """Deletion vectors and position deletes of ours are those that another implementation of Iceberg understands."""
    name = fresh_name()
    feed = Feed(("string",))
    writer = TableWriter(feed.create(lake, name, format_version=version), "shop", 1)
    for step in range(1, 6):
        apply(writer, feed.batch(), Stamp("shop", 1, step), exact=False)

    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/tables")
    rows = catalog.load_table(name).scan().to_arrow()
    catalog.engine.dispose()

    feed.check(rows)


@pytest.mark.parametrize("merged", few(["7", "100"]))
def test_vectors_are_replaced_wherever_their_manifests_went(
    spark: SparkSession, lake: Catalog, fresh_name: Name, merged: str
) -> None:
    """A data file never has two vectors, after many commits, merged manifests and manifests that others rewrote."""
    name = fresh_name()
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name, properties={"commit.manifest.min-count-to-merge": merged}), "shop", 1)

    for step in range(1, 25):
        apply(writer, feed.batch(20), Stamp("shop", 1, step), exact=False)
        if step == 16:
            spark.sql(f"CALL lake.system.rewrite_manifests('{'.'.join(name)}')")

    feed.check(read(spark, name))
    query = f"SELECT count(*) AS all, count(DISTINCT referenced_data_file) AS apart FROM {sql_name(name)}.delete_files"
    (counts,) = spark.sql(query).collect()
    assert counts["all"] == counts["apart"] > 4


@pytest.mark.parametrize("version", [2, 3])
def test_storage_that_only_iceberg_reaches(
    spark: SparkSession, lake: Catalog, fresh_name: Name, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Where Python cannot reach the storage, every file goes through Iceberg, in ranges and pieces smaller than it."""
    name = fresh_name()
    feed = Feed(("long",))
    table = feed.create(lake, name, format_version=version)
    writer = TableWriter(table, "shop", 1)
    writer.storage = JavaStorage(table.handle)
    monkeypatch.setattr(files, "_PIECE", 700)

    for step in range(1, 4):
        writer._index = None
        SMALL.clear()
        apply(writer, feed.batch(), Stamp("shop", 1, step), exact=False)

    feed.check(read(spark, name))


def test_tables_are_written_by_threads_at_once(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """Four threads write eight tables through one session and one catalog without disturbing each other."""
    names = [fresh_name() for _ in range(8)]
    feeds = [Feed(("long",), seed=seed) for seed in range(8)]

    def follow(index: int) -> None:
        writer = TableWriter(feeds[index].create(lake, names[index]), "shop", 1)
        for step in range(1, 5):
            apply(writer, feeds[index].batch(), Stamp("shop", 1, step), exact=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(follow, range(8)))

    for name, feed in zip(names, feeds, strict=True):
        feed.check(read(spark, name))


def test_columns_without_image_keep_their_values(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """An upsert that says nothing about a column leaves its old value, and NULL where there was no row."""
    name = fresh_name()
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name), "shop", 1)
    apply(writer, feed.taken({(1,): (1, "one", [1.0]), (2,): (2, "two", None)}, set()), Stamp("shop", 1, 1), exact=True)
    apply(writer, feed.taken({(1,): (5, "uno", [2.0])}, set()), Stamp("shop", 1, 2), exact=True)

    partial = pa.table({"k0": pa.array([1, 2, 3], pa.int64()), "v": pa.array([7, None, 9], pa.int32())})
    keys = pa.table({"k0": pa.array([], pa.int64())})
    batch = ChangeBatch(partial, pa.array([False, False, True]), keys)
    apply(writer, batch, Stamp("shop", 1, 3), exact=True)

    feed.rows = {(1,): (7, "uno", [2.0]), (2,): (None, "two", None), (3,): (9, None, None)}
    feed.check(read(spark, name))


def test_new_keys_are_not_looked_up(lake: Catalog, fresh_name: Name) -> None:
    """Without credit a batch of new keys reads no data file: it stays cheap however large the table is."""
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, fresh_name()), "shop", 1)
    apply(writer, feed.taken({(1,): (1, "", None), (9,): (1, "", None)}, set()), Stamp("shop", 1, 1), exact=True)
    for path in writer._index.files if writer._index else ():
        Path(local_path(path)).unlink()
    writer._new_keys.credit = 0

    applied = apply(writer, feed.taken({(5,): (1, "", None)}, set()), Stamp("shop", 1, 2), exact=True)

    assert (applied.upserted, applied.deletes.state) == (1, {})


def test_a_key_that_is_taken_for_new_and_is_there_is_never_there_twice(
    spark: SparkSession, lake: Catalog, fresh_name: Name
) -> None:
    """A whole table refuses it; in a table that lacks rows anyway the new row replaces the old one."""
    feed, name = Feed(("long",)), fresh_name()
    writer = TableWriter(feed.create(lake, name), "shop", 1)
    apply(writer, feed.taken({(1,): (1, "old", None), (2,): (1, "", None)}, set()), Stamp("shop", 1, 1), exact=True)
    rows = pa.table({"k0": pa.array([1], pa.int64()), "v": pa.array([5], pa.int32())})
    again = ChangeBatch(rows, pa.array([True]), keys_of())

    with pytest.raises(TableIncomplete, match=r"as if deletes were left out \(changefeed.filtered\)"):
        apply(writer, again, Stamp("shop", 1, 2), exact=True, is_complete=True)
    apply(writer, again, Stamp("shop", 1, 2), exact=True)

    assert sorted((row["k0"], row["v"]) for row in read(spark, name).to_pylist()) == [(1, 5), (2, 1)]


def keys_of(*keys: int) -> pa.Table:
    """Keys to delete."""
    return pa.table({"k0": pa.array(keys, pa.int64())})


@pytest.mark.parametrize("version", [2, 3])
def test_keys_without_a_row_are_counted_in_an_exact_table(lake: Catalog, fresh_name: Name, version: int) -> None:
    """A delete and an update of keys that are not there count; keys that may be new and inexact batches do not."""
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, fresh_name(), format_version=version), "shop", 1)
    first = apply(
        writer, feed.taken({(1,): (1, "", None), (2,): (1, "", None)}, set()), Stamp("shop", 1, 1), exact=True
    )
    rows = pa.table({"k0": pa.array([1, 7, 8], pa.int64()), "v": pa.array([5, 6, 7], pa.int32())})
    batch = ChangeBatch(rows, pa.array([False, False, True]), keys_of(2, 9))
    exact = apply(writer, batch, Stamp("shop", 1, 2), exact=True)
    inexact = apply(writer, batch, Stamp("shop", 1, 3), exact=False)
    unsure = ChangeBatch(batch.upserts.slice(0, 0), batch.fresh.slice(0, 0), keys_of(1, 20, 21), may_be_new=1)
    unknown = apply(writer, unsure, Stamp("shop", 1, 4), exact=True)

    assert first.not_found == 0
    assert exact.not_found == 2, "the update of 7 and the delete of 9"
    assert inexact.not_found == 0
    assert unknown.not_found == 1, "one of 20 and 21, of which the other may have come and gone"


def _merge(spark: SparkSession, name: tuple[str, ...], batch: ChangeBatch) -> None:
    upserts = spark.createDataFrame(batch.upserts).selectExpr("*", "false as gone")
    gone = spark.createDataFrame(batch.deletes).selectExpr("*", "true as gone")
    upserts.unionByName(gone, allowMissingColumns=True).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {sql_name(name)} t USING changes c ON t.k0 = c.k0 AND t.k1 = c.k1 "
        "WHEN MATCHED AND c.gone THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.v = c.v, t.text = c.text, t.vec = c.vec "
        "WHEN NOT MATCHED AND NOT c.gone THEN INSERT (k0, k1, v, text, vec) VALUES (c.k0, c.k1, c.v, c.text, c.vec)"
    )
