"""Casts numbers between TiDB's types, rounded as TiDB rounds; refuses values that do not fit."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import ColumnType
from applier.runtime.decimals import EXACT, rounded
from applier.sink.evolve.casts.dates import Unproven
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

_MOST_BITS = 64
"""Bits of a bit column of unknown length."""

_WHOLE = pa.decimal128(38, 0)
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_WIDTHS = {"float": 12, "double": 22}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def bounds(kind: ColumnType) -> tuple[int, int]:
    """Smallest and largest number of an integer or bit type."""
    if kind.name == "bit":
        return 0, (1 << (kind.length or _MOST_BITS)) - 1
    bits = _BITS[kind.name]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def whole_of(values: Array, step: ConvertField) -> Array:
    """Whole numbers of a number or text column, as decimal(38, 0).

    DECIMAL and text round half away from zero, FLOAT and DOUBLE half to even (`types.RoundFloat`).
    """
    if step.old.name in ("float", "double"):
        return by_value(values, lambda value: Decimal(value).to_integral_value(ROUND_HALF_EVEN), _WHOLE)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int32()).cast(_WHOLE)
    if pa.types.is_integer(values.type):
        return values.cast(_WHOLE)
    if pa.types.is_decimal(values.type):
        return _rescaled(values, _WHOLE)
    return by_value(values, _whole, _WHOLE)


def to_whole(values: Array, step: ConvertField) -> Array:
    """Whole numbers within the new type's range, in its Arrow type."""
    numbers = whole_of(values, step)
    lowest, highest = (0, 1) if pa.types.is_boolean(step.new_arrow) else bounds(step.new)
    found: Any = pc.min_max(numbers).as_py()
    if found["min"] is not None and not (lowest <= found["min"] and found["max"] <= highest):
        raise ValueError
    if pa.types.is_boolean(step.new_arrow):
        return numbers.cast(pa.int64()).cast(pa.bool_())
    return numbers.cast(step.new_arrow)


def to_year(values: Array, step: ConvertField) -> Array:
    """YEAR: one and two digits are years from 1970 to 2069; the number 0 and the text 0000 stay 0, other zeros not."""
    numbers: Any = whole_of(values, step)
    texts = map(str, values)
    is_zero = [step.old.name in _BITS or len(text) == 4 or text.strip()[:1] != "0" for text in texts]
    years = [None if n is None else _year(int(n), is_zero=z) for n, z in zip(numbers.to_pylist(), is_zero, strict=True)]
    return pa.array(years, pa.int32())


def _year(number: int, *, is_zero: bool) -> int:
    if number in range(100) and (number or not is_zero):
        return number + (2000 if number < 70 else 1900)
    if number and number not in range(1901, 2156):
        raise ValueError
    return number


def to_decimal(values: Array, step: ConvertField) -> Array:
    """DECIMAL: rounded half away from zero; from FLOAT and DOUBLE by their shortest text (`MyDecimal.FromFloat64`)."""
    target = step.new_arrow
    is_wide = pa.types.is_string(target)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = whole_of(values, step)
    if pa.types.is_decimal(values.type) and not is_wide:
        values = _rescaled(values, target)
        _refuse_negative(values, step.new)
        return values
    numbers = by_value(values, lambda value: _plain(_read(value), step.new), pa.string())
    return numbers if is_wide else numbers.cast(target)


def to_real(values: Array, step: ConvertField) -> Array:
    """FLOAT or DOUBLE: the nearest; FLOAT by way of DOUBLE, as TiDB does it."""
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        values = by_value(values, lambda value: float(_read(value)), pa.float64())
    values = values.cast(pa.float64(), safe=False)
    if step.new.scale is not None and not is_kept(step.old, step.new):
        values = by_value(values, lambda value: _cut(value, step.new), pa.float64())
    _refuse_negative(values, step.new)
    result = values.cast(step.new_arrow, safe=False)
    if pc.all(pc.is_finite(result)).as_py() is False:
        raise ValueError
    return result


def is_kept(old: ColumnType, new: ColumnType) -> bool:
    """Whether TiDB leaves FLOAT and DOUBLE values as they are, even with more digits (`needChangeColumnData`)."""
    width = _WIDTHS.get(old.name)
    if width is None or (old.name, old.unsigned) != (new.name, new.unsigned):
        return False
    if old.scale is None and old.length not in (None, width):
        return False  # Simple shows no digits: rounding to more than there are changes nothing.
    is_wider = (old.length or width) <= (new.length or width)
    return is_wider and (old.scale is None or (new.scale is not None and old.scale <= new.scale))


def _cut(value: float, kind: ColumnType) -> float:
    """A DOUBLE with D digits, of FLOAT(M,D): scaled, rounded half to even and scaled back (`types.Round`)."""
    scale = float(10 ** (kind.scale or 0))
    result = float(np.rint(value * scale)) / scale
    if abs(result) > 10 ** ((kind.length or 0) - (kind.scale or 0)) - 1 / scale:
        raise ValueError
    return result


def _rescaled(values: Array, target: pa.DataType) -> Array:
    """Decimals of another precision and scale; Arrow raises where digits before the point are lost."""
    scale = target.scale  # type: ignore[attr-defined]
    if values.type.scale > scale:
        wide: Any = values.cast(pa.decimal256(76, values.type.scale))
        values = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    return values.cast(target)


def _plain(number: Decimal, kind: ColumnType) -> str:
    scale = kind.scale or 0
    result = rounded(number, scale)
    if result.copy_abs() >= 10 ** ((kind.length or 10) - scale) or (kind.unsigned and result < 0):
        raise ValueError
    return f"{result.copy_abs() if result == 0 else result:f}"


def _read(value: Any) -> Decimal:
    if isinstance(value, str):
        return _parsed(value)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _whole(text: str) -> Decimal:
    number = _parsed(text)
    whole = rounded(number, 0)
    if whole != number and "e" in text.lower():
        raise Unproven  # TiDB makes 0 of the text 0.005e2, and 1 of 0.5.
    return whole


def _parsed(text: str) -> Decimal:
    """A number that is all of the text; TiDB takes spaces around it, and in strict mode nothing else."""
    text = text.strip(" \t\n\v\f\r")
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return EXACT.create_decimal(text)


def _refuse_negative(values: Array, kind: ColumnType) -> None:
    if kind.unsigned:
        lowest = pc.min(values).as_py()
        if lowest is not None and lowest < 0:
            raise ValueError
