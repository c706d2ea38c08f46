"""Maps each TiDB column type to its Arrow type, and so to the type of its Iceberg column.

Decoders build arrays of these types and the sink creates columns of them, so a row has one form in all protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from applier.changefeed.filter import TablePattern, most_specific
from applier.changefeed.history import changes_of, owner_of
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, ColumnType, TableName, fold
from applier.errors import RELOAD, SchemaChangeRefused

UINT64 = pa.decimal128(20, 0)
"""Unsigned 64-bit numbers: no Iceberg integer holds them, and they must not wrap."""

MAX_DECIMAL_DIGITS = 38
"""Digits of Iceberg's widest decimal; TiDB allows 65."""

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
"""Families of types whose values are written alike."""
_FIXED: dict[str, pa.DataType] = {
    **dict.fromkeys((*INTEGERS, "year"), pa.int32()),
    **dict.fromkeys((*TEXTS, "time", "json", "enum", "set"), pa.string()),
    **dict.fromkeys(BINARIES, pa.binary()),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "vector": pa.list_(pa.float32()),
    # A time of applier's own, which no rule for the dates of upstream concerns.
    "instant": pa.timestamp("us", tz="UTC"),
}
OPEN = {"string": "text or bytes", "int64": "signed or unsigned numbers"}
"""Types of columns whose rows leave open which of several TiDB types they have, and what their values may be."""

DATE_TYPES = frozenset({"date", "datetime", "timestamp"})
"""Types whose zero and partial dates (`0000-00-00`, `2020-00-00`) have no Iceberg value."""


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Settings that change the mapping.

    Attributes:
        tinyint1: `boolean` maps tinyint(1) to boolean; `int` keeps the number.
        zero_dates: Zero and partial dates become NULL and are counted (`null`), stop the feed (`stop`), or make every
            date, datetime and timestamp column a `string`.
        zero_dates_of: The same for single columns, by `database.table.column`.
        session_zone: IANA zone of a TIMESTAMP default; None where it is unknown.
        virtual_columns: Whether virtual generated columns, whose values no protocol carries, are left out of tables
            (`omit`) or hold NULL (`null`).
        unknown_default: Whether a new column whose value in existing rows is not known stops the feed (`stop`), or is
            NULL in them until they change (`null`).
        distinct_keys: Filter rules of tables in which, on the user's word, the protocol sends no two keys alike.
        shapes: What the rows of the tables of some patterns are to be, of which the most specific one counts.
    """

    tinyint1: Literal["int", "boolean"] = "int"
    zero_dates: Literal["null", "stop", "string"] = "null"
    zero_dates_of: Mapping[str, Literal["null", "stop", "string"]] = field(default_factory=dict)
    session_zone: str | None = "UTC"
    virtual_columns: Literal["omit", "null"] = "omit"
    unknown_default: Literal["stop", "null"] = "stop"
    distinct_keys: tuple[str, ...] = ()
    shapes: Sequence[tuple[TablePattern, Shape]] = ()

    def shape_of(self, name: TableName) -> Shape:
        """What the rows of an upstream table are to be."""
        return most_specific(self.shapes, self.owner(name) or name) or _UPSTREAM

    def owner(self, name: TableName) -> TableName | None:
        """The table that one of this name holds the changes of; None for an upstream table."""
        owner = owner_of(name) if self.shapes else None
        found = None if owner is None else most_specific(self.shapes, owner)
        return owner if found is not None and found.history else None

    def changes(self, name: TableName) -> TableName | None:
        """The table of changes of an upstream table; None where none is asked for."""
        is_kept = self.shape_of(name).history and self.owner(name) is None
        return changes_of(name) if is_kept else None

    def zero_date_policy(self, path: str) -> Literal["null", "stop", "string"]:
        """What zero dates become in the column `database.table.column`."""
        of = {fold(column): policy for column, policy in self.zero_dates_of.items()}
        return of.get(fold(path), self.zero_dates) if of else self.zero_dates


_UPSTREAM = Shape()


def arrow_type(column: ColumnType, rules: TypeRules = TypeRules(), path: str = "") -> pa.DataType:
    """Arrow type of a column; `path` is its `database.table.column`, for the rules of single columns.

    Raises:
        ValueError: TiDB has no such type, or rows leave open which type it is.
    """
    if column.name == "decimal":
        return _decimal(column)
    if column.name == "bit":
        return UINT64 if (column.length or 64) == 64 else pa.int64()
    if column.unsigned and column.name == "bigint":
        return UINT64
    if column.unsigned and column.name == "int":
        return pa.int64()
    if column.name == "tinyint" and column.length == 1 and rules.tinyint1 == "boolean":
        return pa.bool_()
    if column.name in DATE_TYPES and rules.zero_date_policy(path) == "string":
        return pa.string()
    if column.name in OPEN:
        msg = f"no CREATE TABLE shows whether it holds {OPEN[column.name]}"
        raise ValueError(msg)
    if column.name not in _FIXED:
        msg = f"TiDB has no column type {column.name!r}"
        raise ValueError(msg)
    return _FIXED[column.name]


def column_arrow_type(name: TableName, column: Column, rules: TypeRules) -> pa.DataType:
    """Arrow type of a column of a table, with the rules for that very column.

    Raises:
        SchemaChangeRefused: Rows leave open which type it has.
    """
    if column.type.name in OPEN:
        what = f"Column {column.name} of table {name} has no known type: no CREATE TABLE shows it."
        raise SchemaChangeRefused(what, RELOAD)
    return arrow_type(column.type, rules, f"{rules.owner(name) or name}.{column.name}")


def _decimal(column: ColumnType) -> pa.DataType:
    precision = column.length or MAX_DECIMAL_DIGITS
    if precision > MAX_DECIMAL_DIGITS:
        return pa.string()
    try:
        return pa.decimal128(precision, column.scale or 0)
    except OverflowError:
        msg = "TiDB has no decimal with so many digits after the point"
        raise ValueError(msg) from None
