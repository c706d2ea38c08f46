from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter
from tests.few import few
from tests.spark.feeds import KINDS, Feed, Key, read, sql_name
from tests.spark.writes import apply

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
    ("spec", "version"),
    few([("by-time", 3), ("by-bucket", 3), ("by-value", 2), ("by-key", 3), ("whole", 2), ("whole", 3)], 3),
)
def test_a_table_lies_as_spark_would_lay_it(
    spark: SparkSession, lake: Catalog, fresh_name: Name, spec: str, version: int
) -> None:
    """Rows of every type are found again batch after batch, and each is in the partition where Spark puts it."""
    feed = Pool()
    names = fresh_name(), fresh_name()
    ours, theirs = (feed.create(lake, name, partition=SPECS[spec], format_version=version) for name in names)
    writer = TableWriter(ours, "shop", 1)

    for step in (1, 2, 3):
        apply(writer, feed.batch(), Stamp("shop", 1, step), exact=True)
        feed.check(read(spark, names[0]))

    rows = read(spark, names[0])
    feed.check(rows)
    options = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "true"}
    spark.createDataFrame(rows).writeTo(sql_name(names[1])).options(**options).append()
    theirs.refresh()
    assert _folders(ours).items() >= _folders(theirs).items()


def _folders(table: Table) -> dict[tuple[str, ...], str]:
    """Where the files of each partition are, below the location of the table."""
    head = table.snapshot_id
    assert head is not None
    files = [file for file in table.scan(head) if file.format == "parquet"]
    return {
        tuple(map(str, file.partition)): file.path.removeprefix(table.location).rpartition("/")[0] for file in files
    }
