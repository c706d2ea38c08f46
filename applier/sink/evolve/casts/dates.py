"""Casts dates and times to another precision, and reads those that are written as TiDB prints them."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d*))?)?", re.ASCII
)  # fmt: skip


class Unproven(ValueError):
    """A value in a form that TiDB may well take, whose exact result is not known."""


def round_seconds(values: Array, step: ConvertField) -> Array:
    """DATETIME or TIMESTAMP with another number of fractional digits (`Time.RoundFrac`)."""
    digits = step.new.scale or 0
    if pa.types.is_string(values.type):
        return by_value(values, lambda text: moment_text(text, digits), pa.string())
    if step.old.scale is not None and digits >= step.old.scale:
        return values
    micros = by_value(values.cast(pa.int64()), lambda value: _half_up(value, digits), pa.int64())
    return micros.cast(values.type)


def to_date(values: Array, _: ConvertField) -> Array:
    """DATE of a DATETIME: TiDB cuts the time."""
    days: Array = pc.floor_temporal(values, unit="day").cast(pa.date32())
    return days


def to_time(texts: Array, step: ConvertField) -> Array:
    """TIME with another number of fractional digits."""
    return by_value(texts, lambda text: time_text(text, step.new.scale or 0), pa.string())


def time_text(text: str, digits: int) -> str:
    """A time as TiDB prints it, with some number of fractional digits.

    Raises:
        Unproven: It has more digits.
    """
    whole, _, fraction = text.partition(".")
    return whole + _fraction(fraction, digits)


def moment_text(text: str, digits: int) -> str:
    """A date with its time, written as TiDB prints them, with some number of fractional digits.

    Zero and partial dates stay what they are.

    Raises:
        Unproven: It is written in another way, or has more digits.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise Unproven
    return f"{match[1]} {match[2] or '00:00:00'}{_fraction(match[3] or '', digits)}"


def _fraction(text: str, digits: int) -> str:
    """Digits behind the point, with the point."""
    if text[digits:].strip("0"):
        raise Unproven  # TiDB rounds them, in more ways than one.
    return f".{text[:digits]:0<{digits}}" if digits else ""


def _half_up(micros: int, digits: int) -> int:
    unit: int = 10 ** (6 - digits)
    return (micros + unit // 2) // unit * unit
