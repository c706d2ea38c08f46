"""Builds the Avro schema that TiCDC registers for the columns of a table; `decode/avro/schema.py` reads it back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.changefeed.table import Column, ColumnType, TableName
from applier.decode.avro.namesakes import sanitised
from applier.decode.avro.schema import BEFORE
from applier.decode.registry.wire_format import AvroSchema
from applier.errors import IncompatibleSchema

_INTS = ("tinyint", "smallint", "mediumint", "int")
_PLAIN = ("bit", "enum", "set", "json", "date", "datetime", "timestamp", "time", "year", "float", "double")
_NAMES = {
    **{name: name.upper() for name in _PLAIN},
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "TEXT"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "BLOB"),
    "vector": "TiDBVECTORFloat32",
}
_AVRO = {"year": "int", "float": "float", "double": "double", "bit": "bytes"}
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""Characters that Go's JSON encoder escapes."""

_LONG, _LONGS = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class AvroForm:
    """How a changefeed is set to write schemas.

    Attributes:
        namespace: Namespace or keyspace of the changefeed, sanitised.
        text_decimals: `avro-decimal-handling-mode=string`.
        text_unsigned: `avro-bigint-unsigned-handling-mode=string`.
        extension: Fields behind the columns, as registered; empty without `enable-tidb-extension`.
    """

    namespace: str = "default"
    text_decimals: bool = False
    text_unsigned: bool = False
    extension: tuple[dict[str, Any], ...] = ()

    @staticmethod
    def of(schemas: Iterable[AvroSchema]) -> AvroForm:
        """The form that value schemas are written in, from some of them, newest first.

        The first gives namespace and extension; each mode is shown by the first schema that has a column of the type,
        and is TiCDC's default where none has.
        """
        form, is_text = AvroForm(), dict[str, bool]()
        for number, schema in enumerate(schemas):
            if number == 0:
                form = AvroForm(schema["namespace"].partition(".")[0], extension=extension(schema))
            for kind in filter(None, map(column_kind, schema["fields"])):
                is_text.setdefault(kind["connect.parameters"]["tidb_type"], kind["type"] == "string")
        text = is_text.get("DECIMAL", False), is_text.get("BIGINT UNSIGNED", False)
        return AvroForm(form.namespace, *text, extension=form.extension)


def value_schema(
    name: TableName, columns: Sequence[Column], form: AvroForm, kept: Mapping[str, dict[str, Any]] | None = None
) -> str:
    """The schema of a table's rows, virtual generated columns included.

    Fields that are registered already and stay are in `kept`, by the sanitised name of their column: a schema shows
    less than a column, and some versions of TiCDC write defaults that others do not. Where two columns get one name,
    TiCDC cannot make a schema, and IncompatibleSchema is raised.
    """
    record = _record(name, form, _fields(columns, form, kept or {}))
    old = {**record, "name": f"{record['name']}_before"}
    added = [dict(field, type=["null", old]) if field["name"] == BEFORE else field for field in form.extension]
    return _text({**record, "fields": [*record["fields"], *added]})


def key_schema(
    name: TableName, columns: Sequence[Column], form: AvroForm, kept: Mapping[str, dict[str, Any]] | None = None
) -> str:
    """The schema of a table's keys: of its key columns alone, in table order. See `value_schema`."""
    return _text(_record(name, form, _fields(columns, form, kept or {})))


def column_kind(field: dict[str, Any]) -> dict[str, Any] | None:
    """Type object of a column's field; None for a field of the extension."""
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    found = [branch for branch in branches if isinstance(branch, dict) and "connect.parameters" in branch]
    return found[0] if found else None


def extension(schema: AvroSchema) -> tuple[dict[str, Any], ...]:
    """The fields of `enable-tidb-extension` in a value schema; () without it."""
    return tuple(field for field in schema["fields"] if column_kind(field) is None)


