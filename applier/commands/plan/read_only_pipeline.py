"""Builds a pipeline that only reads: it takes no lease and makes no table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.config.settings import Config
from applier.errors import CheckpointConflict
from applier.pipeline.build import assemble, open_source
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.runtime.spark_session import build_session
from applier.sink.commit.stamp import Stamp
from applier.sink.control.append_table import AppendOnlyTable
from applier.sink.control.control import Control
from applier.sink.control.rows import LEDGERS, ORDERS
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEVER = Checkpoint(epoch=0, step=0, resolved_ts=0, written_at=0, holder=Holder("", ""))
"""Checkpoint of a changefeed that never ran."""


@contextmanager
def looking(config: Config, *, spark: SparkSession | None = None) -> Iterator[Pipeline]:
    """The pipeline of a configuration at its newest checkpoint, without the lease; only `look` at it.

    Args:
        config: The configuration.
        spark: A running session to use instead of a new one; it is left running.

    Raises:
        ConfigError: Spark cannot start.
        TransientError: Catalog or source do not answer.
    """
    section = config.catalog
    name = config.changefeed.name
    session = spark or build_session(f"applier {name}", config.spark, section.name, section.properties)
    try:
        catalog = Catalog(session, section.name)
        with open_source(config, session) as source:
            control = unheld(catalog, name)
            # Who takes the changefeed fences the tables, not who looks.
            checkpoint = replace(control.last_checkpoint() or NEVER, unfenced=0, fenced=0)
            yield assemble(config, source, catalog, State.load(control, checkpoint))
    finally:
        if spark is None:
            session.stop()


def unheld(catalog: Catalog, changefeed: str) -> Control:
    """The control tables of a changefeed, for reading: one that is missing is read as empty, not made."""

    def append_table(name: str, columns: pa.Schema) -> AppendOnlyTable:
        table = catalog.load((f"applier_{changefeed}", name))
        return Absent(columns) if table is None else AppendOnlyTable(table, ORDERS.get(name, ""))

    opened = {name: append_table(name, columns) for name, columns in LEDGERS.items()}
    return Control(changefeed, **opened)  # type: ignore[arg-type]  # mypy takes each name for any field


class Absent(AppendOnlyTable):
    """A control table that is not there.

    Args:
        columns: Columns that it would have.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns

    def refresh(self) -> None:
        """Nothing: a look makes no table."""

    def newest(self) -> pa.Table:
        """No rows."""
        return self._columns.empty_table()

    def rows(self) -> pa.Table:
        """No rows."""
        return self._columns.empty_table()

    def append(self, rows: pa.Table, stamp: Stamp, check: Callable[[Table], None] = lambda table: None) -> int:
        """Refused.

        Raises:
            CheckpointConflict: Always.
        """
        del rows, stamp, check
        raise CheckpointConflict("Durable state was written without holding the changefeed.")
