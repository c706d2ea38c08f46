"""Resolves names of DDL text to the tables that they mean: TiDB finds tables in any letter case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from applier.changefeed.table import TableName
from applier.ddl.actions import Action, CreateTable, ExchangePartition, RecoverTable, RenameTable, effect, on, touches


class Spelling:
    """How the tables that are there are spelt; `follow` moves it past an action.

    Args:
        tables: The tables that are there.
        others: Names that tables had, or that rows have: a table may not be known yet, or not any more.
    """

    def __init__(self, tables: Iterable[TableName], others: Iterable[TableName] = ()) -> None:
        self._tables = {name.folded: name for name in tables}
        self._names = {*others, *self._tables.values()}
        self._others = {name.folded: name for name in sorted(self._names)}
        self._databases = {name.database.lower(): name.database for name in self._names}

    def __contains__(self, name: TableName) -> bool:
        return name.folded in self._tables

    def of(self, name: TableName) -> TableName:
        """A table as it is spelt where its rows name it; the name of an unknown table stays as it is."""
        found = self._tables.get(name.folded)
        if found is not None or name in self._names:
            return found or name
        return self._others.get(name.folded) or self._new(name)

    def of_databases(self, databases: Iterable[str]) -> list[TableName]:
        """All names in some databases, in order."""
        wanted = {database.lower() for database in databases}
        return sorted(name for name in self._names if name.database.lower() in wanted)

    def spelt(self, action: Action) -> Action:
        """The action with the names of its tables as they are spelt; new names keep the letters of the text."""
        match action:
            case CreateTable(version=version):
                name = self._new(action.table)
                like = None if action.like is None else self.of(action.like)
                return replace(action, table=name, version=version and replace(version, name=name), like=like)
            case RenameTable():
                return RenameTable(self.of(action.table), self._new(action.to))
            case RecoverTable():
                return RecoverTable(self.of(action.table), None if action.to is None else self._new(action.to))
            case ExchangePartition():
                return replace(action, table=self.of(action.table), other=self.of(action.other))
        named = touches(action)
        return on(action, self.of(named[0])) if named else action

    def follow(self, action: Action) -> None:
        """Move past an action whose names are spelt."""
        done = effect(action)
        for name in done.leaving(self._names):
            self._tables.pop(name.folded, None)
        for name in done.brought:
            self._add(name)

    def meet_database(self, name: str) -> None:
        """Take the letters of a database from a message, which has them as upstream: a statement has any."""
        self._databases[name.lower()] = name

    def meet(self, name: TableName) -> None:
        """Take note of a table whose rows name it."""
        if name not in self:
            self._add(name)

    def _new(self, name: TableName) -> TableName:
        return TableName(self._databases.get(name.database.lower(), name.database), name.table)

    def _add(self, name: TableName) -> None:
        self._tables[name.folded] = name
        self._names.add(name)
        self._databases.setdefault(name.database.lower(), name.database)
