"""Casts dates and times to another type or precision, and reads them from the forms that people write, as TiDB does."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

_DATE = re.compile(
    r"(\d{4}|\d{1,2})[-/.](\d{1,2})[-/.](\d{1,2})(?:(?:T| +)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?",
    re.ASCII,
)
_DATE_NUMBER = re.compile(r"(\d{4}|\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)(?:\.(\d*))?)?", re.ASCII)
_TIME = re.compile(r"(-?)(?:(\d{1,2}) +)?(\d{1,3})(?::(\d{1,2})(?::(\d{1,2}))?)?(?:\.(\d*))?", re.ASCII)
_TIME_NUMBER = re.compile(r"(-?)()(\d{0,3}?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?", re.ASCII)
"""Hours, minutes and seconds, each two digits, from the right."""
_LONGEST_TIME = 838 * 3600 + 59 * 60 + 59
_SPACES = " \t\n\v\f\r"


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


def date_of_text(texts: Array, _: ConvertField) -> Array:
    """DATE of text: TiDB rounds to seconds before it cuts the time, so half a second can be a day."""
    return by_value(texts, lambda text: _real(moment_text(text, 0))[:10], pa.string()).cast(pa.date32())


def datetime_of_text(texts: Array, step: ConvertField) -> Array:
    """DATETIME of text."""
    digits = step.new.scale or 0
    return by_value(texts, lambda text: _real(moment_text(text, digits)), pa.string()).cast(pa.timestamp("us"))


def to_time(texts: Array, step: ConvertField) -> Array:
    """TIME with another number of fractional digits, or of text. Halfway below zero a TIME rounds up, text down."""
    digits, is_time = step.new.scale or 0, step.old.name == "time"
    return by_value(texts, lambda text: time_text(_up(text, digits) if is_time else text, digits), pa.string())


def _up(text: str, digits: int) -> str:
    whole, _, fraction = text.partition(".")
    is_half = text.startswith("-") and fraction[digits:].rstrip("0") == "5"
    return f"{whole}.{fraction[:digits]}" if is_half else text


def time_text(text: str, digits: int) -> str:
    """A time as TiDB prints it with some number of fractional digits, from the forms that people write.

    Raises:
        Unproven: It has another form.
        ValueError: It is no time, or longer than TiDB's longest.
    """
    text = text.strip(_SPACES)
    match = _TIME_NUMBER.fullmatch(text) or _TIME.fullmatch(text)
    if match is None:
        raise Unproven
    days, hours, minutes, seconds = (int(match[part] or 0) for part in (2, 3, 4, 5))
    if minutes > 59 or seconds > 59:
        raise ValueError
    late, fraction = _fraction(match[6] or "", digits)
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + late
    if whole > _LONGEST_TIME or (whole == _LONGEST_TIME and fraction.strip(".0")):
        raise ValueError
    sign = match[1] if whole or fraction.strip(".0") else ""
    return f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{fraction}"


def moment_text(text: str, digits: int) -> str:
    """A date with its time as TiDB prints it with some number of fractional digits, from the forms that people write.

    Zero and partial dates stay what they are.

    Raises:
        Unproven: It has another form.
        ValueError: It is no date or time.
    """
    text = text.strip(_SPACES)
    match = _DATE.fullmatch(text) or _DATE_NUMBER.fullmatch(text)
    if match is None:
        raise Unproven
    year, month, day, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:6])
    if len(match[1]) < 4 and (month or day or match.re is _DATE_NUMBER or match[7] or hours or minutes or seconds):
        year += 2000 if year < 70 else 1900
    if month > 12 or day > 31:
        raise ValueError
    late, fraction = _fraction(match[7] or "", digits)
    whole = f"{year:04d}-{month:02d}-{day:02d} {time(hours, minutes, seconds)}"
    if late and not (year and month and day):
        raise Unproven
    return (str(datetime.fromisoformat(whole) + timedelta(seconds=1)) if late else whole) + fraction


def _fraction(text: str, digits: int) -> tuple[int, str]:
    """Whole seconds and fraction, rounded half away from zero, of the digits behind the point."""
    units = int("0" + text[:digits].ljust(digits, "0")) + (text[digits : digits + 1] >= "5")
    late, rest = divmod(units, 10**digits)
    return late, f".{rest:0{digits}d}" if digits else ""


def _real(text: str) -> str:
    if text.startswith("0000") or "-00" in text:
        raise Unproven
    return text


def _half_up(micros: int, digits: int) -> int:
    unit: int = 10 ** (6 - digits)
    return (micros + unit // 2) // unit * unit