def _record(name: TableName, form: AvroForm, fields: list[dict[str, Any]]) -> dict[str, Any]:
    namespace = f"{form.namespace}.{sanitised(name.database)}"
    return {"type": "record", "name": sanitised(name.table), "namespace": namespace, "fields": fields}


def _fields(columns: Sequence[Column], form: AvroForm, kept: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    for column in columns:
        clean = sanitised(column.name)
        if clean in names:
            what = f"Columns {names[clean]} and {column.name} both become {clean} in Avro, so TiCDC can make no schema."
            raise IncompatibleSchema(what, "give them names that differ in letters, digits and underscores too.")
        names[clean] = column.name
    return [kept.get(sanitised(column.name)) or _field(column, form) for column in columns]


def _field(column: Column, form: AvroForm) -> dict[str, Any]:
    kind = _kind(column.type, form)
    name, default = sanitised(column.name), _default(column, kind)
    if default is None and not column.nullable:
        return {"name": name, "type": kind}
    # Avro wants a default to be of the union's first branch.
    union = ["null", kind] if default is None else [kind, "null"]
    return {"default": default, "name": name, "type": union if column.nullable else kind}


def _kind(column: ColumnType, form: AvroForm) -> dict[str, Any]:
    """Type object of a column (`columnToAvroSchema` in `pkg/sink/codec/avro`)."""
    sign = " UNSIGNED" if column.unsigned else ""
    if column.name in _INTS:
        return _typed("long" if column.name == "int" and column.unsigned else "int", f"INT{sign}")
    if column.name == "bigint":
        return _typed("string" if column.unsigned and form.text_unsigned else "long", f"BIGINT{sign}")
    if column.name == "decimal" and form.text_decimals:
        return _typed("string", "DECIMAL")
    if column.name == "decimal":
        digits = {"precision": column.length or 10, "scale": column.scale or 0}
        return _typed("bytes", "DECIMAL") | {"logicalType": "decimal"} | digits
    if column.name not in _NAMES:
        msg = f"TiCDC writes no Avro schema for a column of type {column.name}."
        raise IncompatibleSchema(msg)
    name = _NAMES[column.name]
    avro = _AVRO.get(column.name, "bytes" if name == "BLOB" else "string")
    if name == "BIT":
        return _typed(avro, name, length=str(column.length or 1))
    if name in ("ENUM", "SET"):
        return _typed(avro, name, allowed=_allowed(column.elements))
    return _typed(avro, name)


def _typed(avro: str, tidb_type: str, **parameters: str) -> dict[str, Any]:
    return {"type": avro, "connect.parameters": {**parameters, "tidb_type": tidb_type}}


def _allowed(elements: Iterable[str]) -> str:
    """Members as TiCDC joins them (`escapeEnumAndSetOptions`): a backslash stays as it is."""
    return ",".join(member.replace(",", "\\,").replace("\\'", "'").replace("''", "'") for member in elements)


def _default(column: Column, kind: dict[str, Any]) -> Any:
    """The default as JSON; None for none, and for decimals that are bytes, which never get one."""
    text = column.default
    if text is None or "logicalType" in kind:
        return None
    if kind["type"] == "bytes":
        return base64.b64encode(_bits(text) if column.type.name == "bit" else text.encode()).decode()
    try:
        match kind["type"]:
            case "int" | "long":
                return _integer(text)
            case "float" | "double":
                return _real(text)
    except ValueError:
        return None
    return text


def _bits(text: str) -> bytes:
    number = int(text) if text.isdecimal() else 0
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")


def _integer(text: str) -> int:
    """A number in 64 bits with a sign: unsigned ones wrap, as their values do."""
    number = int(float(text)) if "." in text or "e" in text.lower() else int(text)
    return number - _LONGS if _LONG <= number < _LONGS else number


def _real(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _text(schema: dict[str, Any]) -> str:
    """JSON as Go writes it: compact, and with the characters of HTML escaped."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")).translate(_HTML)
