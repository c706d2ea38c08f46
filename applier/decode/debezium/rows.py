"""Reads a Debezium row, in JSON or Avro: columns and values of its declared fields, its table version, its change.

Debezium's names for types are Kafka Connect's (`int64`), made precise by a semantic one (`io.debezium.time.Date`).
TiCDC of the new architecture adds TiDB's own (`tidb_type`) with `enable-tidb-extension`. Without it a column is as wide
as its Connect type shows. Whether a string holds bytes, and an `int64` a sign, only a CREATE TABLE shows.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from applier.changefeed.event import Op, RowChange
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion, fingerprint
from applier.changefeed.types import OPEN
from applier.decode.avro.schema import members
from applier.errors import DecodeError, IncompleteRow
from applier.runtime.decimals import of_unscaled

OWN = 1 << 62
"""Set in the number of a version that a row described, never in that of one that a DDL described."""

UNKNOWN_VERSION = 0
"""What a row refers to whose types nothing has shown yet. No version has this number, so the row waits."""

_OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}

Reader: TypeAlias = Callable[[Any], Any]
"""Turns a value that is not NULL into a form that `decode/values.py` accepts; raises ValueError or TypeError."""

MILLISECONDS = "io.debezium.time.Timestamp"
BITS = "io.debezium.data.Bits"
_SEMANTIC = {
    BITS: "bit",
    MILLISECONDS: "datetime",
    "io.debezium.data.Enum": "enum",
    "io.debezium.data.EnumSet": "set",
    "io.debezium.data.Json": "json",
    "io.debezium.data.TiDBVectorFloat32": "vector",
    "io.debezium.time.Date": "date",
    "io.debezium.time.MicroTime": "time",
    "io.debezium.time.MicroTimestamp": "datetime",
    "io.debezium.time.Year": "year",
    "io.debezium.time.ZonedTimestamp": "timestamp",
    "org.apache.kafka.connect.data.Decimal": "decimal",
}
_CONNECT = {
    "boolean": "bit",
    "int16": "smallint",
    "int32": "int",
    "float": "float",
    "double": "double",
    "bytes": "blob",
    **{name: name for name in OPEN},
}
_TIMES = frozenset({"date", "datetime", "timestamp", "time"})
"""Types whose values count in a unit that only the semantic name shows."""


class ConnectField(msgspec.Struct, frozen=True):
    """A declared field; a node of a Connect schema in JSON.

    Attributes:
        name: Column name as upstream.
        connect: Connect type: `int16`, `string`, ….
        semantic: Semantic name, or "".
        tidb: TiDB's type in lower case without length; "" where the extension is off, and in the old architecture.
        nullable: False for NOT NULL.
        default: As declared, in the wire's own form.
        parameters: `length` of bits, `allowed` of enums and sets, `precision` and `scale` of decimals.
    """

    name: str = msgspec.field(name="field")
    connect: str = msgspec.field(name="type")
    semantic: str = msgspec.field(name="name", default="")
    tidb: str = msgspec.field(name="tidb_type", default="")
    nullable: bool = msgspec.field(name="optional", default=True)
    default: Any = None
    parameters: Mapping[str, Any] = {}

    @property
    def column(self) -> Column:
        """The column, as far as the field shows. Raises ValueError for a type that TiCDC does not write."""
        kind = self._type
        # Defaults of dates and times are in the wire's unit.
        is_text = self.default is not None and kind.name not in ("date", "datetime", "time", "bit")
        return Column(self.name, kind, self.nullable, str(self.default) if is_text else None)

    @property
    def reader(self) -> Reader | None:
        """How to read its values; None where they are in an accepted form already."""
        if self.semantic == MILLISECONDS:
            return microseconds
        if self.semantic == BITS:
            return little_endian
        if self._is_exact_decimal:
            return decimal(int(self.parameters["scale"]))
        return None

    @property
    def is_text_decimal(self) -> bool:
        """A decimal whose scale only the text of its values shows."""
        return self.tidb == "decimal" and self.connect == "string"

    @property
    def _is_exact_decimal(self) -> bool:
        return self.connect == "bytes" and "scale" in self.parameters

    @property
    def _type(self) -> ColumnType:
        declared = self.tidb or _SEMANTIC.get(self.semantic) or _CONNECT.get(self.connect)
        name, _, sign = (declared or "").partition(" ")
        if declared is None or (name in _TIMES and _SEMANTIC.get(self.semantic) != declared):
            raise ValueError(f"column {self.name!r} has the type {self.connect!r}")
        if name == "bit":
            length = self.parameters.get("length", 1 if self.connect == "boolean" else None)
            return ColumnType(name, length=None if length is None else int(length))
        if name in ("enum", "set"):
            return ColumnType(name, elements=members(str(self.parameters.get("allowed", ""))))
        if name == "decimal" and self._is_exact_decimal:
            return ColumnType(name, length=int(self.parameters["precision"]), scale=int(self.parameters["scale"]))
        if name == "decimal":
            # One that comes as a number has passed through a double, and its scale is not shown: it is a double.
            return ColumnType(name if self.is_text_decimal else "double")
        return ColumnType(name, unsigned=sign == "unsigned")


def microseconds(milliseconds: Any) -> int:
    """DATETIME with up to three digits counts milliseconds."""
    if type(milliseconds) is not int:
        raise TypeError
    return milliseconds * 1000


def little_endian(data: Any) -> int:
    """BIT: little-endian, as base64 text in JSON, unlike the Avro protocol's."""
    if isinstance(data, str):
        data = binascii.a2b_base64(data, strict_mode=True)
    return data if isinstance(data, int) else int.from_bytes(data, "little")


