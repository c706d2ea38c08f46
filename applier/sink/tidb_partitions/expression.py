"""Parses a partitioning expression: the few forms that TiDB allows."""

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
    """A function or an operator (`+`, `-`, `*`, `DIV`, `%`) with its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Number | StringLiteral | Name | Call

_TOKEN = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<string>'(?:[^'\\]|''|\\.)*')|(?P<number>\d+)(?![\w.])"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<symbol>[-+*/%(),]))",
    re.DOTALL,
)
_CHARSETS = ("_utf8mb4", "_utf8", "_ascii")
"""What may stand before a string: its characters are the same."""

_SYNONYMS = {"DAY": "DAYOFMONTH", "MOD": "%"}


def parse(text: str) -> Node:
    """The tree of an expression in SQL: names in backticks or bare, quote and backslash doubled in strings.

    Raises:
        Inexact: It is not of a form that is known.
    """
    reader = _Reader(text)
    node = reader.sum()
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

    def sum(self) -> Node:
        """Take terms that are added or subtracted."""
        node = self._term()
        while operator := self.take("+", "-"):
            node = Call(operator, (node, self._term()))
        return node

    def name(self) -> str:
        """Take a name."""
        kind, text = self._next()
        if kind not in ("name", "word"):
            raise self._unknown()
        self._place += 1
        return text[1:-1].replace("``", "`") if kind == "name" else text

    def take(self, *words: str) -> str:
        """Take one of some symbols or words, if it comes next; "" if not."""
        kind, text = self._next()
        if kind not in ("symbol", "word") or text.upper() not in words:
            return ""
        self._place += 1
        return text.upper()

    def end(self) -> None:
        """Refuse anything that is left."""
        if self._next()[0]:
            raise self._unknown()

    def _term(self) -> Node:
        node = self._factor()
        while operator := self.take("*", "%", "DIV", "MOD"):
            node = Call(_SYNONYMS.get(operator, operator), (node, self._factor()))
        return node

    def _factor(self) -> Node:
        if self.take("-"):
            inner = self._factor()
            return Number(-inner.value) if isinstance(inner, Number) else Call("-", (Number(0), inner))
        if self.take("+"):
            return self._factor()
        if self.take("("):
            node = self.sum()
            self._expect(")")
            return node
        return self._leaf()

    def _leaf(self) -> Node:
        kind, text = self._next()
        if kind == "number":
            self._place += 1
            return Number(int(text))
        if kind == "string":
            self._place += 1
            return StringLiteral(re.sub(r"''|\\(.)", lambda match: match[1] or "'", text[1:-1], flags=re.DOTALL))
        name = self.name()
        if kind == "word" and name.lower() in _CHARSETS and self._next()[0] == "string":
            return self._leaf()
        return self._call(name.upper()) if kind == "word" and self.take("(") else Name(name)

    def _call(self, function: str) -> Node:
        function = _SYNONYMS.get(function, function)
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        self._expect(")")
        return Call(function, tuple(arguments))

    def _expect(self, word: str) -> None:
        if not self.take(word):
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
