"""Casts values to text as TiDB prints them, and fits text and bytes into a column or refuses them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import ColumnType
from applier.changefeed.types import BINARIES
from applier.ddl.parse_types import SIZES
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

BYTES = {f"{size}{family}": count for size, count in SIZES.items() for family in ("text", "blob")}
"""Bytes that the text and blob types hold."""


def text_of(values: Array, step: ConvertField) -> Array:
    """Text that TiDB prints (`Datum.convertToString`)."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if pa.types.is_floating(kind):
        return by_value(values, lambda value: _float(value, single=pa.types.is_float32(kind)), pa.string())
    if pa.types.is_timestamp(kind):
        return by_value(values, lambda value: _clock(value, step.old.scale or 0), pa.string())
    if pa.types.is_decimal(kind):
        return by_value(values, lambda value: f"{value:f}", pa.string())
    return values.cast(pa.string())


def to_text(values: Array, step: ConvertField) -> Array:
    """Texts for a text column, as TiDB prints the values.

    CHAR drops spaces at the end; VARCHAR drops them where they are too many.
    """
    texts = text_of(values, step)
    if step.new.name == "char":
        texts = pc.utf8_rtrim(texts, " ")
    if step.new.name not in ("char", "varchar"):
        _refuse_longer(texts, BYTES[step.new.name])
        return texts
    if step.new.length is None:
        return texts
    cut: Any = pc.utf8_slice_codeunits(texts, 0, step.new.length)
    lost: Any = pc.not_equal(pc.utf8_rtrim(cut, " "), pc.utf8_rtrim(texts, " "))
    if pc.any(lost).as_py():
        raise ValueError
    return cut  # type: ignore[no-any-return]


def to_bytes(values: Array, step: ConvertField) -> Array:
    """Bytes for a binary column, of what is no bytes those that TiDB prints; BINARY is filled up with zero bytes."""
    raw = (values if step.old.name in BINARIES else text_of(values, step)).cast(pa.binary())
    limit = step.new.length if step.new.name in ("binary", "varbinary") else BYTES[step.new.name]
    if limit is None:
        return raw
    _refuse_longer(raw, limit)
    if step.new.name == "binary":
        padded = [None if value is None else value.ljust(limit, b"\0") for value in raw.to_pylist()]
        return pa.array(padded, pa.binary())
    return raw


def is_roomier(old: ColumnType, new: ColumnType) -> bool:
    """Whether every text or bytes value of the old type is the same value in the new one."""
    if new.name == "char" and old.name != "char":
        return False  # Spaces at the end would go.
    if new.name == "binary":
        return old.name == "binary" and (old.length == new.length or None in (old.length, new.length))
    if new.name in BYTES:
        if old.name in BYTES:
            return BYTES[old.name] <= BYTES[new.name]
        width = 4 if old.name in ("char", "varchar") else 1
        return old.length is not None and old.length * width <= BYTES[new.name]
    if old.name in BYTES:
        return False
    return None in (old.length, new.length) or (old.length or 0) <= (new.length or 0)


def _float(value: float, *, single: bool) -> str:
    """Shortest digits that read back as the same number, never with an exponent (Go's `FormatFloat(x, 'f', -1)`)."""
    number: Any = np.float32(value) if single else np.float64(value)
    if not np.isfinite(number):
        raise ValueError
    return np.format_float_positional(number, unique=True, trim="-")


def _clock(value: datetime, digits: int) -> str:
    text = value.isoformat(sep=" ", timespec="microseconds")
    return text[: 19 + (digits + 1 if digits else 0)]


def _refuse_longer(values: Any, limit: int) -> None:
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest is not None and longest > limit:
        raise ValueError
