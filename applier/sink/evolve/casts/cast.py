"""Casts the values of a column as TiDB casts them when a DDL changes its type.

TiDB sends no row events for the rewrite of MODIFY COLUMN, so the same conversion is made here, by the rules of
`pkg/types/datum.go` (`Datum.ConvertTo`) in strict SQL mode, in which the statement fails where a value does not fit. A
value that strict mode would have refused proves a session that was not strict, and is refused: what TiDB stored then
cannot be known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from applier.changefeed.types import DATE_TYPES
from applier.sink.evolve.casts import dates as casts_dates
from applier.sink.evolve.casts import members as casts_members
from applier.sink.evolve.casts import numbers as casts_numbers
from applier.sink.evolve.casts import text as casts_text
from applier.sink.evolve.steps import ConvertField

Array: TypeAlias = "pa.Array[Any]"
Cast: TypeAlias = "Callable[[Array, ConvertField], Array]"

FAMILIES = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "int"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"),
    **dict.fromkeys(("float", "double"), "real"),
}
"""Types that are converted alike; every other type is a family of its own."""

SECONDS = frozenset({"datetime", "timestamp", "time"})
"""Types with fractional digits of the second, as many as the column has."""

_ZONE = "the time zone of the session that ran the statement decides on the values, and the changefeed does not show it"
_TODAY = "the date on which the statement ran becomes part of the values"


class CastRefused(Exception):
    """A column, or a value in it, cannot be cast exactly; the text says why and holds no value."""


def family(name: str) -> str:
    """The family of a type name."""
    return FAMILIES.get(name, name)


def refusal(step: ConvertField) -> str | None:
    """Why no values of these types can be cast, or None if they can."""
    pair = family(step.old.name), family(step.new.name)
    if pair in _REASONS:
        return _REASONS[pair]
    if step.old.name in SECONDS and step.old.scale is None and pair[1] in ("text", "bytes"):
        return f"the changefeed does not show how many digits of the second the {step.old.name} had"
    if pair[0] != pair[1] and step.new.name in (*SECONDS, "decimal") and step.new.scale is None:
        return f"the changefeed does not show how many digits the {step.new.name} has"
    if pair not in _CASTS or _is_text_date(step) or _is_rounded_real(step):
        return f"the exact result of TiDB's conversion from {step.old.name} to {step.new.name} is not known"
    return None


def cast(values: Array, step: ConvertField) -> Array:
    """Cast values.

    Args:
        values: Of `step.old_arrow`.
        step: The types.

    Returns:
        Values of `step.new_arrow`; NULL stays NULL.

    Raises:
        CastRefused: A value would not have passed in strict mode, or is a zero date that is kept as NULL.
    """
    reason = refusal(step)
    if reason is not None:
        raise CastRefused(reason)
    if values.null_count and not step.holds_null and step.old.name in DATE_TYPES:
        raise CastRefused("zero dates are kept as NULL, and what they were cannot be determined from it")
    try:
        return _CASTS[family(step.old.name), family(step.new.name)](values, step).cast(step.new_arrow)
    except (pa.ArrowException, ValueError, ArithmeticError, LookupError):
        # The text of these errors holds the value.
        what = f"a value does not fit {step.new.name} in strict SQL mode, so the session that changed it was not strict"
        raise CastRefused(what) from None


def _is_text_date(step: ConvertField) -> bool:
    """Whether a date type is kept as text, of which only the plain conversions are known."""
    text = pa.string()
    if step.old.name in DATE_TYPES and step.old_arrow == text:
        return step.new.name != step.old.name and family(step.new.name) != "text"
    return step.new.name in DATE_TYPES and step.new_arrow == text


def _is_rounded_real(step: ConvertField) -> bool:
    """Whether the new type is FLOAT(M,D), which cuts the digits of every value."""
    return family(step.new.name) == "real" and step.new.scale is not None


def _same(values: Array, _: ConvertField) -> Array:
    return values


def _by_text(read: Cast) -> Cast:
    """A cast that goes on from the text that TiDB prints of the old values."""
    return lambda values, step: read(casts_text.text_of(values, step), step)


def _by_whole(read: Cast) -> Cast:
    """A cast that goes on from the whole numbers that the old values are."""
    return lambda values, step: read(casts_numbers.whole_of(values, step), step)


_NUMBERS = ("int", "year", "bit", "decimal", "real", "text", "enum", "set")
_PRINTED = ("int", "year", "decimal", "real", "text", "bytes", "date", "datetime", "time", "enum", "set", "json")

_CASTS: dict[tuple[str, str], Cast] = {
    **{(old, "int"): _by_whole(casts_numbers.fit_whole) for old in _NUMBERS},
    **{(old, "bit"): _by_whole(casts_numbers.fit_whole) for old in ("int", "bit")},
    **{(old, "decimal"): casts_numbers.to_decimal for old in _NUMBERS},
    **{(old, "real"): casts_numbers.to_real for old in _NUMBERS},
    **{(old, "text"): _by_text(casts_text.fit_text) for old in _PRINTED},
    **{(old, "bytes"): _by_text(casts_text.fit_bytes) for old in _PRINTED if old != "bytes"},
    ("bytes", "bytes"): casts_text.fit_bytes,
    ("int", "year"): _by_whole(casts_numbers.fit_year),
    ("text", "year"): _by_whole(casts_numbers.fit_year),
    ("year", "year"): _same,
    ("enum", "enum"): casts_members.to_enum,
    ("text", "enum"): casts_members.to_enum,
    ("int", "enum"): casts_members.enum_of_index,
    ("set", "set"): casts_members.to_set,
    ("text", "set"): casts_members.to_set,
    ("int", "set"): casts_members.set_of_mask,
    ("date", "date"): _same,
    ("datetime", "datetime"): casts_dates.round_seconds,
    ("timestamp", "timestamp"): casts_dates.round_seconds,
    ("time", "time"): casts_dates.to_time,
    ("date", "datetime"): _same,
    ("datetime", "date"): casts_dates.to_date,
    ("text", "date"): casts_dates.date_of_text,
    ("text", "datetime"): casts_dates.datetime_of_text,
    ("text", "time"): casts_dates.to_time,
    ("json", "json"): _same,
}

_REASONS: dict[tuple[str, str], str] = {
    **{
        ("timestamp", other): _ZONE for other in ("date", "datetime", "time", "text", "bytes", "int", "decimal", "real")
    },
    **{(other, "timestamp"): _ZONE for other in ("date", "datetime", "text", "bytes", "int", "decimal", "real")},
    **{("time", other): _TODAY for other in ("date", "datetime", "timestamp")},
}
