"""Locates keys and writes data files as Spark jobs, for batches beyond one process."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
from py4j.java_gateway import JavaMember
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from applier.errors import TransientError
from applier.runtime.permanent_errors import SPARK, Cause, chain_of, refusal, told
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.table import Table
from applier.sink.write.file_index import FileIndex
from applier.sink.write.parquet import Positions, by_path

ROWS_PER_TASK = 500_000
"""Rows that one task writes: one file of a fair size, and work for every core."""


class SparkEngine:
    """`Engine` on Spark: a broadcast join over `_file` and `_pos`, and a write that is staged but not committed.

    It finds and writes exactly what the Arrow engine does; only the split into files may differ. Threads may share the
    session.
    """

    def __init__(self, session: SparkSession, catalog: str, table: Table) -> None:
        self._session = session
        self._name = ".".join(quoted(part) for part in (catalog, *table.identifier))
        self._table = table

    def locate(self, index: FileIndex, keys: pa.Table) -> dict[str, Positions]:
        """See `Engine.locate`."""
        if index.snapshot_id is None or keys.num_rows == 0:
            return {}
        names = [f"applier_key_{number}" for number in range(keys.num_columns)]
        with reported(f"look keys of table {self._table} up"):
            wanted = F.broadcast(self._frame(keys.rename_columns(names)))
            # Not versionAsOf: it would give the columns the names of that time. A newer head shows in its files here,
            # or in the fence of the commit.
            rows = self._session.read.table(self._name)
            pairs = zip(keys.column_names, names, strict=True)
            same: list[Column] = [rows[quoted(column)] == wanted[name] for column, name in pairs]
            hits = rows.join(wanted, reduce(lambda left, right: left & right, same), "left_semi")
            found = by_path(*hits.select("_file", "_pos").toArrow().columns)
        if any(path not in index.files for path in found):
            raise TransientError(f"Table {self._table} has moved on from snapshot {index.snapshot_id}")
        return found

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """See `Engine.stage`."""
        if rows.num_rows == 0:
            return []
        tasks = -(-rows.num_rows // ROWS_PER_TASK)
        frame = self._frame(rows)
        if columns := sorted_by(self._table, key):
            frame = frame.repartitionByRange(tasks, *columns).sortWithinPartitions(*columns)
        else:
            frame = frame.repartition(tasks)
        with reported(f"write rows of table {self._table}"):
            return staged(self._table, frame)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._session.createDataFrame(rows)


def sorted_by(table: Table, key: Sequence[str]) -> list[Column]:
    """The order of rows in a file of a table, whose key is given; [] for none."""
    order, _ = table.file_layout.order_of(key)
    names = [(F.col(quoted(each.column)), each.descending) for each in order]
    return [name.desc_nulls_last() if descends else name.asc_nulls_first() for name, descends in names]


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def staged(table: Table, frame: DataFrame) -> list[DataFile]:
    """Let Spark write rows of a table, and keep the files for a commit of applier.

    Iceberg's own compaction works this way: a table registered under an id is written by `format("iceberg").save(id)`,
    and the files wait until they are asked for.
    """
    number = str(uuid.uuid4())
    # `SparkTableCache.get()`, by its full name: py4j may find the method `get(String)` of the class instead.
    tables = JavaMember("get", None, "z:org.apache.iceberg.spark.SparkTableCache", table.java.client)()
    coordinator = table.java.iceberg.spark.FileRewriteCoordinator.get()
    # Rows are in order already; a fanout writer takes them in any order of partitions.
    options = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "true"}
    tables.add(number, table.handle)
    table.java.activate()
    try:
        frame.write.format("iceberg").options(**options).mode("append").save(number)
        with translated(f"Spark's files of table {table} are lost"):
            files = table.java.items(coordinator.fetchNewFiles(table.handle, number))
            return [table.files.staged(file) for file in files]
    finally:
        tables.remove(number)
        coordinator.clearRewrite(table.handle, number)


_OF_SYSTEM = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)))
"""What the operating system says of storage: it knows nothing of rows."""


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Raise what a failed job means, without the rows that its own message may hold."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # PySpark gives errors of tasks that it does not know as Java does. What a failed job says may hold rows.
        chain = [Cause(cause.kind, cause.code, cause.code) for cause in chain_of(error)]
        lasting = refusal(f"Spark cannot {action}", chain, SPARK)
        told_by_system = [said for said in _OF_SYSTEM if said in str(error)]
        reasons = "; caused by: ".join([told(chain), *told_by_system[:1]])
        raise lasting or TransientError(f"Spark cannot {action}: {reasons}") from error
