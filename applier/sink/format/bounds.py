"""Decides by the bounds of its columns whether a data file can hold one of some keys."""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.runtime.decimals import unscaled

Ordered: TypeAlias = bool | int | float | str | bytes
"""A value in a form whose Python order is Iceberg's: days, microseconds, unscaled decimals, code points."""

Column: TypeAlias = "pa.ChunkedArray[Any] | pa.Array[Any]"
"""Values of one column."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode_bound(kind: pa.DataType, value: bytes) -> Ordered | None:
    """A bound from Iceberg's binary single-value form; None for one that cannot be read, which must mean "unknown".

    Numbers are read by their length: a file from before `int` became `long` has bounds of four bytes.
    Bounds of strings and bytes may be cut short (the upper one then is larger than every value): good for pruning,
    never equal to a key.
    """
    try:
        return _decode(kind, value)
    except (struct.error, UnicodeDecodeError, IndexError):
        return None


def _decode(kind: pa.DataType, value: bytes) -> Ordered | None:
    if pa.types.is_boolean(kind):
        return value[0] != 0
    if pa.types.is_floating(kind):
        number = float(struct.unpack("<f" if len(value) == 4 else "<d", value)[0])
        return None if math.isnan(number) else number
    if pa.types.is_decimal(kind):
        return _exact(int.from_bytes(value, "big", signed=True))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return int(struct.unpack("<i" if len(value) == 4 else "<q", value)[0])
    if pa.types.is_string(kind):
        return value.decode("utf-8")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return value
    return None


def _exact(digits: int) -> int | None:
    """An unscaled bound; None where it may be rounded: older builds of applier wrote only the first 28 digits.

    One that really ends in so many zeros is not used either, which costs a look into its file.
    """
    rest = len(str(abs(digits))) - 28
    return None if rest > 0 and digits % 10**rest == 0 else digits


def ordered(value: Any, kind: pa.DataType) -> Ordered | None:
    """A Python value of a type, as Arrow and Parquet statistics give it, in the same form as a decoded bound."""
    match value:
        case Decimal():
            return unscaled(value, getattr(kind, "scale", 0))
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(microseconds=1)
        case date():
            return value.toordinal() - _EPOCH.toordinal()
        case time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case bool() | int() | float() | str() | bytes():
            return value
    return None


class SortedKeys:
    """The values that a batch looks for in one column, sorted; their order and repetition do not matter.

    With a NULL among them nothing can be ruled out, as bounds do not count NULLs; nor in a nested column, which has no
    order.
    """

    def __init__(self, values: Column) -> None:
        self.type = values.type
        self.is_open = values.null_count > 0 or pa.types.is_nested(values.type)
        found = numbers(values)
        # Each value once, sorted and without NULL, of a column for which `numbers` has an answer.
        self.numbers: Any = None if found is None else np.unique(found)
        if self.numbers is None and not self.is_open:
            array = pc.drop_null(values)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            self._array = array.take(pc.sort_indices(array))

    def within(self, lower: Sequence[Ordered | None], upper: Sequence[Ordered | None]) -> np.ndarray[Any, Any]:
        """One boolean per range: does one of the keys lie in it, both ends included? Unknown ends mean yes."""
        if self.is_open:
            return np.ones(len(lower), bool)
        if self.numbers is None:
            return np.fromiter(map(self._holds, lower, upper), bool, len(lower))
        unknown = np.fromiter((a is None or b is None for a, b in zip(lower, upper, strict=True)), bool, len(lower))
        lows = np.array([0 if bound is None else bound for bound in lower], self.numbers.dtype)
        highs = np.array([0 if bound is None else bound for bound in upper], self.numbers.dtype)
        found = np.searchsorted(self.numbers, lows, "left") < np.searchsorted(self.numbers, highs, "right")
        return np.asarray(found | unknown)

    def holds(self, lower: Ordered | None, upper: Ordered | None) -> bool:
        """The same for one range."""
        return bool(self.within([lower], [upper])[0])

    def _holds(self, lower: Ordered | None, upper: Ordered | None) -> bool:
        if lower is None or upper is None:
            return True
        places = range(len(self._array))
        return bisect_left(places, lower, key=self._at) < bisect_right(places, upper, key=self._at)

    def _at(self, index: int) -> Any:
        # Bisecting reads some twenty values; turning all keys into Python objects first would cost more than the join.
        return ordered(self._array[index].as_py(), self.type)


def numbers(values: Column) -> np.ndarray[Any, Any] | None:
    """Values of a column, without NULL, whose order is that of numbers: dates as days, timestamps as microseconds."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)):
        return None
    present = pc.drop_null(values)
    if pa.types.is_floating(kind):
        present = present.cast(pa.float64())
    else:
        present = (present.cast(pa.int32()) if kind.bit_width == 32 else present).cast(pa.int64())
    return np.asarray(present.to_numpy())
