"""Converts dates, datetimes, timestamps and times, MySQL text or epoch numbers, to Arrow arrays.

A zero, partial or impossible date (`0000-00-00`, `2020-00-00`, `2021-02-30` under ALLOW_INVALID_DATES, any day of year
0) has no Arrow value: it becomes NULL and is counted, or is refused, or its whole column is text, as
`TypeRules.zero_dates` says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from applier.decode.values.target import NO_CREATE, Target
from applier.errors import RELOAD


class ZonedText(msgspec.Struct, frozen=True, gc=False):
    """A TIMESTAMP as Simple writes it: wall clock, `YYYY-MM-DD hh:mm:ss[.ffffff]`, and the IANA name of its zone."""

    location: str
    value: str


ZONED = pa.struct([("location", pa.string()), ("value", pa.string())])
"""`ZonedText` in Arrow."""

_MICROSECONDS = pa.timestamp("us")
_UTC = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1)
_YEAR_ONE = {
    pa.date32(): (date(1, 1, 1) - _EPOCH.date()).days,
    _MICROSECONDS: (date(1, 1, 1) - _EPOCH.date()).days * 86_400_000_000,
}

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T]\d\d:\d\d:\d\d(?:\.(\d{1,6}))?)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_TIME = r"^-?\d{2,3}:\d\d:\d\d(\.\d{1,6})?$"
_OFFSET = r"(Z|[+-]\d\d:\d\d)$"
_MACHINE_ZONES = frozenset({"", "local", "localtime", "system", "posixrules", "factory"})
NAMELESS_HINT = (
    "Set changefeed.timezone to the `tz` of the TiCDC server, which without it is that of its environment variable TZ "
    "or of its machine, and start `applier run -c FILE` again."
)
"""The hint where TiCDC does not name the zone of a TIMESTAMP, and the configuration neither."""

_LOST_FRACTION_HINT = f"Upgrade TiCDC: Open of v8.5.4 and v8.5.5 loses the fraction of TIME values. {RELOAD}"
_ZONE_HINT = "Give TiCDC servers and changefeed an IANA time zone (tz=UTC is best) and set changefeed.timezone to it."


def to_dates(values: Sequence[Any], target: Target) -> tuple[pa.Array[Any], int]:
    """DATE: text, or days since 1970-01-01."""
    if target.as_text:
        return _as_text([_day_text(value) if isinstance(value, int) else value for value in listed(values)], target), 0
    if int in _kinds(values):
        return pa.array(values, pa.int32()).cast(pa.date32()), 0
    return _parse(values, pa.date32(), target)


def to_datetimes(values: Sequence[Any], target: Target) -> tuple[pa.Array[Any], int]:
    """DATETIME: text, or microseconds from 1970-01-01 00:00:00 on the same wall clock."""
    if target.as_text:
        texts = [_clock_text(value, _digits(target)) if isinstance(value, int) else value for value in listed(values)]
        return _as_text(texts, target), 0
    if int in _kinds(values):
        return pa.array(values, pa.int64()).cast(_MICROSECONDS), 0
    return _parse(values, _MICROSECONDS, target)


def to_timestamps(values: Any, target: Target) -> tuple[pa.Array[Any], int]:
    """TIMESTAMP: text in the wire form's zone or with an offset, `ZonedText`, or microseconds since the epoch.

    Text of an hour that a zone passes twice (end of summer time) is taken as the earlier one: the wire does not show
    them apart. Text of an hour that the zone skips proves a wrong zone and is refused.
    """
    if target.as_text:
        return strings([_utc_text(value, target) for value in listed(values)]), 0
    if isinstance(values, pa.StructArray):
        return _in_zones(values, target)
    kinds = _kinds(values)
    if int in kinds:
        return pa.array(values, pa.int64()).cast(_UTC), 0
    if ZonedText in kinds:
        return _in_zones(zoned([_with_zone(value, target) for value in values]), target)
    texts = strings(values)
    if pc.any(pc.match_substring_regex(texts, _OFFSET)).as_py():
        return _parse(values, _UTC, target)
    return _in_zone(values, target.wire.zone, target)


def to_times(values: Sequence[Any], target: Target) -> pa.Array[Any]:
    """TIME: text, kept as it is, or microseconds, written as TiDB prints them."""
    if int in set(map(type, values)):
        digits = _digits(target)
        values = [_time_text(value, digits) if isinstance(value, int) else value for value in values]
    array = strings(values)
    if pc.all(pc.match_substring_regex(array, _TIME)).as_py() is False:
        raise target.refuse()
    if pc.all(pc.match_substring_regex(array, _fractional(target.column.type.scale))).as_py() is False:
        raise target.refuse("its text has other fractional digits than the column", _LOST_FRACTION_HINT)
    return array


def _fractional(digits: int | None) -> str:
    """A pattern of what ends as TiDB prints a TIME of some fractional digits; None for any."""
    if digits is None:
        return ""
    return rf"\.\d{{{digits}}}$" if digits > 0 else r"^[^.]*$"


def strings(values: Any) -> pa.Array[Any]:
    """Text as an array of strings, which it may be already."""
    return values if isinstance(values, pa.Array) else pa.array(values, pa.string())


def listed(values: Any) -> Sequence[Any]:
    """Wire values as Python objects."""
    objects: Sequence[Any] = values.to_pylist() if isinstance(values, pa.Array) else values
    if isinstance(values, pa.StructArray):
        return [None if value is None else ZonedText(**value) for value in objects]
    return objects


def _kinds(values: Any) -> set[type]:
    if isinstance(values, pa.Array):
        return {int if pa.types.is_int64(values.type) else str}
    return set(map(type, values))


def _as_text(values: Sequence[Any], target: Target) -> pa.Array[Any]:
    if not all(value is None or _DATE.fullmatch(value) for value in values):
        raise target.refuse()
    return strings(values)


def _parse(values: Sequence[Any], arrow: pa.DataType, target: Target) -> tuple[pa.Array[Any], int]:
    try:
        array = strings(values).cast(arrow)
    except pa.ArrowInvalid:
        return _parse_around_zeros(values, arrow, target)
    first: Any = pc.min(array)
    if first.is_valid and first.value < _YEAR_ONE.get(arrow, _YEAR_ONE[_MICROSECONDS]):
        return _parse_around_zeros(values, arrow, target)
    return array, 0


def _parse_around_zeros(values: Sequence[Any], arrow: pa.DataType, target: Target) -> tuple[pa.Array[Any], int]:
    texts = listed(values)
    kept = [value if value is not None and _exists(value, target) else None for value in texts]
    return strings(kept).cast(arrow), kept.count(None) - texts.count(None)


def _exists(value: Any, target: Target) -> bool:
    """False for a zero, partial or impossible date that the rules turn into NULL."""
    match = _DATE.fullmatch(value)
    if match is None:
        raise target.refuse()
    if _is_day(match):
        return True
    if target.zero_dates == "stop":
        hint = "Set tables.zero_dates to null or string to let such dates pass."
        raise target.refuse("it is a zero, partial or impossible date", hint)
    return False


def _is_day(match: re.Match[str]) -> bool:
    try:
        date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def zoned(values: Sequence[Any]) -> pa.StructArray:
    """`ZonedText` values as an array of `ZONED`."""
    pairs = [(None, None) if value is None else (value.location, value.value) for value in values]
    locations, clocks = (pa.array(part, pa.string()) for part in zip(*pairs, strict=True))
    return pa.StructArray.from_arrays([locations, clocks], fields=list(ZONED), mask=locations.is_null())


def _in_zones(values: pa.StructArray, target: Target) -> tuple[pa.Array[Any], int]:
    """`ZONED` values, one array for each zone among them, laid over each other."""
    locations, clocks = (pc.struct_field(values, name) for name in ("location", "value"))
    arrays: list[Any] = [pa.nulls(len(values), _UTC)]
    zeros = 0
    for location in sorted(locations.unique().drop_null().to_pylist()):
        here: Any = pc.if_else(pc.equal(locations, location), clocks, pa.scalar(None, pa.string()))
        array, count = _in_zone(here, location, target)
        arrays.append(array)
        zeros += count
    return pc.coalesce(*arrays), zeros


def _in_zone(texts: Sequence[Any], zone: str, target: Target) -> tuple[pa.Array[Any], int]:
    """Wall-clock text of one zone to timestamps in UTC."""
    array: Any
    zone = named_zone(zone, target)
    array, zeros = _parse(texts, _MICROSECONDS, target)
    if array.null_count == len(array) or _is_utc(zone, target):
        return array.cast(_UTC), zeros
    try:
        array = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="raise")
    except pa.ArrowInvalid:
        raise target.refuse(f"its wall clock does not exist in the zone {zone}", _ZONE_HINT) from None
    return array.cast(_UTC), zeros


def _is_utc(zone: str, target: Target) -> bool:
    if is_nameless(zone):
        what = "TiCDC does not name its time zone, which changefeed.timezone must name"
        raise target.refuse(what, NAMELESS_HINT)
    if zone_named(zone) is None:
        raise target.refuse(f"{zone!r} is not the name of a time zone", _ZONE_HINT)
    return zone in ("UTC", "Etc/UTC")


def is_nameless(zone: str) -> bool:
    """Whether a name stands for the zone of a machine: `Local`, as TiCDC v7.5.2 to v7.5.7 writes it, `System`, ""."""
    return zone.lower() in _MACHINE_ZONES


def named_zone(zone: str, target: Target) -> str:
    """The zone of a wall clock: what the wire form knows where TiCDC does not name it."""
    return target.wire.zone if is_nameless(zone) else zone


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo | None:
    """The zone of an IANA name; None for what is no zone, an offset included."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


