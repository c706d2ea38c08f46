"""Computes the number of the partition by HASH or KEY that each row belongs to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from applier.changefeed.table import Column
from applier.sink.tidb_partitions.bounds import INTEGERS, seconds_digits
from applier.sink.tidb_partitions.expression import Inexact
from applier.sink.tidb_partitions.functions import Values

Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def hash_places(values: Values, partitions: int) -> Places:
    """Partitions by HASH: the remainder without its sign, of NULL 0. Unsigned numbers count as signed ones.

    Args:
        values: Values of the expression.
        partitions: Number of partitions.

    Raises:
        Inexact: The values are no whole numbers.
    """
    numbers = _signed(values)
    return np.abs(np.fmod(numbers, partitions))


def _signed(values: Values) -> Places:
    if pa.types.is_decimal(values.type) and values.type.scale == 0:
        unsigned = values.cast(pa.uint64()).fill_null(pa.scalar(0, pa.uint64()))
        return np.asarray(unsigned.to_numpy()).view(np.int64)
    if not pa.types.is_integer(values.type):
        raise Inexact(f"a column that partitions it is kept as {values.type}")
    return np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy())


def key_places(values: Sequence[Values], columns: Sequence[Column], partitions: int) -> Places:
    """Partitions by KEY: CRC-32 of the texts of all columns, one after the other, of NULL a zero byte.

    Args:
        values: Values of the columns.
        columns: The columns.
        partitions: Number of partitions.

    Raises:
        Inexact: TiDB hashes the column by its collation, which the feed does not show, or by a text that is not known.
    """
    texts = [_texts(*pair) for pair in zip(values, columns, strict=True)]
    sums = (zlib.crc32(b"".join(row)) for row in zip(*texts, strict=True))
    return np.fromiter(sums, np.int64, len(values[0])) % partitions


def _texts(values: Values, column: Column) -> list[bytes]:
    text = _text_of(values.type, column)
    return [b"\0" if value is None else text(value) for value in values.to_pylist()]


def _text_of(kind: pa.DataType, column: Column) -> Callable[[Any], bytes]:
    name = column.type.name
    if name in INTEGERS and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return lambda value: f"{value:d}".encode() if isinstance(value, int) else f"{value:f}".encode()
    if name == "varbinary" and pa.types.is_binary(kind):
        return bytes
    if name == "date" and kind == pa.date32():
        return date_text
    if name == "datetime" and kind == pa.timestamp("us"):
        digits = seconds_digits(column)
        return lambda value: datetime_text(value, digits)
    if name in ("char", "varchar"):
        raise Inexact(f"rows are hashed by the collation of column {column.name}, which the feed does not show")
    raise Inexact(f"how column {column.name} of type {name} is hashed is not known")


def date_text(value: date) -> bytes:
    """A date as TiDB prints it."""
    return value.isoformat().encode()


def datetime_text(value: datetime, digits: int) -> bytes:
    """A date and time as TiDB prints it, with so many digits of the second."""
    text = value.strftime("%H:%M:%S") + (f".{value.microsecond:06d}"[: digits + 1] if digits else "")
    return f"{value.date().isoformat()} {text}".encode()
