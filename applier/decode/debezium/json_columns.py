"""Decodes many Debezium rows in JSON at once into columns; `json_decoder.py` decodes what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableVersion
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, old_struct, row_struct
from applier.decode.debezium.rows import BITS, ConnectField, Layout
from applier.decode.json_messages import Tso

SCHEMA = b',"schema":{'
"""Where the schema of a message begins, behind the payload."""

_OP = b'"op":"'
_OPS = {b"c": Op.INSERT, b"u": Op.UPDATE, b"d": Op.DELETE}

_INT, _REAL, _TEXT = frozenset({int}), frozenset({int, float}), frozenset({str})
_KINDS: dict[str, tuple[frozenset[type], pa.DataType]] = {
    "boolean": (frozenset({bool}), pa.bool_()),
    "int16": (_INT, pa.int64()),
    "int32": (_INT, pa.int64()),
    "int64": (_INT, pa.int64()),
    "float": (_REAL, pa.float64()),
    "double": (_REAL, pa.float64()),
    "string": (_TEXT, pa.string()),
    "bytes": (_TEXT, pa.string()),
}

Head: TypeAlias = tuple[bytes, bytes, bytes]
"""Schema of the key, schema of the value, letter of the kind."""


class MessageHeads:
    """Recognises the heads of messages with a schema. Most have the schema of the one before."""

    def __init__(self) -> None:
        self._last = self._last_key = b"\0"

    def __call__(self, key: bytes | None, value: bytes | None) -> Head | None:
        """The head of a message; None for one that is read alone."""
        if not key or not value or key[:1] != b"{" or value[:1] != b"{" or value[-1:] != b"}":
            return None
        at, key_at = value.find(SCHEMA), key.find(SCHEMA)
        letter = value.find(_OP, 0, at) + len(_OP)
        if at < 0 or key_at < 0 or letter < len(_OP):
            return None
        self._last = self._last if _ends(value, at, self._last) else value[at:]
        self._last_key = self._last_key if _ends(key, key_at, self._last_key) else key[key_at:]
        return self._last_key, self._last, value[letter : letter + 1]


def _ends(data: bytes, at: int, tail: bytes) -> bool:
    return len(data) - at == len(tail) and data.endswith(tail)


def rows_reader(
    head: Head, layout: Layout, fields: Sequence[ConnectField], key: Sequence[str], kept: frozenset[Op]
) -> JsonRows | None:
    """A reader of rows with one head, these declared fields and the key columns of the Kafka key.

    Old rows are asked for of the `kept` kinds of changes.

    None if they must be read one by one, which the layout shows how to do; it raises ValueError for that, too.
    """
    version, op = layout.version, _OPS.get(head[2])
    declared = {field.name: field for field in fields}
    held = [declared[column.name] for column in version.columns]
    if op is None or layout.text_decimals or any(field.connect not in _KINDS for field in held):
        return None
    columns = tuple(_column(field, layout) for field in held)
    key_message = msgspec.defstruct("Key", [("payload", row_struct(key, [Any] * len(key)))], gc=False)
    old_names = [column.name for column in version.columns] if op in kept else version.key
    parse, parse_key = _parser(version, head[2].decode(), old_names), msgspec.json.Decoder(key_message).decode
    key_tail, tail = len(head[0]), len(head[1])

    def decode(key: bytes, value: bytes) -> Any:
        parse_key(key[:-key_tail] + b"}")
        return parse(value[:-tail] + b"}").payload

    row = attrgetter("before" if op is Op.DELETE else "after")
    old = attrgetter("before") if op is Op.UPDATE else None
    return JsonRows(version, op, columns, decode, attrgetter("source.commit_ts"), row, old, kept=kept)


def _column(field: ConnectField, layout: Layout) -> JsonColumn:
    types, kind = _KINDS[field.connect]
    return JsonColumn(field.name, pa.int64() if field.semantic == BITS else kind, types, layout.readers.get(field.name))


def _parser(version: TableVersion, letter: str, old: Sequence[str]) -> Callable[[bytes], Any]:
    """A decoder of messages with just these columns; what is None in it must not be there."""
    row = row_struct([column.name for column in version.columns], [Any] * len(version.columns))
    place: list[Any] = [("db", Literal[version.name.database]), ("table", Literal[version.name.table])]
    source = msgspec.defstruct("Source", [*place, ("commit_ts", Tso)], gc=False)
    before = old_struct(old, [Any] * len(old))
    images: dict[str, list[Any]] = {
        "c": [("after", row), ("before", None, None)],
        "u": [("after", row), ("before", before | None, None)],
        "d": [("before", row), ("after", None, None)],
    }
    absent: list[Any] = [(name, None, None) for name in ("ddl", "databaseName", "tableChanges")]
    members: list[Any] = [("source", source), ("op", Literal[letter]), *images[letter], *absent]
    payload = msgspec.defstruct("Payload", members, gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Message", [("payload", payload)], gc=False)).decode
