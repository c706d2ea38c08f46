"""Casts the values of a column as TiDB casts them when a DDL changes its type.

TiDB sends no row events for the rewrite of MODIFY COLUMN, so the same conversion is made here, by the rules of
`pkg/types/datum.go` (`Datum.ConvertTo`) in strict SQL mode, in which the statement fails where a value does not fit. A
value that strict mode would have refused proves a session that was not strict, and is refused: what TiDB stored then
cannot be known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.table import ColumnType
from applier.changefeed.types import BINARIES, DATE_TYPES, INTEGERS, TEXTS
from applier.errors import ApplierError
from applier.sink.evolve.casts import dates, numbers, text
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value

Cast: TypeAlias = "Callable[[Array, ConvertField], Array]"
"""Casts the values of a column; a ValueError, or one of Arrow, means that a value does not fit."""

FAMILIES = {
    **dict.fromkeys(INTEGERS, "int"),
    **dict.fromkeys(TEXTS, "text"),
    **dict.fromkeys(BINARIES, "bytes"),
    **dict.fromkeys(("float", "double"), "real"),
}
"""Types that are converted alike; every other type is a family of its own."""

_WIDENED = frozenset({*FAMILIES, "bit", "decimal", "enum", "set"})
"""Types that may hold the values of a narrower one as they are; text of dates changes with their digits."""

SECONDS = frozenset({"datetime", "timestamp", "time"})
"""Types with fractional digits of the second, as many as the column has."""


class CastRefused(ApplierError):
    """A column, or a value in it, cannot be cast exactly; the text says why and holds no value."""


def family(name: str) -> str:
    """The family of a type."""
    return FAMILIES.get(name, name)


def refusal(step: ConvertField) -> str | None:
    """Why no values of these types can be cast, or None if they can."""
    pair = family(step.old.name), family(step.new.name)
    if step.old.name in SECONDS and step.old.scale is None and pair[1] in ("text", "bytes"):
        return f"the changefeed does not show how many digits of the second the {step.old.name} had"
    if pair[0] != pair[1] and step.new.name in (*SECONDS, "decimal") and step.new.scale is None:
        return f"the changefeed does not show how many digits the {step.new.name} has"
    if pair not in _CASTS or _is_text_date(step):
        return f"the exact result of TiDB's conversion from {step.old.name} to {step.new.name} is not known"
    return None


def cast(values: Array, step: ConvertField) -> Array:
    """Cast values of `step.old_arrow` to `step.new_arrow`; NULL stays NULL.

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
    except dates.Unproven:
        what = f"TiDB's exact conversion to {step.new.name} is not known for the form of a value"
        raise CastRefused(what) from None
    except (pa.ArrowException, ValueError, ArithmeticError, LookupError):
        # The text of these errors holds the value.
        what = f"a value does not fit {step.new.name} in strict SQL mode, so the session that changed it was not strict"
        raise CastRefused(what) from None


def is_lossless(old: ColumnType, new: ColumnType, arrow: pa.DataType) -> bool:
    """Whether every value of the old type is the same value in the new one, which Arrow keeps as `arrow`.

    Dates that are kept as text change with their number of digits.
    """
    kind = family(new.name)
    if family(old.name) != kind:
        return False
    match kind:
        case "int" | "bit":
            (low, high), (lowest, highest) = numbers.bounds(old), numbers.bounds(new)
            return lowest <= low and high <= highest and not pa.types.is_boolean(arrow)
        case "decimal":
            return _is_finer(old, new)
        case "real":
            is_narrower = old.name == "double" and new.name == "float"
            keeps_digits = new.scale is None or numbers.is_kept(old, new)
            return not is_narrower and keeps_digits and (old.unsigned or not new.unsigned)
        case "text" | "bytes":
            return text.is_roomier(old, new)
        case "enum" | "set":
            return not (old.elements and new.elements) or new.elements[: len(old.elements)] == old.elements
        case "datetime" | "timestamp" | "time":
            return _keeps_seconds(old, new, is_text=pa.types.is_string(arrow))
        case "vector":
            return new.length in (None, old.length)
    return True


