"""Reads the table, its columns and the extension fields from a record schema that TiCDC generated."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from applier.changefeed.table import UNKNOWN_DEFAULT, Column, ColumnType, TableName
from applier.decode.registry.wire_format import AvroSchema
from applier.errors import RegistryError

BEFORE = "_ticdc_before"
OP = "_tidb_op"
COMMIT_TS = "_tidb_commit_ts"
PHYSICAL_TIME = "_tidb_commit_physical_time"
CHECKSUM = "_tidb_row_level_checksum"
CORRUPTED = "_tidb_corrupted"
CHECKSUM_VERSION = "_tidb_checksum_version"

_EXTENSION = {
    OP: "string",
    COMMIT_TS: "long",
    PHYSICAL_TIME: "long",
    CHECKSUM: "string",
    CORRUPTED: "boolean",
    CHECKSUM_VERSION: "int",
}
"""Avro types of the extension fields but `_ticdc_before`, which is NULL or a record of the columns."""

_SEPARATOR = re.compile(r"(?<!\\),")
_NAMED = ("int", "bigint", "float", "double", "decimal", "text", "blob", "bit", "enum", "set", "json")
_NAMES = {name.upper(): name for name in (*_NAMED, "date", "datetime", "timestamp", "time", "year")}
_NAMES["TiDBVECTORFloat32"] = "vector"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What a generated schema says.

    Attributes:
        name: Table, with sanitised names.
        columns: In the order of the fields, with sanitised names.
        scales: Digits after the point of the decimals that come as bytes, by column.
        text_decimals: Columns of decimals that come as text, which alone shows their scale.
        extension: Extension fields that it has.
        op_has_default: The op field has a default, as since TiCDC v7.1.
    """

    name: TableName
    columns: tuple[Column, ...]
    scales: dict[str, int]
    text_decimals: tuple[str, ...]
    extension: frozenset[str]
    op_has_default: bool


def record_schema(schema_id: int, schema: AvroSchema) -> RecordSchema:
    """Read a generated key or value schema.

    Raises:
        RegistryError: TiCDC did not generate it.
    """
    try:
        return _record(schema)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"Schema id {schema_id} is not one that TiCDC generates for protocol avro ({error})."
        raise RegistryError(what, "is the protocol of the changefeed right?") from None


def members(allowed: str) -> tuple[str, ...]:
    r"""Members of an enum or set from TiCDC's `allowed`: joined by `,`, a `,` inside a member written `\,`.

    A backslash is not escaped, so a member that ends with one cannot be distinguished from an escaped comma.
    """
    return tuple(member.replace("\\,", ",") for member in _SEPARATOR.split(allowed))


def _record(schema: AvroSchema) -> RecordSchema:
    fields = schema["fields"]
    if schema["type"] != "record":
        raise ValueError("it is no record")
    kinds = {field["name"]: kind for field in fields if (kind := _kind(field)) is not None}
    described = [field for field in fields if _kind(field) is not None]
    extension = {field["name"]: field["type"] for field in fields if _kind(field) is None}
    if not described:
        raise ValueError("it has no column")
    _refuse_partial(extension)
    for name, kind in extension.items():
        if _EXTENSION.get(name) != kind and not (name == BEFORE and _is_old_image(kind, described)):
            raise ValueError(f"its field {name!r} is neither a column nor one of the extension")
    decimals = [name for name, kind in kinds.items() if _parameter(kind, "tidb_type") == "DECIMAL"]
    return RecordSchema(
        name=_table_name(schema),
        columns=tuple(_column(field, kinds[field["name"]]) for field in described),
        scales={name: int(kinds[name].get("scale", 0)) for name in decimals if kinds[name]["type"] == "bytes"},
        text_decimals=tuple(name for name in decimals if kinds[name]["type"] == "string"),
        extension=frozenset(extension),
        op_has_default=any(field["name"] == OP and "default" in field for field in fields),
    )


def _refuse_partial(extension: Collection[str]) -> None:
    """Refuse extension fields without those that TiCDC writes with them: a DELETE would pass for an UPDATE."""
    if extension and OP not in extension:
        raise ValueError(f"it has {min(extension)!r}, but not {OP!r}")
    if COMMIT_TS not in extension and not {PHYSICAL_TIME, CHECKSUM}.isdisjoint(extension):
        raise ValueError(f"it has fields of the TiDB extension, but not {COMMIT_TS!r}")


def _is_old_image(kind: AvroSchema, described: list[dict[str, Any]]) -> bool:
    """Whether a type is NULL or a record of the same columns."""
    null, before = kind
    columns = [(field["name"], field["type"]) for field in described]
    return null == "null" and [(field["name"], field["type"]) for field in before["fields"]] == columns


def _table_name(schema: AvroSchema) -> TableName:
    """The namespace is `<changefeed namespace>.<database>`, each sanitised, so it has one dot."""
    _, dot, database = schema["namespace"].partition(".")
    if not dot or not isinstance(schema["name"], str):
        raise ValueError("its namespace names no database")
    return TableName(database, schema["name"])


def _branches(field: dict[str, Any]) -> list[AvroSchema]:
    kind = field["type"]
    return kind if isinstance(kind, list) else [kind]


def _kind(field: dict[str, Any]) -> dict[str, Any] | None:
    """Type of a column, the null of a union left out; None for an extension field, whose type has no parameters."""
    kinds = (kind for kind in _branches(field) if isinstance(kind, dict))
    return next((kind for kind in kinds if kind.get("connect.parameters") is not None), None)


def _parameter(kind: dict[str, Any], name: str) -> str:
    return str(kind["connect.parameters"][name])


def _column(field: dict[str, Any], kind: dict[str, Any]) -> Column:
    column_type = _column_type(kind)
    nullable = "null" in _branches(field)
    default = _default(field.get("default"), column_type.name, kind)
    if column_type.name == "decimal" and kind["type"] == "bytes" and not nullable:
        # TiCDC declares no default of a precise decimal: whether there is one is not known.
        default = UNKNOWN_DEFAULT
    if column_type.name == "year" and default == "0" and not nullable:
        # DEFAULT 0 is the year 2000; a column without a default has the year 0000, and the same schema.
        default = UNKNOWN_DEFAULT
    return Column(field["name"], column_type, nullable, default)


def _column_type(kind: dict[str, Any]) -> ColumnType:
    text, _, sign = _parameter(kind, "tidb_type").partition(" ")
    name, unsigned = _NAMES[text], sign == "UNSIGNED"
    if name == "int" and unsigned and kind["type"] == "int":
        # TINYINT, SMALLINT and MEDIUMINT also say INT UNSIGNED; only the real one is written as long.
        return ColumnType("mediumint", unsigned=True)
    if name == "decimal" and kind["type"] == "bytes":
        return ColumnType(name, length=int(kind["precision"]), scale=int(kind.get("scale", 0)))
    if name == "bit":
        return ColumnType(name, length=int(_parameter(kind, "length")))
    if name in ("enum", "set"):
        return ColumnType(name, elements=members(_parameter(kind, "allowed")))
    return ColumnType(name, unsigned=unsigned)


def _default(value: Any, name: str, kind: dict[str, Any]) -> str | None:
    """Text of a default; those of bytes are base64, which is not Avro's own convention."""
    if value is None or kind["type"] != "bytes":
        return None if value is None else str(value)
    try:
        data = base64.b64decode(value, validate=True)
        return str(int.from_bytes(data, "big")) if name == "bit" else data.decode()
    except (binascii.Error, UnicodeDecodeError):
        return UNKNOWN_DEFAULT
