"""TiCDC's table filter: the rules that select tables of a changefeed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from applier.changefeed.table import TableName, fold

_T = TypeVar("_T")


class TableFilter:
    """Rules such as `shop.*`, `!shop.tmp_?`, `/^s.*/./[0-9]$/` and `` `a.b`.* ``; the last rule that fits decides.

    Names are compared without regard to case, as TiCDC does by default.

    Raises:
        ValueError: A rule is not of the form `database.table`.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [_rule(text) for text in rules]
        self.admits = lru_cache(maxsize=65536)(self._admits)

    def _admits(self, name: TableName) -> bool:
        for positive, database, table in reversed(self._rules):
            if database.fullmatch(name.folded[0]) and table.fullmatch(name.folded[1]):
                return positive
        return False

    def admits_database(self, database: str) -> bool:
        """True where some rule may admit a table of the database."""
        return any(positive and pattern.fullmatch(fold(database)) for positive, pattern, _ in self._rules)


class TablePattern:
    """One positive rule; its `rank` is higher the more specific it is.

    Raises:
        ValueError: It is not of the form `database.table`, or begins with `!`.
    """

    def __init__(self, text: str) -> None:
        positive, self._database, self._table = _rule(text)
        if not positive:
            msg = f"the pattern {text!r} must not begin with !"
            raise ValueError(msg)
        parts = (self._database, self._table)
        self.rank = all(part.is_exact for part in parts), sum(part.letters for part in parts)
        self._text = text

    def __repr__(self) -> str:
        # Digests of settings hold it.
        return f"TablePattern({self._text!r})"

    def names(self, name: TableName) -> bool:
        """Whether the rules select the table."""
        return bool(self._database.fullmatch(name.folded[0]) and self._table.fullmatch(name.folded[1]))


def most_specific(patterns: Iterable[tuple[TablePattern, _T]], name: TableName) -> _T | None:
    """What stands beside the most specific pattern that names a table, of equal ones the last; None without one."""
    fitting = [(pattern.rank, place, each) for place, (pattern, each) in enumerate(patterns) if pattern.names(name)]
    return max(fitting, key=lambda found: found[:2])[2] if fitting else None


@dataclass(frozen=True, slots=True)
class _Part:
    """A pattern of a database or table: whether it names one alone, and how many letters stand for themselves."""

    pattern: re.Pattern[str]
    is_exact: bool
    letters: int

    def fullmatch(self, text: str) -> bool:
        return self.pattern.fullmatch(text) is not None


def exactly(names: Iterable[TableName]) -> tuple[str, ...]:
    """Filter rules that admit exactly these tables, one rule each."""
    return tuple(f"{_quoted(name.database)}.{_quoted(name.table)}" for name in names)


def named(rules: Iterable[str]) -> list[TableName]:
    """The tables of rules that `exactly` made."""
    found = (_EXACT.fullmatch(rule) for rule in rules)
    return [TableName(match["database"], match["table"]) for match in found if match is not None]


_EXACT = re.compile(r"""(["`])(?P<database>.*)\1\.(["`])(?P<table>.*)\3""", re.DOTALL)


def option(names: Sequence[TableName]) -> str:
    """The value of `--tables` that selects exactly these tables, quoted for a shell."""
    plain = [f"{name.database}.{name.table}" for name in names]
    if all(_PLAIN.fullmatch(text) for text in plain):
        return f"'{','.join(plain)}'"
    return shlex.quote(",".join(exactly(names)))


def rules_of(text: str) -> tuple[str, ...]:
    """The filter rules of such an option: commas part them, save within the quotes of a name or of a pattern."""
    return tuple(rule for found in _RULES.finditer(text) if (rule := found[0].strip()))


_RULES = re.compile(r"""(?:(?<![^!.,\s])(?P<quote>[`"/]).*?(?P=quote)|[^,])+""", re.DOTALL)

_PLAIN = re.compile(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+")
"""Names that a filter rule and a shell take as they are."""


def _quoted(text: str) -> str:
    quote = '"' if "`" in text else "`"
    return f"{quote}{text}{quote}"


def _rule(text: str) -> tuple[bool, _Part, _Part]:
    positive = not text.startswith("!")
    rest = text.removeprefix("!")
    database, rest = _part(rest, text)
    if not rest.startswith("."):
        raise ValueError(_malformed(text))
    table, rest = _part(rest[1:], text)
    if rest:
        raise ValueError(_malformed(text))
    return positive, database, table


def _malformed(text: str) -> str:
    return f"the filter rule {text!r} is not of the form database.table"


def _part(text: str, whole: str) -> tuple[_Part, str]:
    for quote in '`"/':
        if not text.startswith(quote):
            continue
        end = text.find(quote, 1)
        if end < 0:
            raise ValueError(_malformed(whole))
        body, rest = text[1:end], text[end + 1 :]
        # A regular expression is searched for in the name, everything else must be the whole name.
        if quote == "/":
            return _Part(_compile(f"(?s:.*?(?:{body}).*)", whole), is_exact=False, letters=0), rest
        return _Part(_compile(re.escape(fold(body)), whole), is_exact=True, letters=len(body)), rest
    end = text.find(".")
    body, rest = (text, "") if end < 0 else (text[:end], text[end:])
    if not body:
        raise ValueError(_malformed(whole))
    pieces = re.findall(r"\[!?[^\]]+\]|.", fold(body), flags=re.DOTALL)
    letters = sum(len(piece) == 1 and piece not in "*?" for piece in pieces)
    pattern = _compile("".join(map(_wildcard, pieces)), whole)
    return _Part(pattern, is_exact=letters == len(pieces), letters=letters), rest


def _wildcard(piece: str) -> str:
    if piece in ("*", "?"):
        return ".*" if piece == "*" else "."
    if len(piece) > 1:
        return piece.replace("[!", "[^", 1)
    return re.escape(piece)


def _compile(pattern: str, whole: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE | re.DOTALL)
    except re.error as error:
        msg = f"the filter rule {whole!r} holds a bad pattern: {error}"
        raise ValueError(msg) from error
