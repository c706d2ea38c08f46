"""DDL that change rows without row events: partitions that go or change places with tables, tables that come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.completeness import LIVE, Completeness, Why, incomplete
from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion, fold
from applier.ddl.actions import DropPartitions, ExchangePartition, RecoverTable, TruncatePartitions, kind
from applier.errors import RELOAD, SchemaChangeRefused
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.state import State
from applier.pipeline.tables.ddl_stamp import (
    DDL,
    DROPPED_AT,
    DROPPED_VERSION,
    TRUNCATED_AT,
    TRUNCATED_STATE,
    TRUNCATED_VERSION,
    is_in,
    mark,
    shown,
)
from applier.pipeline.tables.kept_tables import aside
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.sink.commit.stamp import Stamp
from applier.sink.control.rows import Decision
from applier.sink.evolve.move_rows import Chosen, commit_of, is_empty_of, replace_rows, snapshot_before, stage_rows
from applier.sink.iceberg.table import Table
from applier.sink.tidb_partitions.predicate import PartitionRows, rows_of
from applier.sink.write.table_writer import TableWriter

Rows: TypeAlias = DropPartitions | TruncatePartitions | ExchangePartition | RecoverTable
"""Actions that change rows without a message in the feed."""


@dataclass(frozen=True, slots=True)
class RowDdlApplier:
    """Applies these DDL to the Iceberg tables; each may be called again after a crash at any point."""

    targets: TargetTables
    state: State

    def apply(self, change: SchemaChange, action: Rows) -> Decision:
        """Apply one action; SchemaChangeRefused where it cannot be determined exactly which rows it changes."""
        if not self.targets.feed.order.parts_at_ddl:
            # In a longer window, rows that come late would pass for rows that the tables have.
            moved_names.begin(self.state)
        match action:
            case DropPartitions(table, names) | TruncatePartitions(table, names):
                self._empty(change, table, names)
            case ExchangePartition():
                self._exchange(change, action)
                return "rewritten"
            case RecoverTable():
                self._recover(change, action)
        return "applied"

    # ---- partitions

    def _empty(self, change: SchemaChange, table: TableName, names: Sequence[str]) -> None:
        """Remove the rows of some partitions; of all if none is named."""
        writer = self.targets.writer(table)
        if writer is None or is_in(writer.known, change):
            return
        stamp = self._stamp(change, writer)
        if names:
            chosen = self._chosen(change, table, names)
            self._refuse_absent(chosen, table, writer)
            done = writer.replace_where(chosen.columns, chosen.predicate, stamp)
        else:
            done = writer.truncate(stamp)
        self.targets.committed(writer, done.snapshot_id)

    def _exchange(self, change: SchemaChange, action: ExchangePartition) -> None:
        """Let the rows of a partition and those of a table change places, in one commit a table.

        The partitioned table is first. After a crash between the two, the other table gets its rows from the snapshot
        on which the first commit was made.
        """
        table, other = self._exchanging(change, action.table), self._exchanging(change, action.other)
        self.targets.maker.refuse_other_shape(table.table, action.other)
        chosen = self._chosen(change, action.table, [action.partition])
        if not is_in(table.known, change):
            self._refuse_absent(chosen, action.table, table)
            self._refuse_absent(chosen, action.other, other)
            coming = partial(stage_rows, table.table, other.table, other.table.snapshot_id, _checked(chosen, action))
            done = table.replace_where(chosen.columns, chosen.predicate, self._stamp(change, table), coming)
            self.targets.committed(table, done.snapshot_id)
        failpoints.reach("half-exchanged")
        if not is_in(other.known, change):
            before = snapshot_before(table.table, DDL, mark(change))
            leaving = partial(stage_rows, other.table, table.table, before, chosen.predicate)
            snapshot_id = replace_rows(other.table, leaving, self._stamp(change, other))
            other.reload()
            self.targets.committed(other, snapshot_id)

    def _exchanging(self, change: SchemaChange, name: TableName) -> TableWriter:
        writer = self.targets.writer(name) if self.targets.include.admits(name) else None
        if writer is None:
            what = f"The rows of table {name}, which are exchanged, are not here: {shown(change.sql)}."
            raise SchemaChangeRefused(what, RELOAD)
        return writer

    def _chosen(self, change: SchemaChange, table: TableName, names: Sequence[str]) -> PartitionRows:
        version = self.state.tables.get(table)
        if version is None:
            raise SchemaChangeRefused(f"The columns of table {table} are not known: {shown(change.sql)}.", RELOAD)
        return rows_of(version, self.state.tables.partitioning(table), names, self.targets.maker.rules)

    def _refuse_absent(self, chosen: PartitionRows, name: TableName, writer: TableWriter) -> None:
        """A column that no row has a value of may be NULL everywhere, or may not be in the feed at all."""
        version = self.state.tables.get(name)
        key = version.key if version else ()
        for column in chosen.columns:
            if column not in key and is_empty_of(writer.table, column):
                what = f"No row of table {name} has a value of column {column}, which decides on its partition."
                raise SchemaChangeRefused(what, f"If the feed leaves that column out, let it in. {RELOAD}")

    # ---- tables that come back

    def _recover(self, change: SchemaChange, action: RecoverTable) -> None:
        name = action.to or action.table
        here = self.targets.writer(name)
        if here is not None and is_in(here.known, change):
            self.know_again(change, action)
            return
        kept = self._kept(change, action.table)
        live = self.targets.writer(action.table)
        truncated_at = int((live.table.setting(TRUNCATED_AT) if live else None) or 0)
        if kept is not None and _dropped_at(kept, change) > truncated_at:
            self._undrop(change, action, self.targets.opened(kept))
        elif live is not None and truncated_at and name != action.table:
            self._untruncate(change, action, live, str(truncated_at))
        else:
            what = f"{kind(action)} brings back rows of table {action.table} that are not here: {shown(change.sql)}."
            hint = f'Set tables.on_drop to "keep" to keep the rows of dropped tables. {RELOAD}'
            raise SchemaChangeRefused(what, hint)

    def _kept(self, change: SchemaChange, name: TableName) -> Table | None:
        """The copy that is kept of the newest table that was dropped under a name."""
        identifier = self.targets.identifier(name)
        prefix = aside(identifier, "")[-1]
        others = [found for found in self.targets.catalog.list(identifier[:-1]) if found[-1].startswith(prefix)]
        tables = [table for found in (identifier, *others) if (table := self.targets.catalog.load(found)) is not None]
        kept = [table for table in tables if _is_kept(table, change, identifier)]
        return max(kept, key=lambda table: _dropped_at(table, change), default=None)

    def know_again(self, change: SchemaChange, action: RecoverTable) -> None:
        """Know a table that came back, where nothing but its own mark shows what it was."""
        name = action.to or action.table
        here = self.targets.writer(name)
        number = None if here is None else here.table.setting(DROPPED_VERSION)
        known = _numbered(self.state.versions.values(), action.table, number)
        if change.after is None and known is not None and name not in self.state.tables:
            self.state.track(known.renamed(name))

    def _undrop(self, change: SchemaChange, action: RecoverTable, kept: TableWriter) -> None:
        """Take the mark of the drop off, and give the table its name back. It is marked as brought back first, so that
        after a crash it is not taken for one that makes way.
        """
        name = action.to or action.table
        if not is_in(kept.known, change):
            kept.stamp(self._stamp(change, kept), unset=(DROPPED_AT,))
        self.targets.kept.pop(kept.table.identifier, None)
        if kept.table.identifier != self.targets.identifier(name):
            self.targets.make_way(name)
            self.targets.confirm()
            self.targets.catalog.rename(kept.table.identifier, self.targets.identifier(name))
        self.targets.forget(name)
        self.know_again(change, action)
        here = self.targets.writer(name)
        if here is not None:
            self.targets.follow(here)

    def _untruncate(self, change: SchemaChange, action: RecoverTable, live: TableWriter, truncated_at: str) -> None:
        """Make a table of the rows that another one had before it was truncated."""
        name = action.to or action.table
        if (emptied := commit_of(live.table, TRUNCATED_AT, truncated_at)) is None:
            what = f"The rows that table {action.table} had before its TRUNCATE have expired: {shown(change.sql)}."
            raise SchemaChangeRefused(what, RELOAD)
        number, version = live.table.setting(TRUNCATED_VERSION), change.after
        if version is None or version.name != name:
            version = _numbered(self.state.versions.values(), action.table, number)
        if version is None:
            what = f"The columns that table {action.table} had before its TRUNCATE are not known: {shown(change.sql)}."
            raise SchemaChangeRefused(what, RELOAD)
        version = version.renamed(name)
        back = self.targets.ensure(version, self.targets.feed.stamp(change.commit_ts))
        schema = live.table.schema_at(emptied.id)
        rows = partial(stage_rows, back.table, live.table, emptied.parent_id, schema=schema)
        known = LIVE if live.table.setting(TRUNCATED_STATE) == LIVE.state else incomplete(Why.CAME_BACK)
        had = {DROPPED_VERSION: number or str(version.version), **self.targets.records.entries(name, back, known)}
        snapshot_id = replace_rows(back.table, rows, self._stamp(change, back, had))
        back.reload()
        self.targets.committed(back, snapshot_id)
        self.know_again(change, action)

    # ---- commits

    def _stamp(self, change: SchemaChange, writer: TableWriter, had: Mapping[str, str] | None = None) -> Stamp:
        return self.targets.feed.stamp(change.commit_ts, {DDL: mark(change), **(had or {})}, writer)


def dropped(commit_ts: int, version: TableVersion | None) -> dict[str, str]:
    """Entries of the stamp of a table that was dropped and is kept."""
    number = {DROPPED_VERSION: str(version.version)} if version else {}
    return {DROPPED_AT: str(commit_ts), **number}


def truncated(change: SchemaChange, version: TableVersion | None, known: Completeness | None) -> dict[str, str]:
    """Entries of the stamp of a TRUNCATE: what FLASHBACK TABLE brings back."""
    number, state = str(version.version) if version else "", known.state if known else ""
    return {TRUNCATED_AT: str(change.commit_ts), TRUNCATED_VERSION: number, TRUNCATED_STATE: state}


def _numbered(versions: Iterable[TableVersion], name: TableName, number: str | None) -> TableVersion | None:
    """The version of a number, by preference of that very table: the table may have had another name then."""
    found = [version for version in versions if str(version.version) == number]
    return max(found, key=lambda version: version.name == name, default=None)


def _is_kept(table: Table, change: SchemaChange, identifier: tuple[str, ...]) -> bool:
    """Whether it is a table that was dropped there: others have such names, and may be dropped upstream as well."""
    at = table.setting(DROPPED_AT) or ""
    own = {identifier, aside(identifier, at)} if at else ()
    return table.setting(DDL) == mark(change) or table.identifier in own


def _dropped_at(table: Table, change: SchemaChange) -> int:
    """Commit ts of the drop; that of the change itself if it has taken the mark off already; 0 for a table in use."""
    return change.commit_ts if table.setting(DDL) == mark(change) else int(table.setting(DROPPED_AT) or 0)


def _checked(chosen: PartitionRows, action: ExchangePartition) -> Chosen:
    """All rows, which must belong in the partition that takes them."""
    spelt = {fold(name): name for name in chosen.columns}

    def check(rows: pa.Table) -> pa.BooleanArray:
        inside = chosen.predicate(rows.rename_columns([spelt.get(fold(name), name) for name in rows.column_names]))
        if inside.false_count:
            what = (
                f"Rows of table {action.other} do not belong in partition {action.partition} of table {action.table}, "
                f"which takes them WITHOUT VALIDATION."
            )
            raise SchemaChangeRefused(what, "move those rows upstream, then load both tables again.")
        return inside

    return check
