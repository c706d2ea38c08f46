"""Maps each TiDB column type to its Arrow type, and so to the type of its Iceberg column.

Decoders build arrays of these types and the sink creates columns of them, so a row has one form in all protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import pyarrow as pa

from applier.changefeed.cast import check_pair, recast, target
from applier.changefeed.event import Op
from applier.changefeed.filter import TablePattern, most_specific
from applier.changefeed.history import OWN, changes_of, owner_of
from applier.changefeed.mask import Mask, masked
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion, fold
from applier.errors import RELOAD, SchemaChangeRefused

ZeroDates = Literal["null", "stop", "string"]
"""What zero and partial dates become."""

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

VIRTUAL = "virtual"
"""`Column.generated` of virtual columns."""

DATE_TYPES = frozenset({"date", "datetime", "timestamp"})
"""Types whose zero and partial dates (`0000-00-00`, `2020-00-00`) have no Iceberg value."""


class ColumnPath(str):
    """`database.table.column` of a column, for messages and for the rules of its table, which no plain text shows."""

    __slots__ = ("column", "name")

    name: TableName
    column: str

    def __new__(cls, name: TableName, column: str) -> Self:
        """The path of a column of a table."""
        path = super().__new__(cls, f"{name}.{column}")
        path.name, path.column = name, column
        return path


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
    zero_dates: ZeroDates = "null"
    zero_dates_of: Mapping[str, ZeroDates] = field(default_factory=dict)
    session_zone: str | None = "UTC"
    virtual_columns: Literal["omit", "null"] = "omit"
    unknown_default: Literal["stop", "null"] = "stop"
    distinct_keys: tuple[str, ...] = ()
    shapes: Sequence[tuple[TablePattern, Shape]] = ()
    _found: dict[TableName, Shape] = field(default_factory=dict, init=False, repr=False, compare=False)

    def shape_of(self, name: TableName) -> Shape:
        """What the rows of an upstream table are to be."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = most_specific(self.shapes, self.owner(name) or name) or _UPSTREAM
        return found

    def old_rows(self, name: TableName) -> frozenset[Op]:
        """Kinds of changes whose old rows the changes of an upstream table keep."""
        return self.shape_of(name).old_rows

    def owner(self, name: TableName) -> TableName | None:
        """The table that one of this name holds the changes of; None for an upstream table."""
        owner = owner_of(name) if self.shapes else None
        found = None if owner is None else most_specific(self.shapes, owner)
        return owner if found is not None and found.history else None

    def changes(self, name: TableName) -> TableName | None:
        """The table of changes of an upstream table; None where none is asked for."""
        is_kept = self.shape_of(name).history and self.owner(name) is None
        return changes_of(name) if is_kept else None

    def takes(self, name: TableName, column: Column) -> bool:
        """Whether the values of a column go into the Iceberg table of an upstream table: not those of an excluded one,
        nor of a virtual generated one, which no protocol carries.
        """
        return column.generated != VIRTUAL and not self.shape_of(name).excludes(column.name)

    def hides_differences(self, name: TableName, column: Column) -> bool:
        """Whether rows that differ in a column upstream may be alike here."""
        is_cut = self.mask_of(ColumnPath(name, column.name)) not in (None, "hash")
        return is_cut or self.shape_of(name).excludes(column.name)

    def lacks(self, name: TableName, column: Column) -> bool:
        """Whether the Iceberg table of an upstream table does not get a column when it is made or the column comes."""
        is_omitted = column.generated == VIRTUAL and self.virtual_columns == "omit"
        return is_omitted or self.shape_of(name).excludes(column.name)

    def zero_date_policy(self, path: str, kind: ColumnType | None = None) -> ZeroDates:
        """What zero dates become in the column `database.table.column`; of a date that is cast to text, text."""
        of = {fold(column): policy for column, policy in self.zero_dates_of.items()}
        if (own := of.get(fold(path))) is not None:
            return own
        if kind is not None and kind.name in DATE_TYPES and self.cast_of(kind, path) == "string":
            return "string"
        return self._shape_at(path).zero_dates or self.zero_dates

    def cast_of(self, kind: ColumnType, path: str) -> str | None:
        """The type that the user casts a column to, as Iceberg names it: its own, or that of all of its type.

        None for a column that is masked.
        """
        shape = self._shape_at(path)
        if self.mask_of(path) is not None:
            return None
        if isinstance(path, ColumnPath) and (own := shape.casts.get(fold(path.column))) is not None:
            return own
        is_unsigned = kind.unsigned and kind.name != "bit"
        return shape.types.get(f"{kind.name} unsigned" if is_unsigned else kind.name)

    def mask_of(self, path: str) -> Mask | None:
        """How the user masks a column."""
        return self._shape_at(path).masks.get(fold(path.column)) if isinstance(path, ColumnPath) else None

    @property
    def hides(self) -> bool:
        """Whether values of some upstream columns must not be found here, in whatever table."""
        return any(shape.hides for _, shape in self.shapes)

    def masked(self, values: pa.Array[Any], path: str) -> pa.Array[Any]:
        """The values of a column, masked if it is."""
        mask = self.mask_of(path)
        return values if mask is None else masked(values, mask, self._shape_at(path).secret)

    def is_truth(self, kind: ColumnType, path: str) -> bool:
        """Whether a tinyint(1) is a boolean by the rules, and no number that may be cast."""
        return (self._shape_at(path).tinyint1 or self.tinyint1) == "boolean" and self.cast_of(kind, path) is None

    def _shape_at(self, path: str) -> Shape:
        return self.shape_of(path.name) if self.shapes and isinstance(path, ColumnPath) else _UPSTREAM


