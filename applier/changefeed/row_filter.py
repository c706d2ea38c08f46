"""Row filters: which rows of an upstream table its Iceberg table has.

The language is that of PyIceberg's row filters: comparisons of a column with a literal, `in`, `between`, `is null`,
`like 'prefix%'`, `and`, `or`, `not` and parentheses. As in SQL, a comparison with NULL is neither true nor false, and a
row is admitted where the whole is true. Texts are compared by their bytes, whatever their collation is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
import pyiceberg.expressions as ice
from pyiceberg.expressions.parser import parse
from pyparsing import ParseBaseException

from applier.changefeed.table import TableName, fold
from applier.errors import TableMismatch, ValueRefused

pc: Any = pyarrow.compute

_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ice.EqualTo: pc.equal,
    ice.NotEqualTo: pc.not_equal,
    ice.LessThan: pc.less,
    ice.LessThanOrEqual: pc.less_equal,
    ice.GreaterThan: pc.greater,
    ice.GreaterThanOrEqual: pc.greater_equal,
}
_PREFIXES = (ice.StartsWith, ice.NotStartsWith)
_SETS = (ice.In, ice.NotIn)
_NULLS = (ice.IsNull, ice.NotNull)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter, by the text that a user gave; ValueError on first use of a text that is none."""

    text: str

    def refuse_malformed(self) -> None:
        """Raise ValueError, with the reason, for a text that is no filter."""
        for part in _parts(_parsed(self.text)):
            if type(part) not in (*_COMPARISONS, *_PREFIXES, *_SETS, *_NULLS):
                msg = "holds a part that is no comparison of a column with a literal"
                raise ValueError(msg)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that it looks at, as TiDB compares them."""
        return frozenset(fold(_name(part)) for part in _parts(_parsed(self.text)))

    def refuse_unfit(self, table: TableName, columns: Mapping[str, pa.DataType]) -> None:
        """Refuse a filter that columns of these types cannot be put through.

        Raises:
            TableMismatch: A column is not there, or is compared with a literal that is no value of it.
        """
        empty = pa.table({name: pa.array([], kind) for name, kind in columns.items()})
        try:
            _mask(_parsed(self.text), empty)
        except (KeyError, ValueError, pa.ArrowException) as error:
            why = f"has no column {error.args[0]}" if isinstance(error, KeyError) else _reason(error)
            what = f"Table {table} cannot be filtered by its `where`: it {why}"
            raise TableMismatch(what, "Correct `where` in its pattern under [tables].") from None

    def admits(self, table: str, rows: pa.Table) -> pa.BooleanArray:
        """Whether each row is admitted.

        Raises:
            ValueRefused: The rows lack a column that it looks at.
        """
        try:
            found = pc.fill_null(_mask(_parsed(self.text), rows), False)
        except KeyError as missing:
            what = f"Rows of table {table} lack column {missing.args[0]}, which its `where` looks at."
            hint = "Let TiCDC and the export send all columns of the table, or look at others."
            raise ValueRefused(what, hint) from None
        return cast("pa.BooleanArray", found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)

    def of(self, table: str, rows: pa.Table) -> pa.Table:
        """The rows that are admitted; see `admits`."""
        return rows.filter(self.admits(table, rows))


@lru_cache(maxsize=256)
def _parsed(text: str) -> ice.BooleanExpression:
    try:
        return parse(text)
    except ParseBaseException as error:
        msg = f"cannot be read from character {error.loc + 1} on"
        raise ValueError(msg) from None


def _parts(node: Any) -> Iterator[Any]:
    """The comparisons of a filter."""
    match node:
        case ice.And() | ice.Or():
            yield from _parts(node.left)
            yield from _parts(node.right)
        case ice.Not():
            yield from _parts(node.child)
        case _:
            yield node


def _name(part: Any) -> str:
    name: str = part.term.name
    return name


def _mask(node: Any, rows: pa.Table) -> Any:
    """Whether each row is admitted, NULL where that is unknown; KeyError for a column that is not there."""
    match node:
        case ice.And():
            return pc.and_kleene(_mask(node.left, rows), _mask(node.right, rows))
        case ice.Or():
            return pc.or_kleene(_mask(node.left, rows), _mask(node.right, rows))
        case ice.Not():
            return pc.invert(_mask(node.child, rows))
    values = _column(rows, _name(node))
    match node:
        case ice.IsNull():
            return pc.is_null(values)
        case ice.NotNull():
            return pc.is_valid(values)
        case ice.In() | ice.NotIn():
            among = pc.is_in(values, pa.array(_literals(node.literals, values.type, _name(node)), values.type))
            known = pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), among)
            return known if isinstance(node, ice.In) else pc.invert(known)
        case ice.StartsWith() | ice.NotStartsWith():
            (prefix,) = _literals([node.literal], pa.string(), _name(node), values.type)
            begins = pc.starts_with(values, prefix.as_py())
            return begins if isinstance(node, ice.StartsWith) else pc.invert(begins)
    (literal,) = _literals([node.literal], values.type, _name(node))
    return _COMPARISONS[type(node)](values, literal)


def _column(rows: pa.Table, name: str) -> Any:
    found = [own for own in rows.column_names if fold(own) == fold(name)]
    if not found:
        raise KeyError(name)
    return rows[found[0]]


_NUMBERS = (int, float, Decimal)


def _literals(literals: Iterable[Any], kind: pa.DataType, name: str, own: pa.DataType | None = None) -> list[Any]:
    """Literals as values of a column's type; ValueError where one is no value of it, or the column has another one."""
    values = [literal.value for literal in literals]
    # Exports cut the digits of a FLOAT, so that another value would be compared than that of the feed.
    is_number = pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_decimal(kind)
    wanted: tuple[type, ...] = _NUMBERS if is_number else (bool,) if pa.types.is_boolean(kind) else (str,)
    is_text = pa.types.is_string(kind) or pa.types.is_temporal(kind)
    is_fit = all(isinstance(value, wanted) and (isinstance(value, bool) == (wanted == (bool,))) for value in values)
    if not is_fit or (own or kind) != kind or not (is_number or is_text or pa.types.is_boolean(kind)):
        msg = f"compares column {name} with a literal that is no value of its type {own or kind}"
        raise ValueError(msg)
    try:
        return [pa.scalar(value).cast(kind) for value in values]
    except pa.ArrowException:
        msg = f"compares column {name} with a literal that is no value of its type {kind}"
        raise ValueError(msg) from None


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]
