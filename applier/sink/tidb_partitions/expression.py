"""Parses an expression that is a column, a constant, or functions of these; partitions have no other here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from applier.ddl.tokens import NUMBER, STRING, WORD, Tokens, Unreadable, statements


class Inexact(Exception):
    """Which partition a row is in cannot be determined exactly; the text says why, and holds no value of a row."""


class Number(NamedTuple):
    """A whole number."""

    value: int


class StringLiteral(NamedTuple):
    """A string."""

    value: str


class Name(NamedTuple):
    """A column."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Number | StringLiteral | Name | Call

T = TypeVar("T")

_CHARSET = re.compile(r"(?<![\w`])_(?!(?:utf8mb4|utf8|ascii)\b)\w+\s*'", re.IGNORECASE)
"""What stands before a string of a charset whose characters are others."""


def parse(text: str) -> Node:
    """The tree of an expression in SQL: names in backticks or bare, quote and backslash doubled in strings.

    Raises:
        Inexact: It is not of a form that is known.
    """
    return _whole(text, _term)


def parse_names(text: str) -> tuple[str, ...]:
    """Names of a column list.

    Raises:
        Inexact: It is no list of names.
    """
    return _whole(text, Tokens.names)


def columns_of(node: Node) -> tuple[str, ...]:
    """Columns of an expression, each once."""
    return tuple(dict.fromkeys(_columns(node)))


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _columns(argument)


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
        return Number(-tokens.integer())
    if tokens.next.kind == NUMBER:
        return Number(tokens.integer())
    if tokens.next.kind == STRING:
        return StringLiteral(tokens.string())
    is_function, name = tokens.next.kind == WORD and tokens.ahead(1).is_("("), tokens.name()
    return Call(name.upper(), tuple(tokens.listed_in_group(_term, ""))) if is_function else Name(name)