_UPSTREAM = Shape()


def arrow_type(column: ColumnType, rules: TypeRules = TypeRules(), path: str = "") -> pa.DataType:
    """Arrow type of a column; `path` is its `database.table.column`, for the rules of single columns.

    Raises:
        ValueError: TiDB has no such type, or rows leave open which type it is; or it cannot be cast as the rules say.
    """
    plain = plain_type(column, rules, path)
    if rules.mask_of(path) is not None:
        return pa.string()
    text = rules.cast_of(column, path)
    if text is None or target(text) == plain:
        return plain
    check_pair(column.name, text)
    return target(text)


def reshaped(values: pa.Array[Any], column: ColumnType, rules: TypeRules, path: str) -> pa.Array[Any]:
    """The values of a column in its `arrow_type`, from those in its `plain_type`.

    Raises:
        NotExact: A cast does not hold one of them exactly.
    """
    if rules.mask_of(path) is not None:
        return rules.masked(values, path)
    wanted = arrow_type(column, rules, path)
    return values if wanted == values.type else recast(values, column, wanted)


def plain_type(column: ColumnType, rules: TypeRules = TypeRules(), path: str = "") -> pa.DataType:
    """Arrow type of a column whose values are not cast; the arguments and errors are those of `arrow_type`."""
    if column.name == "decimal":
        return _decimal(column)
    if column.name == "bit":
        return UINT64 if (column.length or 64) == 64 else pa.int64()
    if column.unsigned and column.name == "bigint":
        return UINT64
    if column.unsigned and column.name == "int":
        return pa.int64()
    if column.name == "tinyint" and column.length == 1 and rules.is_truth(column, path):
        return pa.bool_()
    if column.name in DATE_TYPES and rules.zero_date_policy(path, column) == "string":
        return pa.string()
    if column.name in OPEN:
        msg = f"no CREATE TABLE shows whether it holds {OPEN[column.name]}"
        raise ValueError(msg)
    if column.name not in _FIXED:
        msg = f"TiDB has no column type {column.name!r}"
        raise ValueError(msg)
    return _FIXED[column.name]


def check_key(version: TableVersion, rules: TypeRules) -> None:
    """Refuse a key whose values a mask makes alike.

    Raises:
        SchemaChangeRefused: A column of it has another mask than `hash`.
    """
    for column in version.key:
        mask = rules.mask_of(ColumnPath(version.name, column))
        if mask not in (None, "hash"):
            what = f"Column {column} is of the key of table {version.name}, and the mask {mask} makes rows alike."
            hint = f"""Set its mask to "hash" in [tables."{rules.shape_of(version.name).pattern}".columns]."""
            raise SchemaChangeRefused(what, hint)


def is_reshaped(name: TableName, column: Column, rules: TypeRules) -> bool:
    """Whether the values of a column are others than upstream, or of another type: cast or masked."""
    path = ColumnPath(name, column.name)
    return rules.mask_of(path) is not None or arrow_type(column.type, rules, path) != plain_type(
        column.type, rules, path
    )


def column_arrow_type(name: TableName, column: Column, rules: TypeRules) -> pa.DataType:
    """Arrow type of a column of a table, with the rules for that very column.

    Raises:
        SchemaChangeRefused: Rows leave open which type it has, or it cannot be cast as the rules say.
    """
    if column.type.name in OPEN:
        what = f"Column {column.name} of table {name} has no known type: no CREATE TABLE shows it."
        raise SchemaChangeRefused(what, RELOAD)
    owner = rules.owner(name)
    if owner is not None and column in OWN:
        return arrow_type(column.type)
    path = ColumnPath(owner or name, column.name)
    plain_type(column.type, rules, path)
    try:
        return arrow_type(column.type, rules, path)
    except ValueError as error:
        where = f'[tables."{rules.shape_of(name).pattern}"]'
        hint = f"Correct `cast` or `types` of {where}, and start `applier run -c FILE` again."
        raise SchemaChangeRefused(f"Column {column.name} of table {name}: {error}.", hint) from None


def _decimal(column: ColumnType) -> pa.DataType:
    precision = column.length or MAX_DECIMAL_DIGITS
    if precision > MAX_DECIMAL_DIGITS:
        return pa.string()
    try:
        return pa.decimal128(precision, column.scale or 0)
    except OverflowError:
        msg = "TiDB has no decimal with so many digits after the point"
        raise ValueError(msg) from None
