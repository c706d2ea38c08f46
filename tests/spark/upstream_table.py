"""One table on its way through DDL: what it is upstream, and its Iceberg table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.changefeed.table import Column, Index, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules, arrow_type
from applier.ddl import actions as ddl
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.apply import Evolved, apply_evolution
from applier.sink.evolve.plan import plan
from applier.sink.iceberg.catalog import Catalog, PartitionField, Table
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import read, sql_name
from tests.spark.writes import apply

NAME = TableName("shop", "t")
ID = Column("id", T("bigint"), nullable=False)
RULES = TypeRules()
PRIMARY = (Index("primary", ("id",), unique=True, primary=True),)

Row = dict[str, Any]


def version(*columns: Column, indexes: tuple[Index, ...] = PRIMARY) -> TableVersion:
    """A version of the table."""
    return TableVersion(NAME, 1, columns, indexes)


@dataclass
class Upstream:
    """One table on its way through a changefeed: what it is upstream, and its Iceberg table."""

    spark: SparkSession
    catalog: Catalog
    reader: SqlCatalog
    identifier: tuple[str, str]
    now: TableVersion = field(default_factory=version)
    resolved_ts: int = 0

    def create(
        self, *columns: Column, format_version: int = 3, partition: Sequence[PartitionField] = (), key: bool = True
    ) -> None:
        """Create the table with these columns and `id`."""
        self.now = version(ID, *columns, indexes=PRIMARY if key else ())
        schema = pa.schema([pa.field(c.name, arrow_type(c.type), c.name != "id" or not key) for c in self.now.columns])
        self.catalog.create(
            self.identifier,
            schema,
            key=self.now.key,
            sort=self.now.key,
            partition=partition,
            format_version=format_version,
        )

    @property
    def table(self) -> Table:
        """The Iceberg table, freshly loaded."""
        found = self.catalog.load(self.identifier)
        assert found is not None
        return found

    def stamp(self) -> Stamp:
        """The stamp of the next commit."""
        self.resolved_ts += 1
        return Stamp("shop", 1, self.resolved_ts)

    def write(self, *rows: Row, delete: Sequence[Any] = ()) -> None:
        """Commit rows and deletes."""
        types = {c.name: arrow_type(c.type) for c in self.now.columns}
        names = [name for name in types if not rows or name in rows[0]]
        upserts = pa.Table.from_pylist(list(rows), schema=pa.schema([(name, types[name]) for name in names]))
        deletes = pa.table({name: pa.array(delete, types[name]) for name in self.now.key})
        batch = ChangeBatch(upserts, pa.array([False] * len(rows), pa.bool_()), deletes)
        apply(TableWriter(self.table, "shop", 1), batch, self.stamp(), exact=False)

    def alter(self, after: TableVersion, *actions: ddl.Action) -> Evolved:
        """Evolve the table."""
        done = apply_evolution(self.table, plan(self.now, after, actions, RULES), self.stamp(), self.now.name)
        self.now = after
        return done

    def modify(self, old: Column, new: Column) -> Evolved:
        """MODIFY or CHANGE a column at its place."""
        after = version(*(new if c.name == old.name else c for c in self.now.columns), indexes=self.now.indexes)
        return self.alter(after, ddl.ModifyColumn(NAME, old.name, new))

    def add(self, *columns: Column) -> Evolved:
        """ADD columns at the end."""
        after = version(*self.now.columns, *columns, indexes=self.now.indexes)
        return self.alter(after, *(ddl.AddColumn(NAME, column) for column in columns))

    def rows(self) -> list[Row]:
        """Rows as Spark reads them, which are those that PyIceberg reads."""
        found = read(self.spark, self.identifier)
        other = self.reader.load_table(self.identifier).scan().to_arrow()
        assert found.column_names == other.column_names == [c.name for c in self.now.columns]
        rows = sorted(found.to_pylist(), key=_order)
        assert sorted(other.to_pylist(), key=_order) == rows
        return rows

    def column(self, name: str) -> list[Any]:
        """One column in order of the first."""
        return [row[name] for row in self.rows()]

    def rows_at(self, snapshot_id: int) -> list[Row]:
        """Rows of an older snapshot, with the columns that it had."""
        frame = self.spark.read.option("versionAsOf", snapshot_id).table(sql_name(self.identifier))
        rows = sorted((row.asDict() for row in frame.collect()), key=_order)
        past = self.reader.load_table(self.identifier).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        assert len(past) == len(rows)
        return rows

    @property
    def head(self) -> int | None:
        """Head of the table."""
        return self.table.snapshot_id


def _order(row: Row) -> str:
    return str(next(iter(row.values()))).rjust(40)
