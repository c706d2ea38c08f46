"""Many Debezium rows in JSON in, their columns out: the quick way of `debezium.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock, FixedRow
from applier.changefeed.table import TableVersion
from applier.decode.columnar.groups import Reader
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, row_struct
from applier.decode.debezium.fields import BITS, ConnectField
from applier.decode.debezium.rows import Layout

SCHEMA = b',"schema":{'
"""Where the schema of a message begins, behind the payload."""

_OP = b'"op":"'
_OPS = {b"c": Op.INSERT, b"u": Op.UPDATE, b"d": Op.DELETE}
_Tso = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

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


def rows_reader(head: Head, layout: Layout, fields: Sequence[ConnectField], key: Sequence[str]) -> Reader | None:
    """A reader of rows with one head; None if they must be read one by one.

    Args:
        head: The head.
        layout: How they are read one by one.
        fields: The declared fields.
        key: The key columns, as the Kafka key has them.
    """
    version, op = layout.version, _OPS.get(head[2])
    declared = {field.name: field for field in fields}
    held = [declared[column.name] for column in version.columns]
    if op is None or not key or layout.text_decimals or any(field.connect not in _KINDS for field in held):
        return None
    columns = tuple(_column(field, layout) for field in held)
    kinds = {column.name: column.kind for column in columns}
    if any(kinds.get(name, pa.float64()) == pa.float64() for name in version.key):
        return None  # a key column that rows lack, or whose equal values may be written in two ways
    try:
        decode, decode_key = _message(version, head[2].decode(), columns), _key(key)
    except ValueError:  # a column with a name that msgspec does not take
        return None
    return DebeziumJsonColumns(version, op, columns, decode, decode_key, len(head[1]), len(head[0]))


def _column(field: ConnectField, layout: Layout) -> JsonColumn:
    types, kind = _KINDS[field.connect]
    return JsonColumn(field.name, types, pa.int64() if field.semantic == BITS else kind, layout.readers.get(field.name))


def _message(version: TableVersion, letter: str, columns: Sequence[JsonColumn]) -> Callable[[bytes], Any]:
    """A decoder of messages with just these columns; what is None in it must not be there."""
    row: Any = row_struct([column.name for column in columns], [Any] * len(columns))
    place: list[Any] = [("db", Literal[version.name.database]), ("table", Literal[version.name.table])]
    source = msgspec.defstruct("Source", [*place, ("commit_ts", _Tso)], gc=False)
    images: dict[str, list[Any]] = {
        "c": [("after", row), ("before", None, None)],
        "u": [("after", row), ("before", row | None, None)],
        "d": [("before", row), ("after", None, None)],
    }
    absent: list[Any] = [(name, None, None) for name in ("ddl", "databaseName", "tableChanges")]
    members: list[Any] = [("source", source), ("op", Literal[letter]), *images[letter], *absent]
    payload = msgspec.defstruct("Payload", members, gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Message", [("payload", payload)], gc=False)).decode


def _key(names: Sequence[str]) -> Callable[[bytes], Any]:
    row = row_struct(names, [Any] * len(names))
    return msgspec.json.Decoder(msgspec.defstruct("Key", [("payload", row)], gc=False)).decode


@dataclass(frozen=True, slots=True)
class DebeziumJsonColumns(JsonRows):
    """Reads rows of one table and kind.

    Attributes:
        decode_key: Reads a key without its schema.
        tail: Bytes of the schema in each value.
        key_tail: Likewise, in each key.
    """

    decode_key: Callable[[bytes], Any]
    tail: int
    key_tail: int

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: npt.NDArray[np.int64]
    ) -> tuple[list[ColumnBlock], npt.NDArray[np.bool_]]:
        """See `Reader`."""
        pairs = zip(keys, values, strict=True)
        messages = [self._message(key or b"", value or b"") for key, value in pairs]
        odd = np.array([message is None for message in messages])
        payloads = [message.payload for message in messages if message is not None]
        images: list[FixedRow] = [payload.before if self.op is Op.DELETE else payload.after for payload in payloads]
        if self.op is Op.UPDATE:
            moved = self._moved([payload.before for payload in payloads], images)
            odd[np.flatnonzero(~odd)[moved]] = True
            payloads = [payload for payload, gone in zip(payloads, moved, strict=True) if not gone]
            images = [image for image, gone in zip(images, moved, strict=True) if not gone]
        if not images:
            return [], odd
        stamps = np.array([payload.source.commit_ts for payload in payloads], np.int64)
        return self.block(places[~odd], stamps, self._arrays(images, self.columns)), odd

    def _message(self, key: bytes, value: bytes) -> Any:
        """What a message holds; None if it is not as it seems."""
        try:
            self.decode_key(key[: -self.key_tail] + b"}")
            return self.decode(value[: -self.tail] + b"}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _arrays(self, images: Sequence[FixedRow], columns: Sequence[JsonColumn]) -> dict[str, pa.Array[Any]]:
        numbers = [self.columns.index(column) for column in columns]
        values = zip(*map(attrgetter(*(f"c{number}" for number in [*numbers, 0, 0])), images), strict=True)
        return {column.name: column.array(found) for column, found in zip(columns, values, strict=False)}

    def _moved(self, before: Sequence[FixedRow | None], after: Sequence[FixedRow]) -> npt.NDArray[np.bool_]:
        """Which updates change their key."""
        self._arrays(
            [image for image in before if image is not None], [c for c in self.columns if c.reader is not None]
        )
        numbers = [n for n, column in enumerate(self.columns) if column.name in self.version.key]
        key = attrgetter(*(f"c{number}" for number in numbers))
        pairs = zip(before, after, strict=True)
        return np.array([old is not None and key(old) != key(new) for old, new in pairs], np.bool_)
