"""The part of an applier that applies DDL, started again from what is durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch, KeylessBatch
from applier.changefeed.checkpoint import Cut
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.route import Route
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.config.settings import SinkSection
from applier.config.tables import TablesSection
from applier.ddl.spelling import Spelling
from applier.order.barrier import Barrier
from applier.order.feed_order import ResolvedOrder
from applier.pipeline.scan.statements import read_all
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.state import State
from applier.pipeline.tables.changefeed import Changefeed
from applier.pipeline.tables.table_maker import TableMaker
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.control.control import Control, unix_ms
from applier.sink.control.lease import this_process
from applier.sink.iceberg.catalog import Catalog
from tests.spark.feeds import read
from tests.spark.writes import apply

Row = tuple[Any, ...]


class Crash(Exception):
    """Stands for a process that is gone."""


class Applier:
    """The part of an applier that applies DDL; `restart` makes a new one from what is durable.

    Attributes:
        database: Name of the upstream database, and of the Iceberg namespace.
        clock: Commit ts of the newest change.
    """

    def __init__(self, spark: SparkSession, lake: Catalog, database: str, **settings: Any) -> None:
        self.spark, self.lake, self.database = spark, lake, database
        self.settings = TablesSection(**settings)
        self.clock = 100
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not durable, and take the changefeed again."""
        control = Control.open(self.lake, self.database)
        checkpoint, _ = control.take(this_process(unix_ms()), take_over=True)
        self.state = State.load(control, checkpoint)
        rules = TypeRules(virtual_columns=self.settings.virtual_columns)
        feed = Changefeed(self.database, checkpoint.lease.epoch, ResolvedOrder())
        maker = TableMaker(self.lake.create, self.settings, rules)
        route = Route(self.settings.route)
        self.targets = TargetTables(self.lake, feed, maker, route, SinkSection())
        self.ddl_applier = DdlApplier(self.targets, self.state, {})

    def ddl(self, sql: str, *, again: bool = False, after: TableVersion | None = None) -> None:
        """Apply a DDL, which may tell of the table after it; `again` at the same commit ts, as a restart does."""
        self.clock += 0 if again else 1
        change = SchemaChange(self.clock, sql, self.database, after=after)
        barrier = Barrier(change, "topic", Position(0, self.clock, 0))
        for ddl in read_all([barrier], Spelling(self.state.tables)):
            self.ddl_applier.apply(ddl)

    @property
    def versions(self) -> dict[TableName, TableVersion]:
        """Each table as it is now."""
        return dict(self.state.tables.items())

    def insert(self, table: str, *rows: Row) -> None:
        """Add rows."""
        self.clock += 1
        name = TableName(self.database, table)
        writer = self.targets.writer(name)
        assert writer is not None
        version = self.versions[name]
        held = tuple(column for column in version.columns if column.name in writer.table.schema.names)
        version = replace(version, columns=held)
        kinds = [column_arrow_type(version.name, column, TypeRules()) for column in version.columns]
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        upserts = pa.table(dict(zip([column.name for column in version.columns], columns, strict=True)))
        fresh = pa.array([False] * len(rows), pa.bool_())
        batch = ChangeBatch(upserts, fresh, upserts.slice(0, 0).select(list(version.key)))
        bag = KeylessBatch(upserts, upserts.slice(0, 0))
        apply(writer, batch if version.key else bag, self.targets.feed.stamp(self.clock), exact=False)

    def checkpoint(self) -> None:
        """End a step."""
        self.state.advance(self.clock, {}, Cut(self.targets.snapshots), {}, [])

    def rows(self, table: str) -> list[Row]:
        """Rows of a table, as Spark reads them."""
        found = read(self.spark, (self.database, table)).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    def decisions(self) -> list[tuple[str, str]]:
        """What the audit says: kind and decision."""
        return [(item.kind, item.decision) for item in self.state.control.decisions()]


Start = Callable[..., Applier]


RANGE = "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))"


def partitioned(applier: Applier, clause: str = RANGE) -> None:
    """A table of two partitions with two rows each, and another table of its columns."""
    applier.ddl(f"CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(9)) {clause}")
    applier.ddl("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    applier.insert("p", (1, "a"), (99, "b"))
    applier.insert("p", (100, "c"), (199, "d"))