def _with_zone(value: Any, target: Target) -> Any:
    return ZonedText(target.wire.zone, value) if isinstance(value, str) else value


def _day_text(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).date().isoformat()


def _digits(target: Target) -> int:
    """Digits of the second that TiDB prints: a count of microseconds shows no zeros at its end."""
    if target.column.type.scale is None:
        raise target.refuse("no CREATE TABLE shows how many fractional digits it has", NO_CREATE)
    return target.column.type.scale


def _clock_text(microseconds: int, digits: int) -> str:
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(" ", "seconds") + _fraction(moment.microsecond, digits)


def _fraction(microsecond: int, digits: int) -> str:
    return f".{microsecond:06}"[: digits + 1] if digits else ""


def _time_text(microseconds: int, digits: int) -> str:
    seconds, microsecond = divmod(abs(microseconds), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{'-' if microseconds < 0 else ''}{hour:02}:{minute:02}:{second:02}{_fraction(microsecond, digits)}"


def _utc_text(value: Any, target: Target) -> str | None:
    """A timestamp for a column that is text: in UTC with its own digits, zero dates as they are."""
    if value is None:
        return None
    if isinstance(value, int):
        return _clock_text(value, _digits(target))
    zoned = _with_zone(value, target)
    match = _DATE.fullmatch(zoned.value)
    if match is None:
        raise target.refuse()
    if not _is_day(match):
        return str(zoned.value).removesuffix("Z").replace("T", " ")
    moment = _moment(zoned.value, zoned.location, target)
    return moment.isoformat(" ", "seconds")[:19] + _fraction(moment.microsecond, len(match[4] or ""))


def _moment(text: str, location: str, target: Target) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    array, _ = _in_zone([text], location, target)
    moment_in_utc: datetime = array[0].as_py()
    return moment_in_utc
