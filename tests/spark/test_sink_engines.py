from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.write.engine import EngineName
from applier.sink.write.spark import SparkEngine
from applier.sink.write.table_writer import Applied, TableWriter
from tests.spark.feeds import KINDS, Feed, Key, read

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]

SPECS: dict[str, list[tuple[str, str]]] = {
    "whole": [],
    "by-key": [("k1", "bucket[2]"), ("k7", "month"), ("k3", "truncate[21]")],
    "by-time": [("k7", "year"), ("k8", "day"), ("k9", "hour"), ("k0", "truncate[50]"), ("k6", "bucket[3]")],
    "by-bucket": [(f"k{index}", "bucket[2]") for index in (0, 1, 3, 4, 5, 7, 8, 9)],
    "by-value": [("v", "identity"), ("text", "truncate[1]")],
}
"""Partition specs: of columns of the key, and of columns that an update may move to another partition."""


class Pool(Feed):
    """A feed of a table whose key has a column of every type; its few keys come again and again."""

    def __init__(self) -> None:
        super().__init__(tuple(KINDS), seed=6)
        self._pool = [tuple(make(self.random) for _, make in KINDS.values()) for _ in range(30)]

    def batch(self, changes: int = 20) -> ChangeBatch:
        """Upserts of new and live keys, and deletes of others, live or not."""
        chosen: list[Key] = self.random.sample(self._pool, changes)
        return self.taken({key: self._values() for key in chosen[:15]}, set(chosen[15:]))


@pytest.mark.parametrize(
    ("spec", "version"), [("whole", 2), ("whole", 3), ("by-key", 3), ("by-time", 3), ("by-bucket", 3), ("by-value", 2)]
)
def test_both_engines_leave_the_same_table(
    spark: SparkSession, lake: Catalog, fresh_name: Name, spec: str, version: int
) -> None:
    """Batch after batch, Spark and Arrow find the same rows of every type and leave the same table under any name."""
    feed = Pool()
    namespace, name = fresh_name()
    names = {engine: (namespace, f"{name} c.d`e {engine}") for engine in ("arrow", "spark")}
    writers = {engine: _writer(spark, lake, feed, names[engine], engine, spec, version) for engine in names}

    for step in (1, 2, 3):
        batch = feed.batch()
        done = {engine: writer.apply(batch, Stamp("shop", 1, step), exact=True) for engine, writer in writers.items()}
        assert _counts(done["arrow"]) == _counts(done["spark"])

    assert _folders(writers["arrow"]).items() >= _folders(writers["spark"]).items()
    for identifier in names.values():
        feed.check(read(spark, identifier))
    summaries = [next(writer.table.history()).summary for writer in writers.values()]
    for key in ("total-records", "total-position-deletes", "changed-partition-count"):
        assert summaries[0][key] == summaries[1][key]


def _writer(
    spark: SparkSession,
    lake: Catalog,
    feed: Feed,
    name: tuple[str, str],
    engine: EngineName | str,
    spec: str,
    version: int,
) -> TableWriter:
    table = feed.create(lake, name, partition=SPECS[spec], format_version=version)
    chosen: Any = engine
    return TableWriter(table, "shop", 1, chosen, SparkEngine(spark, "lake", table))


def _counts(applied: Applied) -> tuple[int, int]:
    return applied.rows_upserted, applied.rows_deleted


def _folders(writer: TableWriter) -> dict[tuple[str, ...], str]:
    """Where the files of each partition are, below the location of the table."""
    table, head = writer.table, writer.head
    assert head is not None
    files = [file for file in table.scan(head) if file.format == "parquet"]
    return {
        tuple(map(str, file.partition)): file.path.removeprefix(table.location).rpartition("/")[0] for file in files
    }
