"""Parses an expression that is a column, a constant, or functions of these; partitions have no other here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


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

_TOKEN = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<string>'(?:[^'\\]|''|\\.)*')|(?P<number>\d+)(?![\w.])"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<symbol>[-(),]))",
    re.DOTALL,
)
_CHARSETS = ("_utf8mb4", "_utf8", "_ascii")
"""What may stand before a string: its characters are the same."""


def parse(text: str) -> Node:
    """The tree of an expression in SQL: names in backticks or bare, quote and backslash doubled in strings.

    Raises:
        Inexact: It is not of a form that is known.
    """
    reader = _Reader(text)
    node = reader.term()
    reader.end()
    return node


def parse_names(text: str) -> tuple[str, ...]:
    """Names of a column list.

    Raises:
        Inexact: It is no list of names.
    """
    reader = _Reader(text)
    names = [reader.name()]
    while reader.take(","):
        names.append(reader.name())
    reader.end()
    return tuple(names)


def columns_of(node: Node) -> tuple[str, ...]:
    """Columns of an expression, each once."""
    return tuple(dict.fromkeys(_columns(node)))


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _columns(argument)


class _Reader:
    """Tokens of one text, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._place = 0

    def term(self) -> Node:
        """Take a number, a string, a column, or a function with its arguments."""
        if self.take("("):
            node = self.term()
            self._expect(")")
            return node
        is_negative = self.take("-")
        kind, text = self._next()
        if kind == "number":
            self._place += 1
            return Number(-int(text) if is_negative else int(text))
        if is_negative:
            raise self._unknown()
        if kind == "string":
            self._place += 1
            return StringLiteral(re.sub(r"''|\\(.)", lambda match: match[1] or "'", text[1:-1], flags=re.DOTALL))
        name = self.name()
        if kind == "word" and name.lower() in _CHARSETS and self._next()[0] == "string":
            return self.term()
        return self._call(name.upper()) if kind == "word" and self.take("(") else Name(name)

    def name(self) -> str:
        """Take a name."""
        kind, text = self._next()
        if kind not in ("name", "word"):
            raise self._unknown()
        self._place += 1
        return text[1:-1].replace("``", "`") if kind == "name" else text

    def take(self, symbol: str) -> bool:
        """Take a symbol if it comes next."""
        found = self._next() == ("symbol", symbol)
        self._place += found
        return found

    def end(self) -> None:
        """Refuse anything that is left."""
        if self._next()[0]:
            raise self._unknown()

    def _call(self, function: str) -> Node:
        arguments = [self.term()]
        while self.take(","):
            arguments.append(self.term())
        self._expect(")")
        return Call(function, tuple(arguments))

    def _expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self._unknown()

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("", "")

    def _unknown(self) -> Inexact:
        return Inexact(f"the expression {self._text} has a form that is not known")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise Inexact(f"the expression {text} has a form that is not known")
        yield match.lastgroup, match[match.lastgroup]
        place = match.end()
