"""The Iceberg tables of a changefeed: reduced rows become one fenced commit per table and segment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.route import Route
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.config.settings import SinkSection, TablesSection
from applier.ddl.schema_tracker import Tables
from applier.errors import SchemaChangeRefused, TableIncomplete, TableMismatch, TerminalError, ValueRefused
from applier.pipeline.schema_changes.stamp import DROPPED_AT
from applier.pipeline.tables.filtered import FILTERED, Doubted
from applier.pipeline.tables.listed_tables import ListedTables
from applier.pipeline.tables.table_batch import Batch
from applier.runtime import failpoints
from applier.sink.commit.fence import Fenced, fence
from applier.sink.commit.stamp import OFFSETS, Stamp, covered
from applier.sink.evolve.virtual_columns import columns_of_new
from applier.sink.format.supplied import supplied
from applier.sink.format.types import iceberg_type
from applier.sink.iceberg.catalog import Catalog, JavaError
from applier.sink.iceberg.table import Table
from applier.sink.upkeep import properties_of_new
from applier.sink.write.engine import Engine
from applier.sink.write.table_writer import Applied, TableWriter

ADOPTED = "applier.adopted"
"""Table property: rows were there before the first commit of applier, so no key may be taken for new."""


Refused: TypeAlias = dict[TableName, TerminalError] | None
"""Takes what is wrong with single tables."""

ABOUT_A_TABLE = (TableMismatch, ValueRefused, TableIncomplete, SchemaChangeRefused)
"""Errors of a commit that concern its table alone."""


@dataclass(slots=True)
class TargetTables:
    """The tables of one changefeed, as they are in the catalog.

    Args:
        catalog: The catalog.
        changefeed: Name of the changefeed.
        epoch: Epoch of this applier.
        settings: Routing and properties of new tables.
        sink: Engine and threads.
        rules: How types map.
        spark_engine: Makes the engine for commits too large for the driver; None leaves all to the driver.
        ordered: False for a feed in offset order: a row that is sent again looks new, so no key may be taken for new.
        confirm: Raises CheckpointConflict once another process has the changefeed; called before what no commit can
            refuse.
        fenced: Highest epoch of a process that lost the changefeed and may be alive. A table that is found with the
            stamp of such an epoch was made or renamed while the fences went up, and gets its own when it is opened.
        filtered: The feed leaves out rows, so no key may be taken for new.
        doubted: Tables that a message of this step may belong to which was set aside; None for all.
        maker: Makes new tables, with the arguments of `Catalog.create`; None for the catalog itself.
        listed: What the checkpoint lists.
    """

    catalog: Catalog
    changefeed: str
    epoch: int
    settings: TablesSection
    sink: SinkSection
    rules: TypeRules
    ordered: bool
    spark_engine: Callable[[Table], Engine] | None = None
    confirm: Callable[[], None] = lambda: None
    fenced: int = 0
    snapshots: dict[tuple[str, ...], int] = field(default_factory=dict)
    filtered: bool = False
    doubted: Doubted = frozenset()
    maker: Callable[..., Table] | None = None
    listed: ListedTables = field(default_factory=ListedTables)
    _writers: dict[tuple[str, ...], TableWriter] = field(default_factory=dict)

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Where an upstream table goes."""
        return Route(self.settings.route).identifier(name)

    @contextmanager
    def as_holder(self) -> Iterator[None]:
        """Raise CheckpointConflict in place of TableMismatch where the next holder moved or dropped tables."""
        try:
            yield
        except TableMismatch:
            self.confirm()
            raise

    def fence(self, names: Iterable[TableName], upto: int) -> list[Fenced]:
        """Make every table refuse what processes of earlier epochs may still send; what they show stays as it is.

        Args:
            names: All tables that there may be.
            upto: Highest epoch whose process may still be alive.

        Returns:
            Tables that needed a commit for it.

        Raises:
            CheckpointConflict: A newer applier holds a table.
        """

        def guarded(identifier: tuple[str, ...]) -> Fenced | None:
            table = self.catalog.load(identifier)
            return None if table is None else fence(table, self.changefeed, self.epoch, upto)

        with ThreadPoolExecutor(self.sink.threads) as pool:
            tables = dict.fromkeys(self.identifier(name) for name in names)
            return [fenced for fenced in pool.map(guarded, tables) if fenced is not None]

    def restore(self, names: Iterable[TableName], checkpoint: Checkpoint) -> dict[TableName, int]:
        """Look at the tables anew, after a start or a failed step.

        Args:
            names: All tables that there may be; those that such a step made are not in the checkpoint.
            checkpoint: What is certain.

        Returns:
            Resolved ts of the tables that are ahead of the checkpoint; 0 in a feed in offset order.
        """
        self._writers.clear()
        self.listed.restore(checkpoint.snapshots)
        self.snapshots = dict(checkpoint.snapshots)
        ahead = {}
        for name in names:
            try:
                writer = self.writer(name)
            except TableMismatch as error:
                # A table that is parked for it, or the next row of it, says so.
                self.confirm()
                self.listed.broken[name] = error
                continue
            known = writer.known if writer else None
            is_ahead = known is not None and self._is_ahead(name, known, checkpoint)
            if writer is None or known is None or is_ahead:
                self.snapshots.pop(self.identifier(name), None)
            if writer is not None and known is not None and is_ahead:
                ahead[name] = known.resolved_ts
                if writer.table.setting(DROPPED_AT) is None:
                    self.committed(writer, writer.table.snapshot_id)
        return ahead

    def _is_ahead(self, name: TableName, known: Stamp, checkpoint: Checkpoint) -> bool:
        if self.ordered:
            return known.resolved_ts > checkpoint.resolved_ts
        return bool(self.covered(name).beyond(checkpoint.next_offsets))

    def damage(self, name: TableName, *, is_listed: bool = False) -> TableMismatch | None:
        """Why nothing may be written to a table as others have left it; see `ListedTables.damage`."""
        return self.listed.damage(name, self.identifier(name), self.writer, is_listed=is_listed)

    def applied_ts(self, name: TableName) -> int | None:
        """Resolved ts of the table's last commit; None for a table that no applier has written."""
        writer = self.writer(name)
        known = writer.known if writer else None
        return None if known is None else known.resolved_ts

    def covered(self, name: TableName) -> AppliedOffsets:
        """Rows that a table has, by its stamp in a feed in offset order."""
        writer = self.writer(name)
        # What an earlier changefeed left there counts other messages.
        return AppliedOffsets() if writer is None or writer.known is None else covered(writer.table)

    def writer(self, name: TableName) -> TableWriter | None:
        """The writer of a table; None if the catalog has no such table."""
        identifier = self.identifier(name)
        if identifier not in self._writers:
            table = self.catalog.load(identifier)
            if table is None:
                return None
            self._writers[identifier] = self.opened(table)
        return self._writers[identifier]

    def opened(self, table: Table) -> TableWriter:
        """A writer of a table that was just loaded, which takes no commit of a process that lost the changefeed.

        Raises:
            CheckpointConflict: A newer applier holds the table.
        """
        writer = self._open(table)
        if writer.known is not None and writer.known.epoch <= self.fenced:
            fence(table, self.changefeed, self.epoch, self.fenced)
            writer.reload()
        return writer

    @property
    def writers(self) -> list[TableWriter]:
        """Writers of the tables that are known."""
        return [*self._writers.values()]

    def forget(self, *names: TableName) -> None:
        """Let go of writers whose tables were renamed, dropped or made anew."""
        for name in names:
            self._writers.pop(self.identifier(name), None)
            self.snapshots.pop(self.identifier(name), None)
            self.listed.forget(self.identifier(name))

    def ensure(self, version: TableVersion, stamp: Stamp) -> TableWriter:
        """The writer of a table, which is created, or adopted if it exists and fits.

        Raises:
            TableMismatch: A table of that name exists, but its columns do not fit.
        """
        found = self.writer(version.name)
        if found is None:
            return self._create(version, stamp.entries())
        self.adopt(found, version)
        return found

    def adopt(self, writer: TableWriter, version: TableVersion) -> None:
        """Check that a table which no applier has written yet fits; its first commit says that it was adopted.

        Raises:
            TableMismatch: A column is missing or has another type.
        """
        if writer.known is not None:
            return
        for column in supplied(version, writer.table.schema).columns:
            found = writer.table.schema.field(column.name)
            wanted = column_arrow_type(*version.name, column, self.rules)
            if column.generated != "virtual" and (found is None or found.arrow != wanted):
                has = "is missing" if found is None else f"is {found.type}"
                needs = iceberg_type(wanted)
                what = f"Table {writer.table} cannot be adopted: column {column.name} {has}, upstream it needs {needs}."
                raise TableMismatch(what, "Load it with the types of docs/types.md, or route the table elsewhere.")

    def apply(
        self, batches: Sequence[Batch], tables: Tables, whole: Collection[TableName] = (), refused: Refused = None
    ) -> dict[TableName, Applied]:
        """Commit batches of different tables, several at a time.

        Args:
            batches: At most one per table.
            tables: Each table as its DDL left it.
            whole: The tables that must hold every row that a change updates or deletes.
            refused: Takes what is wrong with single tables, to which nothing is committed; None to raise the first.
        """

        def applied(batch: Batch) -> Applied | None:
            try:
                return self._apply(batch, tables, whole)
            except ABOUT_A_TABLE as error:
                self.confirm()
                if refused is None:
                    raise
                refused[batch.name] = error
                self._writers.pop(self.identifier(batch.name), None)
                return None

        if len(batches) == 1:
            done = [applied(batches[0])]
        else:
            with ThreadPoolExecutor(self.sink.threads) as pool:
                done = list(pool.map(applied, batches))
        return {batch.name: item for batch, item in zip(batches, done, strict=True) if item is not None}

    def doubt(self, names: Iterable[TableName]) -> None:
        """Take no key of these tables for new any more, as changes of theirs were left out; that survives a restart."""
        for name in names if self.ordered else ():
            writer = self.writer(name)
            known = writer.known if writer else None
            if writer is not None and known is not None and writer.table.setting(FILTERED) is None:
                # The mark alone changes: rows above this resolved ts are yet to come.
                stamp = self.stamp(known.resolved_ts, {**known.extra, FILTERED: "true"}, writer)
                self.committed(writer, writer.stamp(stamp).snapshot_id)

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit of this applier says about itself; the first one to a table of others says that, too."""
        is_foreign = writer is not None and writer.known is None
        # A feed in offset order is true as of no resolved ts.
        upto = upto if self.ordered else 0
        adopted = {ADOPTED: "true"} if is_foreign else {}
        if is_foreign and not self.ordered:
            adopted[OFFSETS] = AppliedOffsets().to_text()
        filtered = {FILTERED: "true"} if self.filtered else {}
        return Stamp(self.changefeed, self.epoch, upto, {**adopted, **filtered, **(extra or {})})

    def committed(self, writer: TableWriter, snapshot_id: int | None) -> None:
        """Remember the head of a table for the checkpoint."""
        if snapshot_id is not None:
            self.snapshots[writer.table.identifier] = snapshot_id

    def _apply(self, batch: Batch, tables: Tables, whole: Collection[TableName]) -> Applied | None:
        if not batch.before_ddl:
            self.listed.refuse_lost(self.identifier(batch.name), self.writer(batch.name))
        now = tables.get(batch.name) or batch.newest
        # A table that is made here holds nothing: a crash before its first commit must not pass for that commit.
        writer = self.ensure(now, self.stamp(0))
        if writer.known is None:
            self.confirm()
        failpoints.reach("table-ensured")
        stamp = self.stamp(batch.upto, self._offsets(batch), writer)
        exact = self._is_exact(writer, stamp) and batch.is_above(writer.known)
        parts = batch.fitted(now, writer.table, None if self.ordered else self.rules)
        merged = batch.merged(parts, by_place=not self.ordered, exact=exact)
        if merged.is_empty:
            return None
        try:
            done = writer.apply(merged, stamp, exact=exact, whole=batch.name if batch.name in whole else None)
        except JavaError:
            # What the writer believes of its table may be wrong now; the next attempt reads it again.
            self._writers.pop(self.identifier(batch.name), None)
            raise
        self.committed(writer, done.snapshot_id)
        return done

    def _offsets(self, batch: Batch) -> dict[str, str]:
        """What the commit of a batch says of the messages that the table has: of the topics of its rows alone."""
        if batch.extent is None:
            return {}
        topics = {part.topic for part in batch.parts}
        window = {place: span for place, span in batch.extent.window.items() if place.topic in topics}
        return {OFFSETS: self.covered(batch.name).after(window, batch.upto, batch.extent.topic_ids).to_text()}

    def _is_exact(self, writer: TableWriter, stamp: Stamp) -> bool:
        is_whole = all(mark not in stamp.extra and writer.table.setting(mark) is None for mark in (ADOPTED, FILTERED))
        return self.ordered and is_whole

    def _open(self, table: Table) -> TableWriter:
        spark = None if self.spark_engine is None else self.spark_engine(table)
        return TableWriter(table, self.changefeed, self.epoch, self.sink.engine, spark)

    def _create(self, version: TableVersion, entries: Mapping[str, str]) -> TableWriter:
        key = version.key
        doubts = {FILTERED: "true"} if self.doubted is None or version.name in self.doubted else {}
        omit = self.rules.virtual_columns == "omit"
        columns = pa.schema([self._column(version, column) for column in columns_of_new(version, omit=omit)])
        self.confirm()
        table = (self.maker or self.catalog.create)(
            self.identifier(version.name),
            columns,
            key=key,
            sort=key,
            properties={**properties_of_new(), **self.settings.properties, **entries, **doubts},
            format_version=self.settings.format_version,
        )
        writer = self._open(table)
        self._writers[self.identifier(version.name)] = writer
        return writer

    def _column(self, version: TableVersion, column: Column) -> pa.Field[pa.DataType]:
        kind = column_arrow_type(*version.name, column, self.rules)
        # Other columns stay optional: a column that TiDB fills for old rows without a message may hold NULL meanwhile.
        return pa.field(
            column.name,
            kind,
            nullable=column.name not in version.key,
            metadata={"doc": column.comment} if column.comment else None,
        )
