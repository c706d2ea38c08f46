"""Compares the rows of a column with the bounds and values of partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from applier.changefeed.table import Column
from applier.changefeed.types import INTEGERS
from applier.sink.tidb_partitions.expression import Call, Inexact, Name, Values, constant, moment, parse

pc: Any = pyarrow.compute

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class Max:
    """MAXVALUE: no row reaches it."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number that depends on the time zone of the session that ran the statement: the least and the greatest it can
    be.
    """

    low: int
    high: int


Bound: TypeAlias = "int | str | date | datetime | Between | type[Max] | None"
"""A value that rows are compared with; None for NULL."""

_INTEGERS = frozenset({*INTEGERS, "year"})
_TEXTS = frozenset({"char", "varchar"})

_ORDERED_ALIKE = r"^[ \-./0-9A-Za-z]*$"
"""Characters that every collation of TiDB orders by their codes, save that some take small letters for large."""

_COLLATION = "the collation of a column decides on some rows, and the feed does not show it"

_EAST, _WEST = timedelta(hours=14), timedelta(hours=-12, minutes=-59)
"""The time zones that a session can have."""

_INT64 = range(-(2**63), 2**63)


def range_bound(text: str) -> Bound:
    """Upper bound of a partition by RANGE over an expression; raises Inexact where its value is not known."""
    if text == "MAXVALUE":
        return Max
    node = parse(text)
    match node:
        case Call("UNIX_TIMESTAMP", (str(wall_clock),)):
            return _in_any_zone(moment(wall_clock))
    return constant(node)


def list_value(text: str) -> Bound:
    """Value of a partition by LIST over an expression; raises Inexact where it is not known."""
    node = parse(text)
    if isinstance(node, str | Name):
        raise Inexact("a value of a list is no whole number")
    return constant(node)


def column_bound(text: str, column: Column) -> Bound:
    """A bound or value of a partition by columns, as the column holds it; raises Inexact where it is not known."""
    if text == "MAXVALUE":
        return Max
    node = parse(text)
    if column.type.name in _INTEGERS:
        return constant(node)
    if isinstance(node, str):
        if column.type.name in _TEXTS:
            return node
        if column.type.name in ("date", "datetime"):
            return _day_or_moment(moment(node), column)
    raise Inexact(f"a value for column {column.name} of type {column.type.name} is not understood")


def compare(column: Values, bound: Bound) -> tuple[Mask, Mask]:
    """Which values are greater than a bound, and which are equal to it: NULL is so to NULL alone.

    Raises:
        Inexact: For some value it depends on what the feed does not show.
    """
    nothing = np.zeros(len(column), bool)
    if bound is Max:
        return nothing, nothing
    if bound is None:
        return nothing, np.asarray(column.is_null().to_numpy(), bool)
    if isinstance(bound, Between):
        return _between(column, bound)
    if isinstance(bound, str):
        return _texts(column, bound)
    if isinstance(bound, int):
        return _numbers(column, bound)
    wanted = pa.timestamp("us") if isinstance(bound, datetime) else pa.date32()
    if column.type != wanted:
        raise Inexact(f"a column that partitions it is kept as {column.type}")
    return _compared(column, pa.scalar(bound, wanted))


def equal_bytes(column: Values, value: Bound) -> Mask:
    """Which values are the same as a bound whatever the collation: none that are only equal under some."""
    if isinstance(value, str) and column.type == pa.string():
        return _compared(column, pa.scalar(value, column.type))[1]
    return compare(column, value)[1]


def _in_any_zone(wall_clock: datetime) -> Between:
    epoch = datetime(1970, 1, 1)
    low, high = (int((wall_clock - offset - epoch).total_seconds()) for offset in (_EAST, _WEST))
    return Between(max(low, 0), max(high, 0))


def _day_or_moment(value: datetime, column: Column) -> Bound:
    if column.type.name == "datetime":
        if value.microsecond and column.type.scale is None:
            raise Inexact(f"the feed does not show how many digits of the second column {column.name} has")
        if value.microsecond % 10 ** (6 - (column.type.scale or 0)):
            raise Inexact(f"a value for column {column.name} has more digits than the column")
        return value
    if value != datetime(value.year, value.month, value.day):
        raise Inexact(f"a value for the date column {column.name} has a time of day")
    return value.date()


def _compared(column: Values, bound: pa.Scalar[Any]) -> tuple[Mask, Mask]:
    return _mask(pc.greater(column, bound)), _mask(pc.equal(column, bound))


def _mask(values: Values) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(), bool)


def _between(column: Values, bound: Between) -> tuple[Mask, Mask]:
    low, high = _numbers(column, bound.low), _numbers(column, bound.high)
    if not np.array_equal(np.logical_or(*low), np.logical_or(*high)):
        raise Inexact("the time zone of the session that set the bounds decides on some rows, and no message shows it")
    # Only whether a value reaches the bound counts in a range.
    return np.logical_or(*low), np.zeros(len(column), bool)


def _numbers(column: Values, bound: int) -> tuple[Mask, Mask]:
    if pa.types.is_integer(column.type):
        if bound not in _INT64:
            every = _mask(pc.is_valid(column)) & (bound < 0)
            return every, np.zeros(len(column), bool)
        return _compared(column.cast(pa.int64()), pa.scalar(bound, pa.int64()))
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        kind = pa.decimal128(38, 0)
        return _compared(column.cast(kind), pa.scalar(Decimal(bound), kind))
    raise Inexact(f"a column that partitions it is kept as {column.type}")


def _texts(column: Values, bound: str) -> tuple[Mask, Mask]:
    """Compare under every collation that the column may have.

    Binary collations compare codes, most others take small letters for large, and both may ignore spaces at the end.
    """
    if not pa.types.is_string(column.type):
        raise Inexact(f"a column that partitions it is kept as {column.type}")
    _, equal = _compared(column, pa.scalar(bound))
    rest = column.filter(pa.array(~equal))
    plain = pc.all(pc.match_substring_regex(rest, _ORDERED_ALIKE)).as_py() is not False
    if rest.null_count < len(rest) and not (plain and re.match(_ORDERED_ALIKE, bound)):
        raise Inexact(_COLLATION)
    forms: list[Callable[[Any], Any]] = [
        lambda values: values,
        lambda values: pc.utf8_rtrim(values, characters=" "),
        pc.ascii_lower,
        lambda values: pc.ascii_lower(pc.utf8_rtrim(values, characters=" ")),
    ]
    value = pa.scalar(bound)
    first, *others = (_compared(form(column), form(value)) for form in forms)
    if any(not np.array_equal(*pair) for other in others for pair in zip(first, other, strict=True)):
        raise Inexact(_COLLATION)
    return first
