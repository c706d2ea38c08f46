"""A Spark write without a commit: what Spark writes comes back as data files for a commit of applier."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaMember

from applier.sink.format.files import DataFile
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.table import Table


def staged(table: Table, write: Callable[[str], None]) -> list[DataFile]:
    """Let Spark write rows of a table, and keep the files instead of committing them.

    Iceberg's own compaction works this way: a table registered under an id is written by `format("iceberg").save(id)`,
    and the files wait until they are asked for.

    Args:
        table: The table.
        write: Writes a DataFrame to the given id.
    """
    spark = table.java.iceberg.spark
    number = str(uuid.uuid4())
    tables = _table_cache(table)
    coordinator = spark.FileRewriteCoordinator.get()
    tables.add(number, table.handle)
    try:
        write(number)
        with translated(f"Spark's files of table {table} are lost"):
            files = table.java.items(coordinator.fetchNewFiles(table.handle, number))
            return [table.files.staged(file) for file in files]
    finally:
        tables.remove(number)
        coordinator.clearRewrite(table.handle, number)


def _table_cache(table: Table) -> Any:
    """`SparkTableCache.get()`. The class also has a method `get(String)`, which py4j may find instead, so the static
    one is called by its full name.
    """
    name = "z:org.apache.iceberg.spark.SparkTableCache"
    return JavaMember("get", None, name, table.java.client)()
