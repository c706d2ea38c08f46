"""Follows all tables through a DDL: names, columns, keys and partitions.

TiDB compares names of databases and tables without regard to case, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import ColumnType, Partitioning, TableName, TableVersion, fold
from applier.ddl import actions as ddl
from applier.ddl.alter_table import apply
from applier.errors import SchemaChangeRefused


class _Entry(NamedTuple):
    """What is known of one table."""

    version: TableVersion
    partitioning: Partitioning | None = None


class Tables(Mapping[TableName, TableVersion]):
    """All tables that are known, as of one point of the changefeed; `apply` moves it past an action.

    A name in any letters finds its table, whose own name is spelt as upstream. Those that were dropped or truncated are
    remembered once, since RECOVER and FLASHBACK bring them back.
    """

    def __init__(self, versions: Iterable[TableVersion] = ()) -> None:
        self._entries: dict[TableName, _Entry] = {}
        self._gone: dict[TableName, _Entry] = {}
        for version in versions:
            self.put(version)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TableName]:
        return iter([entry.version.name for entry in self._entries.values()])

    def __getitem__(self, name: TableName) -> TableVersion:
        return self._entries[name].version

    def spelt(self, name: TableName) -> TableName | None:
        """The name of a table as upstream, or None."""
        version = self.get(name)
        return version.name if version else None

    def of_database(self, database: str) -> list[TableName]:
        """Names of the tables of a database: those that DROP DATABASE takes along."""
        return [name for name in self if name.folded[0] == fold(database)]

    def partitioning(self, name: TableName) -> Partitioning | None:
        """How a table is partitioned; None where it is not, or where no statement shows it."""
        entry = self._entries.get(name)
        return entry.partitioning if entry else None

    def put(self, version: TableVersion, partitioning: Partitioning | None = None) -> None:
        """Set the columns of a table. Its spelling stays, and so does its partitioning if none is given."""
        known = self._entries.get(version.name)
        if known is not None:
            version, partitioning = version.renamed(known.version.name), partitioning or known.partitioning
        self._entries[version.name] = _Entry(version, partitioning)

    def beside(self, others: Tables) -> Tables:
        """These tables, and those of `others` that are not among them."""
        if not len(others):
            return self
        both = self.copy()
        for name, version in others.items():
            if name not in self:
                both.put(version, others.partitioning(name))
        return both

    def copy(self) -> Tables:
        """An independent copy."""
        other = Tables()
        other._entries = dict(self._entries)
        other._gone = dict(self._gone)
        return other

    def move(self, change: SchemaChange, actions: Sequence[ddl.Action]) -> None:
        """Move past actions of a DDL as upstream took them; without any, past the table that its message describes.

        A table that does not admit an action stays as it is; the code that applies the action refuses it.
        """
        for action in actions:
            self._follow(action, change.commit_ts)
        after = change.after
        if after is None or (actions and all(after.name not in ddl.touches(action) for action in actions)):
            return
        # A table may be met first by what changes it, and rows behind that are read by what it left.
        brings = ddl.CreateTable | ddl.RecoverTable | ddl.ColumnAction | ddl.IndexAction
        if after.name in self or any(isinstance(action, brings) for action in actions):
            self.put(after.declared(self.get(after.name)))

    def _follow(self, action: ddl.Action, new_version_id: int) -> None:
        try:
            self.apply(action, new_version_id)
        except SchemaChangeRefused:
            if isinstance(action, ddl.AddIndex) and action.index.primary:
                # The rows behind it have the new key.
                self.apply(ddl.DropIndex(action.table, "primary"), new_version_id)
                self._follow(action, new_version_id)

    def apply(self, action: ddl.Action, new_version_id: int) -> None:
        """Move past an action; a table that it creates or changes gets the version `new_version_id`.

        Raises:
            SchemaChangeRefused: As `apply` of one table.
        """
        match action:
            case ddl.CreateTable():
                self._create(action, new_version_id)
            case ddl.DropTable():
                self._forget(action.table)
            case ddl.DropDatabase():
                for name in self.of_database(action.database):
                    self._forget(name)
            case ddl.TruncateTable():
                self._remember(action.table)
            case ddl.RenameTable():
                entry = self._entries.pop(action.table, None)
                # A table that is not known takes the name all the same: what had it before is stale.
                self._entries.pop(action.to, None)
                self._name(entry, action.to)
            case ddl.RecoverTable():
                self._name(self._gone.pop(action.table, None), action.to or action.table)
            case ddl.CreateDatabase() | ddl.AlterDatabase():
                pass
            case _:
                if (entry := self._entries.get(action.table)) is not None:
                    version = apply(entry.version, action, new_version_id)
                    self._entries[action.table] = _Entry(version, _partitioned(entry.partitioning, action))

    def _create(self, action: ddl.CreateTable, new_version_id: int) -> None:
        self._entries.pop(action.table, None)
        version, partitioning = action.version, action.partitioning
        if (source := self.source(action)) is not None:
            version = replace(source, name=action.table, table_id=None, schemas=(), proofs=())
            partitioning = self.partitioning(source.name)
        if version is not None:
            self._entries[action.table] = _Entry(replace(version, version=new_version_id), partitioning)

    def source(self, create: ddl.CreateTable) -> TableVersion | None:
        """The table that CREATE TABLE … LIKE takes its columns from; None where it is not known."""
        if not create.among:
            return self.get(create.like) if create.like else None
        # A table that the feed leaves out may be meant, so without rows one that is known is not proven either.
        found = [self.get(name) for name in create.among] if create.rows else [None]
        fitting = [table for table in found if table is None or all(_fits(rows, table) for rows in create.rows)]
        first = fitting[0] if fitting else None
        is_certain = first is not None and all(table is not None and _is_alike(table, first) for table in fitting)
        return first if is_certain else None

    def _remember(self, name: TableName) -> None:
        if (entry := self._entries.get(name)) is not None:
            self._gone[name] = entry

    def _forget(self, name: TableName) -> None:
        self._remember(name)
        self._entries.pop(name, None)

    def _name(self, entry: _Entry | None, name: TableName) -> None:
        if entry is not None:
            self._entries[name] = _Entry(entry.version.renamed(name), entry.partitioning)


def _fits(rows: TableVersion, table: TableVersion) -> bool:
    """Whether rows are those of a table: of all its columns, as far as a row can show them."""
    held = {column.name: column for column in table.columns if column.generated != "virtual"}
    return (
        held.keys() == {column.name for column in rows.columns}
        # Members are numbers in most protocols, and what they stand for is never guessed.
        and all(_kind(column.type) == _kind(held[column.name].type) for column in rows.columns)
        and set(rows.key) in (set(), set(table.key))
    )


def _kind(of: ColumnType) -> tuple[str, bool, tuple[str, ...]]:
    return of.name, of.unsigned, of.elements


def _is_alike(one: TableVersion, other: TableVersion) -> bool:
    return replace(one, name=other.name, version=other.version, table_id=other.table_id) == other


def _partitioned(before: Partitioning | None, action: ddl.Action) -> Partitioning | None:
    """How a table is partitioned after an action; None where it is unknown."""
    match action:
        case ddl.SetPartitioning():
            return action.partitioning
        case ddl.AddPartitions() if before is not None:
            # Those without a name are called by their place.
            named = [
                partition if partition.name else replace(partition, name=f"p{place}")
                for place, partition in enumerate(action.partitions, len(before.partitions))
            ]
            return replace(before, partitions=(*before.partitions, *named))
        case ddl.DropPartitions() if before is not None:
            dropped = {fold(name) for name in action.names}
            return replace(before, partitions=tuple(p for p in before.partitions if fold(p.name) not in dropped))
        case ddl.ReorganizePartitions() if before is not None:
            return _reorganized(before, action)
    return before


def _reorganized(before: Partitioning, action: ddl.ReorganizePartitions) -> Partitioning | None:
    names = {fold(name) for name in action.names}
    place = next((at for at, partition in enumerate(before.partitions) if fold(partition.name) in names), None)
    if place is None:
        return None
    kept = [partition for partition in before.partitions if fold(partition.name) not in names]
    return replace(before, partitions=(*kept[:place], *action.partitions, *kept[place:]))
