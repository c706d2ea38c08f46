"""Evaluates a partitioning expression exactly as TiDB does (`pkg/expression`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from applier.sink.format.types import repeated
from applier.sink.tidb_partitions.expression import Call, Inexact, Name, Node, Number, StringLiteral

Values: TypeAlias = Any
"""One value a row, as `pa.ChunkedArray`: pyarrow's types have no name for what its functions take and give."""

DAY_ZERO = 719528
"""TO_DAYS('1970-01-01')."""

pc: Any = pyarrow.compute

_MICROS = 1_000_000
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?", re.ASCII)


def moment(text: str) -> datetime:
    """A date or date and time as it stands in SQL.

    Raises:
        Inexact: It is written in another way, or no such day exists.
    """
    try:
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise Inexact("a date is not written as YYYY-MM-DD with or without hh:mm:ss")


def evaluate(node: Node, rows: pa.Table) -> Values:
    """Values of an expression, one a row: whole numbers (int64), or what a column holds if the expression is that
    column.

    The columns of the rows have the names that the expression uses.

    Raises:
        Inexact: A function or an argument whose exact value is not known.
    """
    try:
        return _value(node, rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        raise Inexact("a value is out of the range of the partitioning expression") from None


def constant(node: Node) -> int:
    """The whole number that an expression without columns is.

    Raises:
        Inexact: It is none, or depends on a session.
    """
    if isinstance(node, Number):
        return node.value
    value = evaluate(node, pa.table({"": pa.nulls(1)}))[0].as_py()
    if not isinstance(value, int):
        raise Inexact("a bound of a partition is no whole number")
    return value


def _value(node: Node, rows: pa.Table) -> Values:
    if isinstance(node, Number):
        return _repeated(pa.scalar(node.value, pa.int64()), rows)
    if isinstance(node, Name):
        return rows[node.name]
    if isinstance(node, StringLiteral):
        raise Inexact("the partitioning expression takes a string for a number")
    if node.function in _NUMERIC:
        return _NUMERIC[node.function](*(_whole(argument, rows) for argument in _counted(node, 2)))
    if node.function in _OF_MOMENT:
        return _OF_MOMENT[node.function](*(_moments(argument, rows) for argument in _counted(node, 1))).cast(pa.int64())
    if node.function in _OTHER:
        return _OTHER[node.function](node, rows)
    raise Inexact(f"the exact values of the function {node.function} are not known")


def _counted(node: Call, count: int) -> tuple[Node, ...]:
    if len(node.arguments) != count:
        raise Inexact(f"the function {node.function} has {len(node.arguments)} arguments")
    return node.arguments


def _whole(node: Node, rows: pa.Table) -> Values:
    values = _value(node, rows)
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    if pa.types.is_decimal(values.type) and values.type.scale == 0:
        return values.cast(pa.int64())
    raise Inexact(f"a column of the expression is kept as {values.type}, which is no whole number")


def _moments(node: Node, rows: pa.Table) -> Values:
    """Dates and times of an argument, without a zone."""
    if isinstance(node, StringLiteral):
        return _repeated(pa.scalar(moment(node.value), pa.timestamp("us")), rows)
    values = _value(node, rows)
    if pa.types.is_date(values.type) or (pa.types.is_timestamp(values.type) and values.type.tz is None):
        return values.cast(pa.timestamp("us"))
    raise Inexact(f"a column of the expression is kept as {values.type}, which is no date without a zone")


def _days(values: Values) -> Values:
    """TO_DAYS: days since the year 0, by the proleptic Gregorian calendar."""
    days = pc.floor_temporal(values, unit="day").cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return pc.add(days, DAY_ZERO)


def _divided(left: Values, right: Values) -> Values:
    """DIV: cut towards zero, NULL for a division by zero."""
    return pc.divide_checked(left, pc.if_else(pc.equal(right, 0), pa.scalar(None, pa.int64()), right))


def _remainder(left: Values, right: Values) -> Values:
    """MOD: with the sign of the dividend."""
    return pc.subtract_checked(left, pc.multiply_checked(right, _divided(left, right)))


def _floor(call: Call, rows: pa.Table) -> Values:
    """FLOOR of a whole number, or of the seconds of a timestamp with fractions."""
    (argument,) = _counted(call, 1)
    if isinstance(argument, Call) and argument.function == "UNIX_TIMESTAMP":
        return _epoch_seconds(argument, rows)[0]
    return _whole(argument, rows)


def _unix_timestamp(call: Call, rows: pa.Table) -> Values:
    seconds, micros = _epoch_seconds(call, rows)
    if pc.any(pc.not_equal(micros, 0)).as_py():
        raise Inexact("UNIX_TIMESTAMP of a column with fractions of a second is no whole number")
    return seconds


def _epoch_seconds(call: Call, rows: pa.Table) -> tuple[Values, Values]:
    """Seconds since 1970, rounded down, and the microseconds that are left."""
    (argument,) = _counted(call, 1)
    values = None if isinstance(argument, StringLiteral) else _value(argument, rows)
    if values is None or not pa.types.is_timestamp(values.type) or values.type.tz is None:
        raise Inexact("UNIX_TIMESTAMP of anything but a TIMESTAMP column depends on the time zone of a session")
    micros = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    seconds = pc.floor_temporal(values, unit="second").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return _divided(seconds, _repeated(pa.scalar(_MICROS, pa.int64()), rows)), pc.subtract(micros, seconds)


def _concat(call: Call, rows: pa.Table) -> Values:
    return pc.binary_join_element_wise(
        *(_text(argument, rows) for argument in call.arguments), "", null_handling="emit_null"
    )


def _text(node: Node, rows: pa.Table) -> Values:
    if isinstance(node, StringLiteral):
        return _repeated(pa.scalar(node.value, pa.string()), rows)
    values = _value(node, rows)
    return values if pa.types.is_string(values.type) else _whole(node, rows).cast(pa.string())


def _repeated(value: pa.Scalar[Any], rows: pa.Table) -> Values:
    return repeated(value, rows.num_rows)


_NUMERIC: Mapping[str, Callable[..., Values]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "DIV": _divided,
    "%": _remainder,
}

_OF_MOMENT: Mapping[str, Callable[[Values], Values]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "DAYOFMONTH": pc.day,
    "TO_DAYS": _days,
}

_OTHER: Mapping[str, Callable[[Call, pa.Table], Values]] = {
    "FLOOR": _floor,
    "CONCAT": _concat,
    "UNIX_TIMESTAMP": _unix_timestamp,
}