def wider(known: ColumnType, shown: ColumnType) -> ColumnType:
    """The type that rows show if it holds each value of the known type, which does not hold all of its; else that."""
    shown = shown.completed(known)
    # Some protocols show all types of texts as one.
    is_alike = known.name == shown.name or family(shown.name) in ("int", "real")
    is_wider = is_alike and shown.name in _WIDENED and is_lossless(known, shown, pa.null())
    return shown if is_wider and not is_lossless(shown, known, pa.null()) else known


def _is_text_date(step: ConvertField) -> bool:
    """Whether a date type is kept as text: only the plain conversions of such text are known."""
    if step.old.name in DATE_TYPES and step.old_arrow == pa.string():
        return step.new.name != step.old.name and family(step.new.name) != "text"
    return step.new.name in DATE_TYPES and step.new_arrow == pa.string()


def _same(values: Array, _: ConvertField) -> Array:
    return values


def _to_enum(values: Array, step: ConvertField) -> Array:
    """Labels of the new enum: the old ones where they are still among them.

    A label in different case, or one that is gone, raises KeyError: it is left to TiDB, as the collation decides.
    """
    known = {label: label for label in step.new.elements}
    if step.old.name == "enum":
        known.setdefault("", "")  # The error value, which MySQL prints so, stays what it is.
    return by_value(values, known.__getitem__, pa.string())


def _to_set(values: Array, step: ConvertField) -> Array:
    """Members of the new set, in its own order."""
    order = {label: place for place, label in enumerate(step.new.elements)}
    return by_value(
        values, lambda text: ",".join(sorted(set(text.split(",") if text else ()), key=order.__getitem__)), pa.string()
    )


def _keeps_seconds(old: ColumnType, new: ColumnType, *, is_text: bool) -> bool:
    """Digits that were not known may be any: values are rounded, which changes none that has no more digits."""
    if old.scale is None or new.scale is None:
        return old.scale == new.scale
    return old.scale == new.scale if is_text else old.scale <= new.scale


def _is_finer(old: ColumnType, new: ColumnType) -> bool:
    if old.scale is None or old.scale != new.scale or old.length is None or new.length is None:
        return False
    return old.length <= new.length and (old.unsigned or not new.unsigned)


_NUMBERS = ("int", "year", "bit", "decimal", "real", "text")
_PRINTED = ("int", "year", "decimal", "real", "text", "bytes", "date", "datetime", "time", "enum", "set", "json")

_CASTS: dict[tuple[str, str], Cast] = {
    **{(old, "int"): numbers.to_whole for old in _NUMBERS},
    **{(old, "bit"): numbers.to_whole for old in ("int", "bit")},
    **{(old, "decimal"): numbers.to_decimal for old in _NUMBERS},
    **{(old, "real"): numbers.to_real for old in _NUMBERS},
    **{(old, "text"): text.to_text for old in _PRINTED},
    **{(old, "bytes"): text.to_bytes for old in _PRINTED},
    ("int", "year"): numbers.to_year,
    ("text", "year"): numbers.to_year,
    ("year", "year"): _same,
    ("enum", "enum"): _to_enum,
    ("text", "enum"): _to_enum,
    ("set", "set"): _to_set,
    ("text", "set"): _to_set,
    ("date", "date"): _same,
    ("datetime", "datetime"): dates.round_seconds,
    ("timestamp", "timestamp"): dates.round_seconds,
    ("time", "time"): dates.to_time,
    ("date", "datetime"): _same,
    ("datetime", "date"): dates.to_date,
    ("text", "date"): dates.date_of_text,
    ("text", "datetime"): dates.datetime_of_text,
    ("text", "time"): dates.to_time,
    ("json", "json"): _same,
}
