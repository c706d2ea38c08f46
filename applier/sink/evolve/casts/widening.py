"""Decides whether every value of a column stays the same in another type."""

from __future__ import annotations

import pyarrow as pa

from applier.changefeed.table import ColumnType
from applier.sink.evolve.casts.cast import family
from applier.sink.evolve.casts.numbers import bounds
from applier.sink.evolve.casts.text import is_roomier


def is_promotion(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Iceberg widens a field from one type to the other in place."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def is_lossless(old: ColumnType, new: ColumnType, arrow: pa.DataType) -> bool:
    """Whether every value of the old type is the same value in the new one.

    Args:
        old: Type before.
        new: Type after.
        arrow: Arrow type after: dates that are kept as text change with their number of digits.
    """
    kind = family(new.name)
    if family(old.name) != kind:
        return False
    match kind:
        case "int" | "bit":
            return _is_wider(bounds(old), bounds(new)) and not pa.types.is_boolean(arrow)
        case "decimal":
            return _is_finer(old, new)
        case "real":
            return not (old.name == "double" and new.name == "float") and _keeps_digits(old, new)
        case "text" | "bytes":
            return is_roomier(old, new)
        case "enum" | "set":
            return not (old.elements and new.elements) or new.elements[: len(old.elements)] == old.elements
        case "datetime" | "timestamp" | "time":
            return _keeps_seconds(old, new, is_text=pa.types.is_string(arrow))
        case "vector":
            return new.length in (None, old.length)
    return True


def _is_wider(old: tuple[int, int], new: tuple[int, int]) -> bool:
    return new[0] <= old[0] and old[1] <= new[1]


def _keeps_seconds(old: ColumnType, new: ColumnType, *, is_text: bool) -> bool:
    """Digits that were not known may be any: values are rounded, which changes none that has no more digits."""
    if old.scale is None or new.scale is None:
        return old.scale == new.scale
    return old.scale == new.scale if is_text else old.scale <= new.scale


def _is_finer(old: ColumnType, new: ColumnType) -> bool:
    if old.scale is None or old.scale != new.scale or old.length is None or new.length is None:
        return False
    return old.length <= new.length and (old.unsigned or not new.unsigned)


def _keeps_digits(old: ColumnType, new: ColumnType) -> bool:
    return (new.scale is None or new.scale == old.scale) and (old.unsigned or not new.unsigned)