def decimal(scale: int) -> Reader:
    """Reader of a decimal that comes as unscaled bytes: two's complement, big-endian."""

    def read(unscaled: Any) -> Decimal:
        return of_unscaled(int.from_bytes(unscaled, "big", signed=True), scale)

    return read


def read_values(image: dict[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Bring the values of an image into accepted forms; takes the image over.

    Raises:
        DecodeError: A value is not of its column's declared type.
    """
    for name, reader in readers.items():
        value = image.get(name)
        if value is not None:
            try:
                image[name] = reader(value)
            except (TypeError, ValueError, OverflowError):
                raise DecodeError(f"Its column {name} does not hold what the schema declares.") from None
    return image


@dataclass(frozen=True, slots=True)
class Layout:
    """How to read rows of one description.

    Attributes:
        version: What they refer to.
        readers: For columns whose values need one.
        text_decimals: Columns of decimals that come as text.
        renamed: Upstream name of each field in Avro; None where all are the same.
    """

    version: TableVersion
    readers: dict[str, Reader]
    text_decimals: tuple[str, ...] = ()
    renamed: dict[str, str] | None = None


def declared_layout(
    name: TableName, fields: Sequence[ConnectField], key: tuple[str, ...], names: Collection[str]
) -> Layout:
    """Layout of rows that hold some of the declared fields; what is declared but not held is not replicated.

    Fields come in the declared order; TiCDC declares virtual generated columns, some builds twice. The key columns are
    those of the Kafka key.

    Raises:
        DecodeError: The row holds a column that is not declared, or TiCDC does not write a type.
    """
    by_name = {field.name: field for field in fields}
    undeclared = [column for column in names if column not in by_name]
    if undeclared:
        raise DecodeError(f"Its schema does not declare column {undeclared[0]} of table {name}.")
    fields = [field for field in by_name.values() if field.name in names]
    held = [msgspec.structs.replace(field, nullable=False) if field.name in key else field for field in fields]
    try:
        columns = tuple(field.column for field in held)
        readers = {field.name: field.reader for field in held}
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(f"Its schema declares something that TiCDC does not write: {error}.") from None
    return Layout(
        version=own_version(TableVersion(name, 0, columns, handle_key=key)),
        readers={column: reader for column, reader in readers.items() if reader is not None},
        text_decimals=tuple(field.name for field in held if field.is_text_decimal),
    )


def own_version(version: TableVersion) -> TableVersion:
    """The version with a number made of its content."""
    return replace(version, version=fingerprint(replace(version, version=0).to_json().encode()) | OWN)


def operation(letter: str | None) -> Op:
    """Kind of a row message. Raises DecodeError for anything but `c`, `u` and `d`."""
    op = _OPS.get(letter or "")
    if op is None:
        raise DecodeError(f"Its op is {letter!r:.20}, which is none of c, u, d and m.")
    return op


def held_image(op: Op, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """The image that names the row: the new one, of a delete the old one.

    Raises:
        IncompleteRow: The message does not hold it.
    """
    image = before if op is Op.DELETE else after
    if not image:
        kind = "old" if op is Op.DELETE else "new"
        raise IncompleteRow(f"Its {kind} image is missing, so it names no row.")
    return image


def row_change(
    layout: Layout, op: Op, commit_ts: int, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> RowChange:
    """The event of a row message; takes its images over."""
    version, readers = layout.version, layout.readers
    if readers:
        before = before and read_values(before, readers)
        after = after and read_values(after, readers)
    new = None if op is Op.DELETE else after
    return RowChange(version.name, version.version, commit_ts, op, None if op is Op.INSERT else before, new)
