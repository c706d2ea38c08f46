"""Computes the value that TiDB gives existing rows in a column that ADD COLUMN makes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from applier.changefeed.cast import NotExact
from applier.changefeed.table import UNKNOWN_DEFAULT, Column, ColumnType
from applier.changefeed.types import DATE_TYPES, TypeRules, arrow_type, plain_type, reshaped
from applier.sink.evolve.casts.cast import CastRefused, cast, family
from applier.sink.evolve.casts.dates import moment_text
from applier.sink.evolve.steps import ConvertField, Refusal

_ZERO_DATES = {"date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "timestamp": "0000-00-00 00:00:00"}
_ZEROS = {"time": "00:00:00", "json": "null", "vector": "[]", "year": "0000"}
_CLOCKS = re.compile(r"CURRENT_(TIMESTAMP|DATE)|NOW\(|LOCALTIME|CURDATE|CURTIME", re.IGNORECASE)
_MICROSECONDS = 6
_MOST_DIGITS = 65
_SESSION = (
    "its default is a wall clock, and the changefeed does not show the time zone of the session that ran the "
    "statement; set changefeed.session_timezone to it"
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNKNOWN_HINT = (
    'set tables.unknown_default = "null": the rows before the statement are NULL in the column until they change.'
)


class DefaultUnknown(Exception):
    """What rows from before have cannot be determined; the text says why."""


def existing_value(column: Column, arrow: pa.DataType, rules: TypeRules, path: str) -> pa.Scalar[Any]:
    """The value of a new column in rows that were there before.

    TiDB keeps it as the column's origin default (`generateOriginDefaultValue` in `pkg/ddl`): the default; for NOT NULL
    without one the zero value of the type, of an enum the first member. The rules know the column by its path,
    `database.table.column`.

    Raises:
        DefaultUnknown: The default is the time at which the statement ran, or an expression.
    """
    if column.default == UNKNOWN_DEFAULT:
        raise DefaultUnknown("the changefeed does not show its default")
    if column.generated == "stored":
        raise DefaultUnknown("the expression of a stored generated column is not computed here")
    if column.generated or (column.default is None and column.nullable):
        return pa.scalar(None, arrow)
    text = zero_text(column) if column.default is None else column.default
    plain = plain_type(column.type, rules, path)
    if rules.mask_of(path) is None and plain == arrow_type(column.type, rules, path):
        return _plain_value(text, column, arrow, rules, path)
    value = _plain_value(text, column, plain, rules, path)
    try:
        found: pa.Scalar[Any] = reshaped(pa.array([value], plain), column.type, rules, path)[0]
        return found.cast(arrow)
    except (NotExact, pa.ArrowInvalid):
        reason = "its default does not fit the type that the column is cast to"
        raise DefaultUnknown(reason) from None


def _plain_value(text: str, column: Column, arrow: pa.DataType, rules: TypeRules, path: str) -> pa.Scalar[Any]:
    try:
        if column.type.name in DATE_TYPES:
            return _dated(text, column, arrow, rules.zero_date_policy(path, column.type), rules.session_zone)
        return _scalar(text, column, arrow)
    except (pa.ArrowException, ValueError, ArithmeticError, msgspec.MsgspecError, CastRefused):
        reason = f"its default is an expression, or no {column.type.name} that can be read"
        raise DefaultUnknown(reason) from None


def filled(column: Column, arrow: pa.DataType, rules: TypeRules, path: str) -> tuple[pa.Scalar[Any], Refusal | None]:
    """That value, or NULL where it is not known; and why the column must not be filled so, if the rules refuse it."""
    try:
        return existing_value(column, arrow, rules, path), None
    except DefaultUnknown as error:
        doubt = f"The value of the new column {column.name} in existing rows is not known: {error}."
        refusal = Refusal(doubt, _UNKNOWN_HINT, column.name)
        return pa.scalar(None, arrow), None if rules.unknown_default == "null" else refusal


def zero_text(column: Column) -> str:
    """The zero value of a type, as text of a default (`table.GetZeroValue`)."""
    kind = column.type
    if kind.name in _ZERO_DATES:
        # No digits where their number is unknown: zeros behind the point say nothing.
        digits = kind.scale or 0
        return _ZERO_DATES[kind.name] + ("." + "0" * digits if digits and kind.name != "date" else "")
    if kind.name == "enum":
        return kind.elements[0] if kind.elements else ""
    if kind.name in _ZEROS:
        return _ZEROS[kind.name]
    return "" if family(kind.name) in ("text", "bytes", "set") else "0"


def _dated(text: str, column: Column, arrow: pa.DataType, policy: str, zone: str | None) -> pa.Scalar[Any]:
    if _CLOCKS.match(text):
        raise DefaultUnknown("its default is the time at which the statement ran, which the changefeed does not show")
    kind = column.type
    digits = min(_digits(text), _MICROSECONDS) if kind.scale is None else kind.scale
    text = zero_text(column) if text == "0" else moment_text(text, 0 if kind.name == "date" else digits)
    if kind.name == "date":
        text = text[:10]
    if column.type.name == "timestamp":
        text = _in_utc(text, zone)
    if pa.types.is_string(arrow):
        return pa.scalar(text, arrow)
    if text.startswith("0000"):
        return _zero(arrow, policy)  # Arrow takes year 0 for a year, but no reader of the table does.
    try:
        # Arrow does not take text without a zone for an instant.
        return pa.scalar(text + "Z" if getattr(arrow, "tz", None) else text).cast(arrow)
    except pa.ArrowInvalid:
        return _zero(arrow, policy)


def _in_utc(text: str, zone: str | None) -> str:
    """The wall clock of a zone as that of UTC. A zero or partial date is no wall clock, and stays."""
    try:
        wall_clock = datetime.fromisoformat(text)
    except ValueError:
        return text
    if zone is None:
        raise DefaultUnknown(_SESSION)
    try:
        moments = {wall_clock.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)}
    except (ValueError, OSError, LookupError, OverflowError):
        raise DefaultUnknown(f"changefeed.session_timezone is {zone!r}, which is not the name of a time zone") from None
    if len(moments) > 1:
        raise DefaultUnknown(f"its default is a wall clock that {zone} has twice, or never")
    (moment,) = moments
    return moment.replace(tzinfo=None).isoformat(" ", "seconds")[:19] + text[19:]


def _zero(arrow: pa.DataType, policy: str) -> pa.Scalar[Any]:
    if policy == "stop":
        raise DefaultUnknown("its default is a zero or partial date, and tables.zero_dates is stop") from None
    return pa.scalar(None, arrow)


def _scalar(text: str, column: Column, arrow: pa.DataType) -> pa.Scalar[Any]:
    kind = column.type
    match family(kind.name):
        case "bytes" if _REPLACEMENT in text:
            raise ValueError  # Bytes that are no UTF-8 were lost on the way.
        case "bytes" if kind.name == "binary" and kind.length is None:
            raise DefaultUnknown("it is filled up with zero bytes to a length that the changefeed does not show")
        case "text" if kind.name == "text" and text.endswith(" "):
            # TEXT has no plain default: Avro says text for CHAR and VARCHAR as well.
            raise DefaultUnknown("CHAR cuts the spaces at its end, and the changefeed does not show whether it is one")
        case "vector":
            return pa.scalar(msgspec.json.decode(text, type=list[float]), arrow)
        case "json":
            return pa.scalar(text, arrow)
        case "bit":
            written = ColumnType("bigint", unsigned=True)
        case _:
            written = ColumnType("varchar")
    if kind.scale is None and kind.name in ("decimal", "time"):
        # As many digits as the text has.
        kind = replace(kind, length=kind.length or _MOST_DIGITS, scale=_digits(text))
    step = ConvertField(column.name, written, kind, pa.string(), arrow)
    return cast(pa.array([text]), step)[0]  # type: ignore[no-any-return]


def _digits(text: str) -> int:
    """Digits after the point, for a type that does not say how many there are."""
    return len(text.partition(".")[2])
