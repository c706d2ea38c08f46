"""Parses partition clauses into `Partitioning` and `Partition`; bounds and values stay SQL."""

from __future__ import annotations

from applier.changefeed.table import Partition, Partitioning
from applier.ddl.tokens import NAME, NUMBER, STRING, WORD, Token, Tokens, render

_MAX_PARTITIONS = 8192
"""TiDB's own limit."""


def read_partitioning(tokens: Tokens) -> Partitioning:
    """Take what follows PARTITION BY, with its definitions."""
    tokens.skip("LINEAR")
    method = tokens.skip("RANGE", "LIST", "HASH", "KEY").lower()
    if not method:
        raise tokens.unreadable("a way of partitioning is not known")
    if method == "key" and tokens.skip("ALGORITHM"):
        tokens.skip("=")
        tokens.integer()
    if method in ("range", "list") and tokens.skip("COLUMNS"):
        method += " columns"
    expression = render(tokens.group())
    if tokens.at("INTERVAL", "SUBPARTITION"):
        raise tokens.unreadable("partitions by interval and subpartitions are not listed by their names")
    number = _number(tokens) if tokens.skip("PARTITIONS") else 0
    if tokens.at("SUBPARTITION"):
        raise tokens.unreadable("subpartitions are not known")
    partitions = read_partitions(tokens) if tokens.at("(") else ()
    if tokens.skip("UPDATE INDEXES"):
        tokens.group()
    if method in ("hash", "key") and not partitions:
        partitions = tuple(Partition(f"p{place}") for place in range(number or 1))
    return Partitioning(method, expression, partitions)


def _number(tokens: Tokens) -> int:
    number = tokens.integer()
    if number > _MAX_PARTITIONS:
        raise tokens.unreadable(f"{number} partitions are more than TiDB allows")
    return number


def read_partitions(tokens: Tokens) -> tuple[Partition, ...]:
    """Take definitions of partitions in parentheses."""
    return tuple(tokens.listed_in_group(_partition, "a partition is not understood"))


def added_partitions(tokens: Tokens) -> tuple[Partition, ...]:
    """Take what ADD PARTITION adds: definitions, or a number of partitions whose names are left to TiDB."""
    if tokens.skip("PARTITIONS"):
        return (Partition(""),) * _number(tokens)
    return read_partitions(tokens)


def partition_names(tokens: Tokens) -> tuple[str, ...]:
    """Take names of partitions, or ALL: ()."""
    return () if tokens.skip("ALL") else tokens.names()


def _partition(tokens: Tokens) -> Partition:
    tokens.expect("PARTITION")
    name = tokens.name()
    bound: tuple[str, ...] = ()
    values: tuple[tuple[str | None, ...], ...] = ()
    if tokens.skip("VALUES LESS THAN"):
        bound = ("MAXVALUE",) if tokens.skip("MAXVALUE") else _texts(tokens)
    elif tokens.skip("VALUES IN"):
        values = tuple(tokens.listed_in_group(_row, "the values of a partition are not understood"))
    elif tokens.skip("DEFAULT"):
        values = (("DEFAULT",),)
    _options(tokens)
    return Partition(name, bound, values)


def _texts(tokens: Tokens) -> tuple[str, ...]:
    return tuple(tokens.listed_in_group(lambda inner: _written(_value(inner)), "a bound is not understood"))


def _value(tokens: Tokens) -> list[Token]:
    found = tokens.until(",")
    if not found:
        raise tokens.unreadable("a value of a partition is missing")
    return found


def _written(found: list[Token]) -> str:
    """SQL of a value; the words MAXVALUE and DEFAULT in capitals, however they were written."""
    text = render(found)
    return text.upper() if found[0].is_("MAXVALUE", "DEFAULT") else text


def _row(tokens: Tokens) -> tuple[str | None, ...]:
    """A row of VALUES IN: a single value, or as many values in parentheses as the list has columns."""
    found = _value(tokens)
    row = tokens.inner(found)
    if row.skip_group() and row.done:
        return tuple(None if text.upper() == "NULL" else text for text in _texts(tokens.inner(found)))
    return (None if len(found) == 1 and found[0].is_("NULL") else _written(found),)


_OPTIONS = (
    *("COMMENT", "ENGINE", "MAX_ROWS", "MIN_ROWS", "TABLESPACE", "NODEGROUP"),
    *("STORAGE ENGINE", "PLACEMENT POLICY", "DATA DIRECTORY", "INDEX DIRECTORY"),
)


def _options(tokens: Tokens) -> None:
    while tokens.skip(*_OPTIONS):
        tokens.value("an option of a partition", WORD, NAME, STRING, NUMBER)
    if tokens.at("("):
        raise tokens.unreadable("subpartitions are not known")
