"""Reads the rows of Parquet files, as Dumpling and TiDB Cloud write them, in the types of their table.

Both write text, JSON, ENUM, SET, DATE, TIME and wide decimals as strings; binary types and BIT as bytes; numbers as
numbers or decimals; DATETIME and TIMESTAMP as microseconds on the wall clock of UTC, and zero dates as NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import INTEGERS, TypeRules
from applier.decode.dump.file_columns import declared
from applier.decode.dump.typed_rows import BYTES, WIRE, kept
from applier.decode.values.alike import Keys
from applier.decode.values.convert import to_array

BATCH_ROWS = 65536

_INTEGERS = frozenset({*INTEGERS, "year"})
_REALS = frozenset({"float", "double"})
_MOMENTS = frozenset({"datetime", "timestamp"})


def read_parquet(raw: Any, version: TableVersion, rules: TypeRules) -> Iterator[tuple[pa.Table, int]]:
    """The rows of a file in bounded batches, with the number of zero dates that became NULL.

    Raises:
        ValueRefused: A value does not fit its column.
        ValueError: A column has a type from which its values cannot be told exactly.
    """
    file = pq.ParquetFile(raw)
    own = file.schema_arrow.names
    names = dict(zip(declared(own, version), own, strict=True))
    columns = kept(version, [*names])
    _refuse_rounded(file, columns, names)
    for batch in file.iter_batches(BATCH_ROWS, columns=[names[column.name] for column in columns]):
        found = [_converted(batch[names[column.name]], column, version, rules) for column in columns]
        arrays: list[Any] = [array for array, _ in found]
        yield pa.table(arrays, names=[column.name for column in columns]), sum(zeros for _, zeros in found)


def _refuse_rounded(file: pq.ParquetFile, columns: Sequence[Column], names: dict[str, str]) -> None:
    """The first Dumpling that wrote Parquet, which signed no file, cut decimals off: 0.53 became 0.52."""
    if file.metadata.created_by:
        return
    for column in columns:
        kind = file.schema_arrow.field(names[column.name]).type
        if column.type.name == "decimal" and pa.types.is_decimal(kind) and column.type.scale:
            msg = f"column {column.name} comes from a version of Dumpling whose decimals in Parquet are not exact"
            raise ValueError(msg)


def _converted(values: Any, column: Column, version: TableVersion, rules: TypeRules) -> tuple[pa.Array[Any], int]:
    path = f"{version.name}.{column.name}"
    wire = _wire(values, column)
    if wire is None or (column.type.name in _MOMENTS and rules.zero_date_policy(path) == "string" and _is_int(wire)):
        kind = f"{column.type.name} column {column.name}"
        msg = f"{kind} is stored as {values.type}, which does not hold its values exactly"
        raise ValueError(msg)
    lost = values.null_count if column.type.name in _MOMENTS and not column.nullable else 0
    if lost and rules.zero_date_policy(path) == "stop":
        msg = f"column {column.name} holds zero dates, which Parquet files have as NULL"
        raise ValueError(msg)
    array, zeros = to_array(wire, column, WIRE, rules, path)
    Keys(version, WIRE, rules).check(column, wire, array, zeros + lost)
    return array, zeros + lost


def _is_int(values: Any) -> bool:
    return isinstance(values, pa.Array) and pa.types.is_int64(values.type)


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
