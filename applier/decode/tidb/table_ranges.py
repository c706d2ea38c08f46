"""Cuts a table into ranges of its key, at the first rows of TiDB's regions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import INTEGERS

MOST_RANGES = 500
"""Ranges of a table: its record holds their bounds."""

ROW_ID = "_tidb_rowid"
"""What orders the rows of a table whose rows do not lie by its key."""

_CLUSTERED = re.compile(r"^\s*PRIMARY KEY .*/\*T!\[clustered_index\] CLUSTERED \*/", re.MULTILINE)

_PLAIN = frozenset({*INTEGERS, "decimal"})
_QUOTED = frozenset({"char", "varchar", "date", "datetime", "timestamp"})
_HEX = frozenset({"binary", "varbinary"})

COMPARED = _PLAIN | _QUOTED | _HEX
"""Types whose values SQL compares with a literal as it sorts them."""

Bound: TypeAlias = tuple[str, ...]
"""A key, or the first columns of one, as literals of SQL."""


class TableRange(NamedTuple):
    """A part of a table: rows whose keys lie between two bounds.

    Attributes:
        number: Counted from 1.
        condition: SQL that is true for its rows, and for those of no other range.
        size: Its bytes, as far as TiDB knows.
    """

    number: int
    condition: str
    size: int


class Order(NamedTuple):
    """How the rows of a table lie in TiDB.

    Attributes:
        names: Columns that order them all.
        cut: The first of these, whose values can be bounds; () for a table that is not cut.
    """

    names: tuple[str, ...]
    cut: tuple[Column | None, ...]

    @property
    def columns(self) -> str:
        """The columns of bounds, as SQL lists them."""
        return ", ".join(map(quoted, self.names[: len(self.cut)]))

    @property
    def by(self) -> str:
        """All columns, as SQL lists them."""
        return ", ".join(map(quoted, self.names))

    def bound(self, row: Sequence[bytes | None]) -> Bound | None:
        """The bound at which a row begins; None for one that no literal holds, as its text is no UTF-8."""
        try:
            return tuple(literal(cell or b"", column) for cell, column in zip(row, self.cut, strict=True))
        except UnicodeDecodeError:
            return None

    def ranges(self, bounds: Sequence[Bound], size: int) -> tuple[TableRange, ...]:
        """All rows of a table of a size, cut at bounds that SQL has sorted."""
        ends = [None, *bounds, None]
        return tuple(
            TableRange(number, self.between(low, high), size // (len(bounds) + 1))
            for number, (low, high) in enumerate(pairwise(ends), 1)
        )

    def between(self, low: Bound | None, high: Bound | None) -> str:
        """SQL that is true for keys below one bound, and not below the other; None is no bound."""
        names = [quoted(name) for name in self.names[: len(self.cut)]]
        above = [] if low is None else [_beyond(names, low, ">")]
        below = [] if high is None else [_beyond(names, high, "<")]
        return " AND ".join([*above, *below]) or "TRUE"


def order_of(version: TableVersion, text: str) -> Order:
    """How the rows of a table lie, by its SHOW CREATE TABLE text."""
    if not _CLUSTERED.search(text):
        return Order((ROW_ID,), (None,))
    cut = list[Column]()
    for name in version.key:
        column = version.column(name)
        # Not so ENUM, SET, FLOAT and others.
        if column is None or column.type.name not in COMPARED:
            break
        cut.append(column)
    return Order(tuple(version.key), tuple(cut))


def thinned(bounds: Sequence[Bound]) -> tuple[Bound, ...]:
    """The bounds between the regions of a table, of which its sample has the first rows: few enough, each once."""
    between = list(dict.fromkeys(bounds[1:]))
    step = -(-(len(between) + 1) // MOST_RANGES)
    return tuple(between[step - 1 :: step])


def quoted(name: str) -> str:
    """A name, as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def literal(cell: bytes, column: Column | None) -> str:
    """A value that TiDB prints, as SQL takes it; without a column, a number."""
    if column is None or column.type.name in _PLAIN:
        return cell.decode("ascii")
    if column.type.name in _HEX:
        return f"x'{cell.hex()}'"
    text = cell.decode("utf-8").replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{text}'"


def _beyond(names: Sequence[str], bound: Bound, sign: str) -> str:
    """Keys below a bound (`<`), or those at it and above (`>`): of two such conditions each key fits exactly one."""
    name, value = names[0], bound[0]
    if len(names) == 1:
        return f"{name} {sign}{'=' if sign == '>' else ''} {value}"
    return f"({name} {sign} {value} OR ({name} = {value} AND {_beyond(names[1:], bound[1:], sign)}))"
