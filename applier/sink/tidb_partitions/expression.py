"""Parses and evaluates the expression that partitions a table, exactly as TiDB does (`pkg/expression`).

It is a column, a constant, or functions of these; partitions have no other here. What has another form, or whose exact
value is not known, raises `Inexact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute

from applier.ddl.tokens import NUMBER, STRING, WORD, Tokens, Unreadable, statements
from applier.sink.format.types import repeated

Values: TypeAlias = Any
"""One value a row, as `pa.ChunkedArray`: pyarrow's types have no name for what its functions take and give."""

DAY_ZERO = 719528
"""TO_DAYS('1970-01-01')."""

pc: Any = pyarrow.compute

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?", re.ASCII)


class Inexact(Exception):
    """Which partition a row is in cannot be determined exactly; the text says why, and holds no value of a row."""


class Name(NamedTuple):
    """A column."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = int | str | Name | Call
"""An expression; whole numbers and strings are those of Python."""

T = TypeVar("T")

_CHARSET = re.compile(r"(?<![\w`])_(?!(?:utf8mb4|utf8|ascii)\b)\w+\s*'", re.IGNORECASE)
"""What stands before a string of a charset whose characters are others."""


def parse(text: str) -> Node:
    """The tree of an expression in SQL: names in backticks or bare, quote and backslash doubled in strings."""
    return _whole(text, _term)


def parse_names(text: str) -> tuple[str, ...]:
    """Names of a column list."""
    return _whole(text, Tokens.names)


def columns_of(node: Node) -> tuple[str, ...]:
    """Columns of an expression, each once."""
    if isinstance(node, Name):
        return (node.name,)
    arguments = node.arguments if isinstance(node, Call) else ()
    return tuple(dict.fromkeys(name for argument in arguments for name in columns_of(argument)))


def _whole(text: str, read: Callable[[Tokens], T]) -> T:
    """All of a text, as `read` takes it."""
    with suppress(Unreadable, ValueError):
        (statement,) = statements("" if _CHARSET.search(text) else text, printed=False)
        tokens = Tokens(statement, "")
        found = read(tokens)
        if tokens.done:
            return found
    raise Inexact(f"the expression {text} has a form that is not known")


def _term(tokens: Tokens) -> Node:
    """Take a number, a string, a column, or a function with its arguments."""
    if tokens.skip("("):
        node = _term(tokens)
        tokens.expect(")")
        return node
    if tokens.skip("-"):
        return -tokens.integer()
    if tokens.next.kind == NUMBER:
        return tokens.integer()
    if tokens.next.kind == STRING:
        return tokens.string()
    is_function, name = tokens.next.kind == WORD and tokens.ahead(1).is_("("), tokens.name()
    return Call(name.upper(), tuple(tokens.listed_in_group(_term, ""))) if is_function else Name(name)


def moment(text: str) -> datetime:
    """A date or date and time as it stands in SQL."""
    with suppress(ValueError):
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    raise Inexact("a date is not written as YYYY-MM-DD with or without hh:mm:ss")


def evaluate(node: Node, rows: pa.Table) -> Values:
    """Values of an expression, one a row: whole numbers (int64), or what a column holds if the expression is that
    column.

    The columns of the rows have the names that the expression uses.
    """
    try:
        return _value(node, rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        raise Inexact("a value is out of the range of the partitioning expression") from None


def constant(node: Node) -> int:
    """The whole number that an expression without columns is."""
    if isinstance(node, int):
        return node
    value = evaluate(node, pa.table({"": pa.nulls(1)}))[0].as_py()
    if not isinstance(value, int):
        raise Inexact("a bound of a partition is no whole number")
    return value


def _value(node: Node, rows: pa.Table) -> Values:
    if isinstance(node, Name):
        return rows[node.name]
    if isinstance(node, Call) and len(node.arguments) == 1:
        (argument,) = node.arguments
        if node.function in _OF_MOMENT:
            return _OF_MOMENT[node.function](_moments(argument, rows)).cast(pa.int64())
        if node.function == "UNIX_TIMESTAMP":
            return _epoch_seconds(argument, rows)
    what = f"the function {node.function}" if isinstance(node, Call) else "a constant"
    raise Inexact(f"{what} is not computed here: only a column, TO_DAYS, YEAR, MONTH and UNIX_TIMESTAMP are")


def _moments(node: Node, rows: pa.Table) -> Values:
    """Dates and times of an argument, without a zone."""
    if isinstance(node, str):
        return repeated(pa.scalar(moment(node), pa.timestamp("us")), rows.num_rows)
    values = _value(node, rows)
    if pa.types.is_date(values.type) or (pa.types.is_timestamp(values.type) and values.type.tz is None):
        return values.cast(pa.timestamp("us"))
    raise Inexact(f"a column of the expression is kept as {values.type}, which is no date without a zone")


def _days(values: Values) -> Values:
    """TO_DAYS: days since the year 0, by the proleptic Gregorian calendar."""
    days = pc.floor_temporal(values, unit="day").cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return pc.add(days, DAY_ZERO)


def _epoch_seconds(argument: Node, rows: pa.Table) -> Values:
    """UNIX_TIMESTAMP: seconds since 1970."""
    values = _value(argument, rows)
    if not pa.types.is_timestamp(values.type) or values.type.tz is None:
        raise Inexact("UNIX_TIMESTAMP of anything but a TIMESTAMP column depends on the time zone of a session")
    try:
        return values.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())
    except pa.ArrowInvalid:
        raise Inexact("UNIX_TIMESTAMP of a column with fractions of a second is no whole number") from None


_OF_MOMENT: Mapping[str, Callable[[Values], Values]] = {"YEAR": pc.year, "MONTH": pc.month, "TO_DAYS": _days}
