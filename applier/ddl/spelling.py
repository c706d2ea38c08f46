"""Resolves names of DDL text to the tables that they mean: TiDB finds tables in any letter case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from applier.changefeed.table import TableName, fold
from applier.ddl import actions as ddl


class Spelling:
    """How the tables that are there are spelt; `follow` moves it past an action.

    Args:
        tables: The tables that are there.
        others: Names that tables had, or that rows have: a table may not be known yet, or not any more.
    """

    def __init__(self, tables: Iterable[TableName], others: Iterable[TableName] = ()) -> None:
        self._tables = {name: name for name in tables}
        self._names = {name: name for name in sorted(others, key=tuple)} | self._tables
        self._databases = {name.folded[0]: name.database for name in self._names.values()}
        self._databases |= {name.folded[0]: name.database for name in self._tables}
        self._doubted: set[TableName] = set()
        self._dropped: dict[str, list[TableName]] = {}

    def __contains__(self, name: TableName) -> bool:
        return name in self._tables

    def of(self, name: TableName) -> TableName:
        """A table as it is spelt where its rows name it; the name of an unknown table stays as it is."""
        return self._names.get(name) or self._new(name)

    def of_table(self, table: str) -> list[TableName]:
        """The tables of a name in all databases, in order."""
        return sorted(name for name in self._tables.values() if name.folded[1] == fold(table))

    def of_databases(self, databases: Iterable[str]) -> list[TableName]:
        """All names in some databases, in order."""
        wanted = {fold(database) for database in databases}
        return sorted(name for name in self._names.values() if name.folded[0] in wanted)

    def of_dropped(self, database: str, to: str) -> list[TableName]:
        """The tables of a dropped database that comes back, by their names in the database `to`.

        Where the DROP DATABASE lies further back, they are all that the database ever had.
        """
        found = self._dropped.get(fold(database)) or self.of_databases([database])
        return [self._new(TableName(to, name.table)) for name in found]

    def spelt(self, action: ddl.Action) -> ddl.Action:
        """The action with the names of its tables as they are spelt; new names keep the letters of the text."""
        match action:
            case ddl.CreateTable(version=version):
                name = self._new(action.table)
                like = None if action.like is None else self.of(action.like)
                return replace(action, table=name, version=version and replace(version, name=name), like=like)
            case ddl.RenameTable():
                table, to = self.of(action.table), self._new(action.to)
                # One that changes letters alone leaves the table where it is.
                return ddl.NoRows(table) if table == to else ddl.RenameTable(table, to)
            case ddl.RecoverTable():
                return ddl.RecoverTable(self.of(action.table), None if action.to is None else self._new(action.to))
            case ddl.ExchangePartition():
                return replace(action, table=self.of(action.table), other=self.of(action.other))
        named = ddl.touches(action)
        return ddl.on(action, self.of(named[0])) if named else action

    def follow(self, action: ddl.Action) -> None:
        """Move past an action whose names are spelt."""
        done = ddl.effect(action)
        if done.database:
            wanted = fold(done.database)
            self._dropped[wanted] = [name for name in self._tables.values() if name.folded[0] == wanted]
        for name in done.leaving(list(self._names)):
            self._tables.pop(name, None)
            self._names.pop(name, None)
        if done.database:
            # The next database of that name has the letters of its own CREATE DATABASE.
            self._databases.pop(fold(done.database), None)
        for name in done.brought:
            self._add(name)

    def doubt(self, names: Iterable[TableName]) -> None:
        """Count on no table of some names any more: another one may have each. Statements still mean what has it."""
        for name in names:
            self._tables.pop(name, None)
            self._doubted.add(name)

    def is_doubted(self, name: TableName) -> bool:
        """Whether another table may have a name, or none."""
        return name in self._doubted

    def meet_database(self, name: str) -> None:
        """Take the spelling of a database from a message; a statement may spell it in any way."""
        self._databases[fold(name)] = name

    def meet(self, name: TableName) -> None:
        """Take note of a table whose rows name it."""
        if name not in self:
            self._add(name)

    def _new(self, name: TableName) -> TableName:
        # A name that is taken by what is known keeps its letters: they say where the rows lie.
        database = self._databases.get(name.folded[0], name.database)
        return self._tables.get(name) or TableName(database, name.table)

    def _add(self, name: TableName) -> None:
        self._doubted.discard(name)
        for known in (self._tables, self._names):
            known.pop(name, None)
            known[name] = name
        self._databases.setdefault(name.folded[0], name.database)
