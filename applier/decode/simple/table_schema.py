"""Reads a `tableSchema` of the Simple protocol, in JSON or Avro, as a `TableVersion`."""

from __future__ import annotations

import msgspec

from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.decode.json_messages import Tso
from applier.decode.row_schemas import HIDDEN, SIGNED

_SECOND_TYPES = {"time": 10, "datetime": 19, "timestamp": 19}
"""Types with fractional seconds, and the display width of one without them: `-838:59:59`, `2020-02-20 02:20:20`."""


class DataType(msgspec.Struct, rename="camel"):
    """Type of a column as TiCDC writes it; JSON leaves out what is zero, false or empty."""

    mysql_type: str
    length: int = 0
    decimal: int | None = None
    elements: list[str] | None = None
    unsigned: bool | None = False

    def to_type(self, *, avro: bool) -> ColumnType:
        """The type in our terms. `year` and `bit` are flagged unsigned on the wire, which says nothing."""
        name, scale = self.mysql_type, None
        if name == "decimal" or name in _SECOND_TYPES:
            scale = max(self.decimal or 0, 0)  # A BOOTSTRAP has -1 where the statement gives none.
        if avro and name in _SECOND_TYPES:
            # Avro leaves the digits of seconds out; the point and they show in the display width.
            scale = max(self.length - _SECOND_TYPES[name] - 1, 0)
        unsigned = bool(self.unsigned) and name in SIGNED
        length = self.length if self.length > 0 else None  # -1 is a VECTOR of any dimension.
        return ColumnType(name, unsigned, length, scale, tuple(self.elements or ()))


class ColumnSchema(msgspec.Struct, rename="camel"):
    """One column as TiCDC writes it. The default of a bit is a number, of all else text."""

    name: str
    data_type: DataType
    nullable: bool
    default: str | int | None

    def to_column(self, *, avro: bool) -> Column:
        """The column in our terms."""
        default = None if self.default is None else str(self.default)
        return Column(self.name, self.data_type.to_type(avro=avro), self.nullable, default)


class IndexSchema(msgspec.Struct):
    """One index as TiCDC writes it."""

    name: str
    unique: bool
    primary: bool
    columns: list[str]


class SimpleTableSchema(msgspec.Struct, rename={"table_id": "tableID"}):
    """A table as TiCDC writes it; the name of its database is called `schema` in JSON and `database` in Avro."""

    table: str
    table_id: int
    version: Tso
    columns: list[ColumnSchema]
    indexes: list[IndexSchema] | None
    schema: str = ""
    database: str = ""

    @property
    def name(self) -> TableName:
        """The table's name."""
        return TableName(self.schema or self.database, self.table)

    def to_version(self, *, avro: bool = False) -> TableVersion | None:
        """The table version; None for a view, whose columns have the type `unspecified`."""
        if any(column.data_type.mysql_type == "unspecified" for column in self.columns):
            return None
        shown = [column for column in self.columns if not column.name.startswith(HIDDEN)]
        names = {column.name for column in shown}
        indexes = [index for index in self.indexes or () if names.issuperset(index.columns)]
        return TableVersion(
            name=self.name,
            version=self.version,
            columns=tuple(column.to_column(avro=avro) for column in shown),
            indexes=tuple(Index(i.name, tuple(i.columns), i.unique, i.primary) for i in indexes),
            table_id=self.table_id,
        )
