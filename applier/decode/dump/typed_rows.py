"""Converts the values of an export to the types of their table, by the same rules as those of a feed.

TiDB shows a FLOAT of 1e15 and more with six digits to Dumpling, and all of them to a feed: such a value is that of the
feed only from its next change on.

Dumpling and TiDB Cloud write text, JSON, ENUM, SET, DATE, TIME and wide decimals to Parquet as strings; binary types
and BIT as bytes; numbers as numbers or decimals; DATETIME and TIMESTAMP as microseconds on the wall clock of UTC, and
zero dates as NULL.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import BINARIES, INTEGERS, ColumnPath, TypeRules
from applier.decode.decoder import WireForm
from applier.decode.dump.csv_form import look_encoded
from applier.decode.dump.file_columns import declared, kept
from applier.decode.values.alike import Array, to_column

BATCH_ROWS = 65536

WIRE = WireForm(binary="bytes", members="label", zone="UTC")
"""Dumpling writes TIMESTAMP in UTC with `--params time_zone=+00:00`, and the labels of enums and sets."""

BYTES = frozenset({*BINARIES, "bit"})
"""Types whose values are bytes: a BIT comes as a big-endian number."""

TEXTS = BYTES | {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set", "vector"),
    *("date", "datetime", "timestamp", "time", "year"),
}
"""Types whose values Dumpling writes within delimiters."""

_INTEGERS = frozenset({*INTEGERS, "year"})
_REALS = frozenset({"float", "double"})
_MOMENTS = frozenset({"datetime", "timestamp"})


def _as_is(value: bytes) -> bytes:
    return value


def _of_literal(value: bytes) -> bytes:
    if not (value.startswith(b"x'") and value.endswith(b"'")):
        raise ValueError("a value of a binary column is not written as x'00ff'")
    return bytes.fromhex(value[2:-1].decode("ascii"))


UNWRAP: dict[str, Callable[[bytes], bytes]] = {
    "raw": _as_is,
    "hex": binascii.unhexlify,
    "base64": lambda value: binascii.a2b_base64(value, strict_mode=True),
    "literal": _of_literal,
}
"""Turns a value of a column of `BYTES` into its bytes, by the form in which it stands in its file."""


def typed(rows: pa.Table, version: TableVersion, rules: TypeRules, form: str | None, zone: str) -> tuple[pa.Table, int]:
    """The rows, a `binary` column for each of the file, in the types of the feed, and how many zero dates became NULL.

    The form is that of values of `BYTES` in the file: a key of `UNWRAP`, or None if that is not known. The zone is the
    IANA zone of TIMESTAMP values.

    Raises:
        ValueRefused: A value does not fit its column.
        ValueError: Bytes are not written in the form.
    """
    wire, columns = replace(WIRE, zone=zone), kept(version, rows.column_names, rules)
    found = []
    for column in columns:
        values: Any = rows[column.name].combine_chunks()
        values = _bytes(values, column, form) if column.type.name in BYTES else _text(values, column)
        found.append(to_column(values, column, version, wire, rules))
    return _table(columns, found)


def _table(columns: Sequence[Column], found: Sequence[tuple[Array, int]]) -> tuple[pa.Table, int]:
    arrays: list[Any] = [array for array, _ in found]
    return pa.table(arrays, names=[column.name for column in columns]), sum(zeros for _, zeros in found)


def _text(values: Any, column: Column) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        msg = f"column {column.name} holds bytes that are no UTF-8"
        raise ValueError(msg) from None


def _bytes(values: Any, column: Column, form: str | None) -> Any:
    if form is None and look_encoded(list(filter(None, values.to_pylist()))):
        msg = f"values of binary column {column.name} may be bytes, hex or base64, and binary is not set"
        raise ValueError(msg)
    unwrap = UNWRAP[form or "raw"]
    if unwrap is _as_is and column.type.name != "bit":
        return values
    try:
        return [None if value is None else unwrap(value) for value in values.to_pylist()]
    except binascii.Error:
        msg = f"values of binary column {column.name} are not written in {form}"
        raise ValueError(msg) from None


def read_parquet(raw: Any, version: TableVersion, rules: TypeRules) -> Iterator[tuple[pa.Table, int]]:
    """The rows of a file in bounded batches, with the number of zero dates that became NULL.

    Raises:
        ValueRefused: A value does not fit its column.
        ValueError: A column has a type from which its values cannot be told exactly.
    """
    file = pq.ParquetFile(raw)
    own = file.schema_arrow.names
    names = dict(zip(declared(own, version), own, strict=True))
    columns = kept(version, [*names], rules)
    _refuse_rounded(file, columns, names)
    for batch in file.iter_batches(BATCH_ROWS, columns=[names[column.name] for column in columns]):
        found = [_converted(batch[names[column.name]], column, version, rules) for column in columns]
        yield _table(columns, found)


def _refuse_rounded(file: pq.ParquetFile, columns: Sequence[Column], names: dict[str, str]) -> None:
    """The first Dumpling that wrote Parquet, which signed no file, cut decimals off: 0.53 became 0.52."""
    if file.metadata.created_by:
        return
    for column in columns:
        kind = file.schema_arrow.field(names[column.name]).type
        if column.type.name == "decimal" and pa.types.is_decimal(kind) and column.type.scale:
            msg = f"column {column.name} comes from a version of Dumpling whose decimals in Parquet are not exact"
            raise ValueError(msg)


def _converted(values: Any, column: Column, version: TableVersion, rules: TypeRules) -> tuple[Array, int]:
    path = ColumnPath(version.name, column.name)
    wire = _wire(values, column)
    is_int = isinstance(wire, pa.Array) and pa.types.is_int64(wire.type)
    policy = rules.zero_date_policy(path, column.type)
    if wire is None or (column.type.name in _MOMENTS and policy == "string" and is_int):
        kind = f"{column.type.name} column {column.name}"
        msg = f"{kind} is stored as {values.type}, which does not hold its values exactly"
        raise ValueError(msg)
    lost = values.null_count if column.type.name in _MOMENTS and not column.nullable else 0
    if lost and policy == "stop":
        msg = f"column {column.name} holds zero dates, which Parquet files have as NULL"
        raise ValueError(msg)
    return to_column(wire, column, version, WIRE, rules, lost)


def _wire(values: Any, column: Column) -> Any:
    """The values as `to_array` takes them; None for a type that does not hold those of the column."""
    kind, name = values.type, column.type.name
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(values, name)
    if pa.types.is_timestamp(kind):
        return _of_moments(values, name)
    if pa.types.is_integer(kind) and name in _INTEGERS:
        is_wide = column.type.unsigned and name == "bigint"
        return values.cast(pa.string()) if is_wide or pa.types.is_uint64(kind) else values.cast(pa.int64())
    if pa.types.is_decimal(kind) and (name == "decimal" or (name in _INTEGERS and kind.scale == 0)):
        return values.cast(pa.string()) if name in _INTEGERS else values
    if pa.types.is_floating(kind) and name in _REALS and (name == "double" or not pa.types.is_float16(kind)):
        return values.cast(pa.float64())
    return values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) and name == "date" else None


def _of_bytes(values: Any, name: str) -> Any:
    if name not in BYTES:
        return values.cast(pa.string())
    return values.cast(pa.binary()).to_pylist() if name == "bit" else values.cast(pa.binary())


def _of_moments(values: Any, name: str) -> Any:
    """Microseconds. A TIMESTAMP without a zone is in UTC, in which Dumpling reads."""
    has_zone = values.type.tz is not None
    if name not in _MOMENTS or (has_zone and name == "datetime"):
        return None
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
