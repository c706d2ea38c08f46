"""Parses partition clauses into `Partitioning` and `Partition`; bounds and values stay SQL."""

from __future__ import annotations

from applier.changefeed.partitioning import Partition, Partitioning
from applier.ddl.tokens import NAME, NUMBER, STRING, WORD, Token, Tokens, render

_MAX_PARTITIONS = 8192
"""TiDB's own limit."""


def read_partitioning(tokens: Tokens) -> Partitioning:
    """Take PARTITION BY … with its definitions."""
    tokens.expect("PARTITION", "BY")
    tokens.skip("LINEAR")
    method = tokens.skip_any("RANGE", "LIST", "HASH", "KEY").lower()
    if not method:
        raise tokens.unreadable("a way of partitioning is not known")
    if method == "key" and tokens.skip("ALGORITHM"):
        tokens.skip("=")
        tokens.integer()
    if method in ("range", "list") and tokens.skip("COLUMNS"):
        method += " columns"
    expression = render(tokens.group())
    if tokens.at_any("INTERVAL", "SUBPARTITION"):
        raise tokens.unreadable("partitions by interval and subpartitions are not listed by their names")
    number = _number(tokens) if tokens.skip("PARTITIONS") else 0
    if tokens.at("SUBPARTITION"):
        raise tokens.unreadable("subpartitions are not known")
    partitions = read_partitions(tokens) if tokens.at("(") else ()
    _indexes(tokens)
    if method in ("hash", "key") and not partitions:
        partitions = tuple(Partition(f"p{place}") for place in range(number or 1))
    return Partitioning(method, expression, partitions)


def _number(tokens: Tokens) -> int:
    number = tokens.integer()
    if number > _MAX_PARTITIONS:
        raise tokens.unreadable(f"{number} partitions are more than TiDB allows")
    return number


def _indexes(tokens: Tokens) -> None:
    """UPDATE INDEXES (name LOCAL, …): which indexes span all partitions."""
    if tokens.skip("UPDATE", "INDEXES"):
        tokens.group()


def read_partitions(tokens: Tokens) -> tuple[Partition, ...]:
    """Take definitions of partitions in parentheses."""
    inner = tokens.inner(tokens.group())
    partitions = [_partition(inner)]
    while inner.skip(","):
        partitions.append(_partition(inner))
    if not inner.done:
        raise inner.unreadable("a partition is not understood")
    return tuple(partitions)


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
    if tokens.skip("VALUES", "LESS", "THAN"):
        bound = ("MAXVALUE",) if tokens.skip("MAXVALUE") else _texts(tokens.inner(tokens.group()))
    elif tokens.skip("VALUES", "IN"):
        values = _rows(tokens.inner(tokens.group()))
    elif tokens.skip("DEFAULT"):
        values = (("DEFAULT",),)
    _options(tokens)
    return Partition(name, bound, values)


def _texts(tokens: Tokens) -> tuple[str, ...]:
    texts = [_text(tokens)]
    while tokens.skip(","):
        texts.append(_text(tokens))
    if not tokens.done:
        raise tokens.unreadable("a bound is not understood")
    return tuple(texts)


def _text(tokens: Tokens) -> str:
    found = tokens.until(",")
    if not found:
        raise tokens.unreadable("a value of a partition is missing")
    return _written(found)


def _written(found: list[Token]) -> str:
    """SQL of a value; the words MAXVALUE and DEFAULT in capitals, however they were written."""
    text = render(found)
    return text.upper() if found[0].is_any("MAXVALUE", "DEFAULT") else text


def _rows(tokens: Tokens) -> tuple[tuple[str | None, ...], ...]:
    """Rows of VALUES IN: single values, or as many values in parentheses as the list has columns."""
    rows: list[tuple[str | None, ...]] = []
    while not rows or tokens.skip(","):
        found = tokens.until(",")
        if not found:
            raise tokens.unreadable("a value of a partition is missing")
        rows.append(_row(tokens, found))
    if not tokens.done:
        raise tokens.unreadable("the values of a partition are not understood")
    return tuple(rows)


def _row(tokens: Tokens, found: list[Token]) -> tuple[str | None, ...]:
    row = tokens.inner(found)
    if row.at("("):
        group = row.group()
        if row.done:
            return tuple(None if text.upper() == "NULL" else text for text in _texts(row.inner(group)))
    return (None if len(found) == 1 and found[0].is_("NULL") else _written(found),)


_OPTIONS = (
    ("COMMENT",),
    ("ENGINE",),
    ("MAX_ROWS",),
    ("MIN_ROWS",),
    ("TABLESPACE",),
    ("NODEGROUP",),
    ("STORAGE", "ENGINE"),
    ("PLACEMENT", "POLICY"),
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
)


def _options(tokens: Tokens) -> None:
    while any(tokens.skip(*words) for words in _OPTIONS):
        tokens.skip("=")
        tokens.take_of("an option of a partition", WORD, NAME, STRING, NUMBER)
    if tokens.at("("):
        raise tokens.unreadable("subpartitions are not known")
