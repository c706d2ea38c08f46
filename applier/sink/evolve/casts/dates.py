"""Casts dates and times to another type or precision, rounded half up as TiDB rounds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_LONGEST_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000


def round_seconds(values: Array, step: ConvertField) -> Array:
    """DATETIME or TIMESTAMP with another number of fractional digits (`Time.RoundFrac`)."""
    digits = step.new.scale or 0
    if pa.types.is_string(values.type):
        return by_value(values, lambda text: _text_rounded(text, digits), pa.string())
    if step.old.scale is not None and digits >= step.old.scale:
        return values
    return _rounded(values, digits)


def to_date(values: Array, _: ConvertField) -> Array:
    """DATE of a DATETIME: TiDB rounds to seconds before it drops the time, so half a second can be a day."""
    rounded: Any = _rounded(values, 0)
    days: Array = pc.floor_temporal(rounded, unit="day").cast(pa.date32())
    return days


def date_of_text(texts: Array, _: ConvertField) -> Array:
    """DATE of text in TiDB's own form; other forms that it would read are refused."""
    return by_value(texts, lambda text: _whole(_DATE, text), pa.string()).cast(pa.date32())


def datetime_of_text(texts: Array, step: ConvertField) -> Array:
    """DATETIME of text in TiDB's own form; other forms that it would read are refused."""
    checked = by_value(texts, lambda text: _whole(_DATETIME, text), pa.string()).cast(pa.timestamp("us"))
    return _rounded(checked, step.new.scale or 0)


def to_time(texts: Array, step: ConvertField) -> Array:
    """TIME with another number of fractional digits, or of text in TiDB's own form.

    Raises:
        ValueError: It is no time, or lies halfway below zero, where TiDB's rounding is not certain.
    """
    digits = step.new.scale or 0
    return by_value(texts, lambda text: time_text(text, digits), pa.string())


def time_text(text: str, digits: int) -> str:
    """A time as TiDB prints it with some number of fractional digits.

    Raises:
        ValueError: See `to_time`.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    hours, minutes, seconds = (int(match[part]) for part in (2, 3, 4))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    unit = 10 ** (6 - digits)
    if match[1] and micros % unit * 2 == unit:
        raise ValueError
    micros = _half_up(micros, digits)
    if micros > _LONGEST_TIME:
        raise ValueError
    whole, fraction = divmod(micros, 1_000_000)
    clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return ("-" if match[1] and micros else "") + clock + (f".{fraction:06d}"[: digits + 1] if digits else "")


def _text_rounded(text: str, digits: int) -> str:
    """Text of a date that may be no date: zero dates only gain or lose digits that say nothing."""
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ValueError
    fraction = match[2] or ""
    if not fraction[digits:].strip("0"):
        kept = fraction[:digits].ljust(digits, "0")
        return match[1] + (f".{kept}" if digits else "")
    moment = datetime.fromisoformat(text)
    late = timedelta(microseconds=_half_up(moment.microsecond, digits) - moment.microsecond)
    rounded = (moment + late).isoformat(sep=" ", timespec="microseconds")
    return rounded[: 19 + (digits + 1 if digits else 0)]


def _rounded(moments: Array, digits: int) -> Array:
    micros = by_value(moments.cast(pa.int64()), lambda value: _half_up(value, digits), pa.int64())
    return micros.cast(moments.type)


def _half_up(micros: int, digits: int) -> int:
    unit: int = 10 ** (6 - digits)
    return (micros + unit // 2) // unit * unit


def _whole(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError
    return text
