"""Reads the table version after a DDL from the `tableChanges` of its Debezium message."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict

import msgspec

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.decode.row_schemas import HIDDEN
from applier.errors import DecodeError

_IDENTIFIER = re.compile(r'"((?:[^"]|"(?!,|\.|$))*)"')
_FRACTIONAL = frozenset({"datetime", "timestamp", "time"})
_UNTYPED = "unspecified"
"""Type of the columns of a view."""

MIN_COMMIT_TS = 1 << 50
MAX_COMMIT_TS = (1 << 62) - 1
"""A described version is numbered by the commit ts of its DDL, which lies between these from 1970 to 2500."""


class ColumnChange(msgspec.Struct, rename="camel", gc=False):
    """One column of a description. TiCDC always writes each member; the length or scale of 0 may be null."""

    name: str
    type_name: str
    length: int | None
    scale: int | None
    optional: bool
    default_value_expression: str | None
    enum_values: list[str] | None
    comment: str | None


class TableDescription(msgspec.Struct, rename="camel", gc=False):
    """A table after a DDL."""

    columns: list[ColumnChange]
    primary_key_column_names: list[str]


class TableChange(msgspec.Struct, gc=False):
    """One element of `tableChanges`; `table` is None for a table that is gone."""

    id: str
    table: TableDescription | None


def schema_change(name: TableName, commit_ts: int, sql: str, database: str, changes: list[TableChange]) -> SchemaChange:
    """The event of a DDL message.

    Name and commit ts are those of `source`: the new name after a RENAME, table "" for a DDL of a database. Names in
    the statement belong to `database`. `tableChanges` has one element, or none for a database and for TRUNCATE.
    """
    after = next((version for change in changes if (version := table_version(name, commit_ts, change))), None)
    return SchemaChange(commit_ts, sql, database, after, after and _former(after, changes), name.table)


def table_version(name: TableName, commit_ts: int, change: TableChange) -> TableVersion | None:
    """The table after a DDL; None for one that is gone, for a view, and where `id` means another table.

    Raises:
        DecodeError: The commit ts is no TSO, so the version could not be distinguished from others.
    """
    table = change.table
    # The last identifier of `"db"."table"` is the table, and of `"db"."old","db"."new"` the new one.
    if table is None or _IDENTIFIER.findall(change.id)[-1:] != [name.table]:
        return None
    if not MIN_COMMIT_TS <= commit_ts <= MAX_COMMIT_TS:
        raise DecodeError(f"Its commit ts {commit_ts} is no TSO.")
    columns = [column for column in table.columns if not column.name.startswith(HIDDEN)]
    if any(column.type_name.lower() == _UNTYPED for column in columns):
        return None
    # TiCDC lists the columns of a NOT NULL unique index here where the table has no primary key.
    key = tuple(table.primary_key_column_names)
    indexes = (Index("PRIMARY", key, unique=True, primary=True),) if key else ()
    return TableVersion(name, commit_ts, tuple(_column(column) for column in columns), indexes)


def _former(after: TableVersion, changes: list[TableChange]) -> TableVersion | None:
    """The table before a RENAME, whose statement may leave its database open; None where `id` names one table."""
    for parts in (_IDENTIFIER.findall(change.id) for change in changes):
        if len(parts) == 4 and parts[2:] == [after.name.database, after.name.table]:
            return after.renamed(TableName(parts[0], parts[1]))
    return None


class Described:
    """Descriptions of tables by the commit ts from which they hold."""

    def __init__(self) -> None:
        self._versions: dict[TableName, list[tuple[int, TableVersion]]] = defaultdict(list)

    def learn(self, version: TableVersion) -> None:
        """Take a version that `table_version` made; others are passed over."""
        known = self._versions[version.name]
        if MIN_COMMIT_TS <= version.version <= MAX_COMMIT_TS and all(number != version.version for number, _ in known):
            insort(known, (version.version, version), key=lambda entry: entry[0])

    def in_force(self, name: TableName, commit_ts: int) -> TableVersion | None:
        """The table as a row of that commit ts was written: a DDL comes after all rows at or below its commit ts."""
        known = self._versions.get(name, [])
        at = bisect_left(known, commit_ts, key=lambda entry: entry[0])
        return known[at - 1][1] if at else None


def _column(column: ColumnChange) -> Column:
    words = column.type_name.lower().split()
    return Column(
        name=column.name,
        type=_type(words[0] if words else "", column, is_unsigned="unsigned" in words),
        nullable=column.optional,
        default=column.default_value_expression,
        comment=column.comment or "",
    )


def _type(name: str, column: ColumnChange, *, is_unsigned: bool) -> ColumnType:
    if name in _FRACTIONAL:
        return ColumnType(name, scale=column.length or 0)
    if name == "decimal":
        return ColumnType(name, is_unsigned, column.length, column.scale or 0)
    if name in ("enum", "set"):
        return ColumnType(name, elements=tuple(_unquoted(value) for value in column.enum_values or ()))
    length = column.length or 1 if name == "bit" else column.length
    return ColumnType(name, is_unsigned, length)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text
