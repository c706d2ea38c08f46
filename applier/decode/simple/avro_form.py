"""Reads one Simple message in Avro as a `SimpleEnvelope`.

TiCDC writes the messages without any header, as the last of a union of twelve records, so each begins with 0x16. The
kind of the message and the branch of its payload follow, one byte each. Rows are by far the most, and are read by
hand here, which takes half the time of a general reader; all else goes through fastavro with `message.avsc`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib.resources import files
from struct import Struct
from typing import Any, TypeVar

import fastavro
import msgspec

from applier.decode.json_messages import PROTOCOL_HINT
from applier.decode.simple.json_form import Checksum, SimpleEnvelope
from applier.decode.simple.table_schema import SimpleTableSchema
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError

WATERMARK, BOOTSTRAP, DDL, ROW = b"\x16\x00\x00", b"\x16\x02\x02", b"\x16\x04\x04", b"\x16\x06\x06"
KINDS = frozenset({WATERMARK, BOOTSTRAP, DDL, ROW})
"""First three bytes of a message."""

_T = TypeVar("_T")

_OPS = ("INSERT", "UPDATE", "DELETE")
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_U64 = (1 << 64) - 1
_PRESENT, _LONG, _STRING = 2, 2, 8
"""Bytes that name a branch of a union: twice its index."""
_LONG_OR_ODD = 0x81
"""Bits of a length's first byte that are set where it has more bytes or is negative."""


def read(value: bytes) -> SimpleEnvelope:
    """Read a message that begins with one of `KINDS`.

    Raises:
        DecodeError: The bytes do not follow the schema, or do not end where it ends.
    """
    kind = value[:3]
    try:
        return _row(value) if kind == ROW else _envelope(kind, _general(value))
    except UnicodeError as error:
        raise DecodeError("The message holds text that is not UTF-8.") from error
    except Exception as error:  # fastavro raises whatever broken bytes lead it into.
        raise DecodeError(
            f"The message is not Avro of the Simple protocol: {type(error).__name__}.", PROTOCOL_HINT
        ) from error


_SCHEMA = fastavro.parse_schema(json.loads(files("applier.decode.simple").joinpath("message.avsc").read_bytes()))


def _general(value: bytes) -> dict[str, Any]:
    source = io.BytesIO(value)
    # A default of a binary column may hold any bytes, in a field that is text.
    datum: Any = fastavro.schemaless_reader(source, _SCHEMA, None, handle_unicode_errors="surrogateescape")
    if source.tell() != len(value):
        raise ValueError
    payload: dict[str, Any] = datum["payload"]
    return payload


def _envelope(kind: bytes, payload: dict[str, Any]) -> SimpleEnvelope:
    if kind == WATERMARK:
        return SimpleEnvelope(payload["version"], "WATERMARK", commit_ts=payload["commitTs"])
    if kind == BOOTSTRAP:
        return SimpleEnvelope(payload["version"], "BOOTSTRAP", table_schema=_table(payload["tableSchema"]))
    return SimpleEnvelope(
        payload["version"],
        payload["type"],
        commit_ts=payload["commitTs"],
        sql=_clean(payload["sql"]),
        table_schema=_table(payload["tableSchema"]),
        pre_table_schema=_table(payload["preTableSchema"]),
    )


def _table(schema: dict[str, Any] | None) -> SimpleTableSchema | None:
    if schema is None:
        return None
    for column in schema["columns"]:
        default = column["default"]
        if default is not None:
            bits = column["dataType"]["mysqlType"] == "bit"
            column["default"] = int.from_bytes(_raw(default), "big") if bits else _clean(default)
        elements = column["dataType"]["elements"]
        if elements:
            column["dataType"]["elements"] = [_clean(element) for element in elements]
    table = msgspec.convert(schema, SimpleTableSchema)
    # What is left of broken bytes is in names, which must not be changed; Python would fail on them much later.
    json.dumps(schema, ensure_ascii=False).encode()
    return table


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _clean(text: str) -> str:
    """The text with U+FFFD for bytes that are no UTF-8, as the JSON encoder writes it."""
    return _raw(text).decode("utf-8", "replace")


def _row(data: bytes) -> SimpleEnvelope:
    """Read a row; fields in the order of the schema. Any exception means broken bytes.

    Slices may reach beyond the end of the bytes: the next byte read, or the check at the end, shows.
    """
    version, at = _long(data, len(ROW))
    database, at = _text(data, at)
    table, at = _text(data, at)
    at = _skip(data, at)  # tableID: of a partition, and nothing else refers to it
    kind, at = _OPS[data[at] >> 1], at + 1
    commit_ts, at = _natural(data, at)
    at = _skip(data, at)  # buildTs
    schema_version, at = _natural(data, at)
    location, at = _optional(_text, data, at)
    handle_key_only, at = _optional(_boolean, data, at)
    checksum, at = _optional(_checksum, data, at)
    new, at = _optional(_image, data, at)
    old, at = _optional(_image, data, at)
    if at != len(data):
        raise ValueError
    return SimpleEnvelope(
        version, kind, database, table, commit_ts, schema_version, new, old, handle_key_only is True, location, checksum
    )


def _optional(read: Callable[[bytes, int], tuple[_T, int]], data: bytes, at: int) -> tuple[_T | None, int]:
    """A union of null and something."""
    if data[at] == 0:
        return None, at + 1
    if data[at] != _PRESENT:
        raise ValueError
    return read(data, at + 1)


def _image(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """A map of column names to values, in blocks. Strings and numbers are most of it, so they are read in place."""
    image: dict[str, Any] = {}
    value: Any
    count, at = _block(data, at)
    while count:
        for _ in range(count):
            name, at = _text(data, at)
            branch = data[at]
            at += 1
            if branch == _STRING:
                size = data[at]
                size, at = _natural(data, at) if size & _LONG_OR_ODD else (size >> 1, at + 1)
                value = data[at : at + size].decode()
                at += size
            elif branch == _LONG:
                value, at = _long(data, at)
            else:
                value, at = _VALUES[branch](data, at)
            image[name] = value
        count, at = _block(data, at)
    return image, at


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Number of items in the next block of a map; 0 at its end."""
    count, at = _long(data, at)
    if count < 0:  # Then the size of the block in bytes follows.
        return -count, _skip(data, at)
    return count, at


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    if number > _U64:
        raise ValueError
    return (number >> 1) ^ -(number & 1), at + 1


def _skip(data: bytes, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _natural(data: bytes, at: int) -> tuple[int, int]:
    """A number that cannot be negative. A negative length would walk backwards through the bytes for ever."""
    number, at = _long(data, at)
    if number < 0:
        raise ValueError
    return number, at


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _natural(data, at)
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    size = data[at]
    size, at = _natural(data, at) if size & _LONG_OR_ODD else (size >> 1, at + 1)
    return data[at : at + size].decode(), at + size


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return (False, True)[data[at]], at + 1


def _checksum(data: bytes, at: int) -> tuple[Checksum, int]:
    version, at = _long(data, at)
    corrupted, at = _boolean(data, at)
    current, at = _long(data, at)
    previous, at = _long(data, at)
    return Checksum(version, corrupted, current, previous), at


def _timestamp(data: bytes, at: int) -> tuple[ZonedText, int]:
    location, at = _text(data, at)
    value, at = _text(data, at)
    return ZonedText(location, value), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at)
    return number & _U64, at


_VALUES: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    0: lambda _data, at: (None, at),
    4: lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4),
    6: lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8),
    10: _take,
    12: _timestamp,
    14: _unsigned,
}
"""Readers of the other branches of a value's union, by the byte that names each."""
