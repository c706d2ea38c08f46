"""What a message of the Simple protocol holds, the description of a table in JSON or Avro, and rows in JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, old_struct, row_struct
from applier.decode.json_messages import Tso
from applier.decode.row_schemas import HIDDEN, SIGNED
from applier.decode.values.dates import ZONED, ZonedText

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


class Checksum(msgspec.Struct):
    """Checksums of a row's images; 0 where there is none.

    Attributes:
        version: What TiDB stored: 0 the number itself, 1 and 2 a checksum of bytes from which TiCDC made the number.
        corrupted: TiCDC found that the row differs from what TiDB stored.
        current: Of the new image.
        previous: Of the old image.
    """

    version: int = 0
    corrupted: bool = False
    current: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    previous: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0


class SimpleEnvelope(msgspec.Struct, gc=False, rename="camel"):
    """The members of a message of any type; those that a type does not have keep their defaults."""

    version: int
    type: str
    database: str = ""
    table: str = ""
    commit_ts: Tso = 0
    schema_version: Tso = 0
    data: dict[str, str | ZonedText | None] | None = None
    old: dict[str, str | ZonedText | None] | None = None
    handle_key_only: bool = False
    claim_check_location: str | None = None
    checksum: Checksum | None = None
    sql: str = ""
    table_schema: SimpleTableSchema | None = None
    pre_table_schema: SimpleTableSchema | None = None


class _PlainMessage(msgspec.Struct, gc=False, rename="camel", kw_only=True):
    """What a row's message has if there is nothing special about it: what is None here must not be there."""

    version: Literal[1]
    commit_ts: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    handle_key_only: None = None
    claim_check_location: None = None
    checksum: None = None


ENVELOPES = msgspec.json.Decoder(SimpleEnvelope)


def row_reader(sample: SimpleEnvelope, op: Op, version: TableVersion, kept: frozenset[Op]) -> JsonRows:
    """A reader of messages like a sample row, with the old rows of the `kept` kinds.

    Raises:
        ValueError: They must be read one by one.
    """
    image = (sample.old if op is Op.DELETE else sample.data) or {}
    columns = tuple(JsonColumn(name, ZONED if _is_zoned(name, version) else pa.string()) for name in image)
    kinds = [ZonedText | None if column.kind == ZONED else str | None for column in columns]
    fields: list[Any] = [("type", Literal[sample.type]), ("schema_version", Literal[sample.schema_version])]
    row = row_struct(list(image), kinds)
    if op is Op.UPDATE:
        held = list(image) if op in kept else version.key
        of = dict(zip(image, kinds, strict=True))
        fields += [("data", row), ("old", old_struct(held, [of[name] | msgspec.UnsetType for name in held]))]
    else:
        fields.append(("old" if op is Op.DELETE else "data", row))
    message = msgspec.defstruct("Message", fields, bases=(_PlainMessage,), gc=False, rename="camel", kw_only=True)
    parse = msgspec.json.Decoder(message).decode
    return JsonRows(
        version,
        op,
        columns,
        lambda _key, value: parse(value),
        attrgetter("commit_ts"),
        attrgetter("old" if op is Op.DELETE else "data"),
        attrgetter("old") if op is Op.UPDATE else None,
        kept=kept,
    )


def _is_zoned(name: str, version: TableVersion) -> bool:
    column = version.column(name)
    return column is not None and column.type.name == "timestamp"
