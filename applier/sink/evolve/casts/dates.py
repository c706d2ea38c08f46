"""Casts dates and times to another type or precision, rounded half up as TiDB rounds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.evolve.steps import ConvertField

Array: TypeAlias = "pa.Array[Any]"

_EPOCH = datetime(1970, 1, 1)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_LONGEST_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000


def round_seconds(values: Array, step: ConvertField) -> Array:
    """DATETIME or TIMESTAMP with another number of fractional digits (`Time.RoundFrac`)."""
    digits = step.new.scale or 0
    if pa.types.is_string(values.type):
        return _each(values, lambda text: _text_rounded(text, digits), pa.string())
    unit = 10 ** (6 - digits)
    if step.old.scale is not None and digits >= step.old.scale:
        return values
    micros = [None if value is None else (value + unit // 2) // unit * unit for value in _micros(values)]
    return pa.array(micros, pa.int64()).cast(values.type)


def to_date(values: Array, _: ConvertField) -> Array:
    """DATE of a DATETIME: TiDB rounds to seconds before it drops the time, so half a second can be a day."""
    unit = 1_000_000
    micros = [None if value is None else (value + unit // 2) // unit * unit for value in _micros(values)]
    rounded: Any = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    days: Array = pc.floor_temporal(rounded, unit="day").cast(pa.date32())
    return days


def date_of_text(texts: Array, _: ConvertField) -> Array:
    """DATE of text in TiDB's own form; other forms that it would read are refused."""
    return _each(texts, lambda text: _whole(_DATE, text), pa.string()).cast(pa.date32())


def datetime_of_text(texts: Array, step: ConvertField) -> Array:
    """DATETIME of text in TiDB's own form; other forms that it would read are refused."""
    checked = _each(texts, lambda text: _whole(_DATETIME, text), pa.string()).cast(pa.timestamp("us"))
    unit = 10 ** (6 - (step.new.scale or 0))
    micros = [None if value is None else (value + unit // 2) // unit * unit for value in _micros(checked)]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us"))


def to_time(texts: Array, step: ConvertField) -> Array:
    """TIME with another number of fractional digits, or of text in TiDB's own form.

    Raises:
        ValueError: It is no time, or lies halfway below zero, where TiDB's rounding is not certain.
    """
    digits = step.new.scale or 0
    return _each(texts, lambda text: time_text(text, digits), pa.string())


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
    micros = (micros + unit // 2) // unit * unit
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
    unit = 10 ** (6 - digits)
    ticks = (_since_epoch(moment) + unit // 2) // unit * unit
    rounded = (_EPOCH + timedelta(microseconds=ticks)).isoformat(sep=" ", timespec="microseconds")
    return rounded[: 19 + (digits + 1 if digits else 0)]


def _since_epoch(moment: datetime) -> int:
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _micros(values: Array) -> list[int | None]:
    return values.cast(pa.int64()).to_pylist()


def _whole(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError
    return text


def _each(values: Array, function: Any, kind: pa.DataType) -> Array:
    return pa.array([None if value is None else function(value) for value in values.to_pylist()], kind)
