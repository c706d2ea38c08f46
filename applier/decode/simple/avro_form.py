"""Reads one Simple message in Avro as a `SimpleEnvelope`.

TiCDC writes the messages without any header, as the last of a union of twelve records, so each begins with 0x16. The
kind of the message and the branch of its payload follow, one byte each. `avro_columns.py` reads many rows at once; all
else goes through fastavro with `message.avsc`.
"""

from __future__ import annotations

import io
import json
from importlib.resources import files
from typing import Any

import fastavro
import msgspec

from applier.decode.json_messages import PROTOCOL_HINT
from applier.decode.simple.json_form import Checksum, SimpleEnvelope, SimpleTableSchema
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError

WATERMARK, BOOTSTRAP, DDL, ROW = b"\x16\x00\x00", b"\x16\x02\x02", b"\x16\x04\x04", b"\x16\x06\x06"
KINDS = frozenset({WATERMARK, BOOTSTRAP, DDL, ROW})
"""First three bytes of a message."""

_U64 = (1 << 64) - 1


def read(value: bytes) -> SimpleEnvelope:
    """Read a message that begins with one of `KINDS`.

    Raises:
        DecodeError: The bytes do not follow the schema, or do not end where it ends.
    """
    kind = value[:3]
    try:
        payload = _payload(kind, value)
        return _row(payload) if kind == ROW else _envelope(kind, payload)
    except UnicodeError as error:
        raise DecodeError("The message holds text that is not UTF-8.") from error
    except Exception as error:  # fastavro raises whatever broken bytes lead it into.
        raise DecodeError(
            f"The message is not Avro of the Simple protocol: {type(error).__name__}.", PROTOCOL_HINT
        ) from error


_SCHEMAS = {schema["name"]: schema for schema in json.loads(files(__package__).joinpath("message.avsc").read_bytes())}
_NAMED: dict[str, Any] = {}
_PARSED = {name: fastavro.parse_schema(schema, named_schemas=_NAMED) for name, schema in _SCHEMAS.items()}
_PAYLOADS = {WATERMARK: "Watermark", BOOTSTRAP: "Bootstrap", DDL: "DDL", ROW: "DML"}


def _payload(kind: bytes, value: bytes) -> dict[str, Any]:
    """What follows the kind: its own schema is read in two thirds of the time that the union of all takes."""
    source = io.BytesIO(value)
    source.seek(len(kind))
    # A default of a binary column may hold any bytes, in a field that is text.
    errors = "strict" if kind == ROW else "surrogateescape"
    datum: Any = fastavro.schemaless_reader(source, _PARSED[_PAYLOADS[kind]], None, handle_unicode_errors=errors)
    if source.tell() != len(value):
        raise ValueError
    payload: dict[str, Any] = datum
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


def _row(payload: dict[str, Any]) -> SimpleEnvelope:
    """A row; its table's id is that of a partition, and nothing else refers to it."""
    checksum = payload["checksum"]
    return SimpleEnvelope(
        payload["version"],
        payload["type"],
        payload["database"],
        payload["table"],
        _natural(payload["commitTs"]),
        _natural(payload["schemaVersion"]),
        _image(payload["data"]),
        _image(payload["old"]),
        payload["handleKeyOnly"] is True,
        payload["claimCheckLocation"],
        None if checksum is None else Checksum(**checksum),
    )


def _natural(number: int) -> int:
    if number < 0:
        raise ValueError
    return number


def _image(image: dict[str, Any] | None) -> dict[str, Any] | None:
    """An image; records stand for a time with its zone, and for a number without a sign."""
    for name, value in (image or {}).items():
        if type(value) is dict:
            image[name] = ZonedText(**value) if "location" in value else value["value"] & _U64  # type: ignore[index]
    return image
