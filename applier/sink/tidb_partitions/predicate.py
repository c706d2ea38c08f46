"""Builds a predicate for the rows of some partitions of an upstream table.

TiDB drops, truncates and exchanges partitions without row events, so a row's partition is computed here as TiDB
computes it (`pkg/table/tables/partition.go`). What the feed does not show (the collation of a column, the time zone of
a session) is tried in every way it may be: a row that would then be in one partition or in another is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from applier.changefeed.table import Column, Partitioning, TableVersion, fold
from applier.changefeed.types import DATE_TYPES, TypeRules, is_reshaped
from applier.errors import RELOAD, SchemaChangeRefused
from applier.sink.tidb_partitions.bounds import (
    Bound,
    Mask,
    column_bound,
    compare,
    equal_bytes,
    list_value,
    range_bound,
)
from applier.sink.tidb_partitions.expression import Inexact, Values, columns_of, evaluate, parse, parse_names

_UPSTREAM = TypeRules()


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Which rows of a table are in some of its partitions, by the columns that decide.

    The predicate takes living rows with those columns and returns one boolean a row. It raises SchemaChangeRefused
    where a row cannot be placed exactly.
    """

    columns: tuple[str, ...]
    predicate: Callable[[pa.Table], pa.BooleanArray]


Rule: TypeAlias = "Callable[[pa.Table], Mask]"
"""Decides which rows are in one of the wanted partitions; the columns have the names of the expression."""

Row: TypeAlias = tuple[Bound, ...]
"""A bound, or a listed value, for each column by which a table is partitioned, or for its expression."""


def rows_of(
    version: TableVersion, partitioning: Partitioning | None, names: Sequence[str], rules: TypeRules = _UPSTREAM
) -> PartitionRows:
    """Find the rows of some partitions, named in any letters, of a table as it is partitioned before the statement.

    The partitioning is None where that is not known; the rules say which columns hold other values than upstream.

    Raises:
        SchemaChangeRefused: They cannot be determined exactly; says why.
    """
    try:
        rule, columns = _rule(version, partitioning, names)
        _refuse_reshaped(version, columns.values(), rules)
    except Inexact as error:
        raise _refused(version, names, error) from None

    def predicate(rows: pa.Table) -> pa.BooleanArray:
        try:
            for column in columns.values():
                _check_values(column, rows[column.name])
            return pa.array(rule(pa.table({name: rows[column.name] for name, column in columns.items()})), pa.bool_())
        except Inexact as error:
            raise _refused(version, names, error) from None
        except pa.ArrowException:
            raise _refused(version, names, Inexact("a value is out of the range of its partitioning")) from None

    return PartitionRows(tuple(column.name for column in columns.values()), predicate)


def _refuse_reshaped(version: TableVersion, columns: Iterable[Column], rules: TypeRules) -> None:
    for column in columns:
        if is_reshaped(version.name, column, rules):
            raise Inexact(f"column {column.name}, by which it is partitioned, is cast or masked")


def _refused(version: TableVersion, names: Sequence[str], error: Inexact) -> SchemaChangeRefused:
    what = (
        f"Which rows of table {version.name} are in partition {', '.join(names)} cannot be determined exactly: {error}."
    )
    return SchemaChangeRefused(what, RELOAD)


def _wanted(partitioning: Partitioning, names: Sequence[str]) -> tuple[int, ...]:
    places = {fold(partition.name): place for place, partition in enumerate(partitioning.partitions)}
    unknown = [name for name in names if fold(name) not in places]
    if unknown:
        raise Inexact(f"no statement of the feed shows partition {', '.join(unknown)}")
    return tuple(places[fold(name)] for name in names)


def _spelt(version: TableVersion, name: str) -> Column:
    found = next((column for column in version.columns if fold(column.name) == fold(name)), None)
    if found is None:
        raise Inexact(f"column {name}, by which it is partitioned, is not in the feed")
    if found.generated == "virtual":
        raise Inexact(f"column {name}, by which it is partitioned, is generated, and rows do not hold it")
    return found


def _check_values(column: Column, values: Values) -> None:
    if values.null_count and not column.nullable:
        why = "zero dates are kept as NULL" if column.type.name in DATE_TYPES else "rows lack it"
        raise Inexact(f"column {column.name} is NOT NULL upstream but has no value in some rows: {why}")


def _rule(
    version: TableVersion, partitioning: Partitioning | None, names: Sequence[str]
) -> tuple[Rule, dict[str, Column]]:
    """The rule, and the columns that it looks at, by the names that the expression gives them."""
    if partitioning is None:
        raise Inexact("no statement of the feed shows how it is partitioned")
    wanted, text = _wanted(partitioning, names), partitioning.expression
    method, is_by_columns, _ = partitioning.method.partition(" columns")
    if method not in ("range", "list"):
        raise Inexact(f"it is partitioned by {method.upper()}, which is not computed here")
    node = None if is_by_columns else parse(text)
    columns = {name: _spelt(version, name) for name in (parse_names(text) if node is None else columns_of(node))}
    readers: list[Callable[[str], Bound]] = [range_bound if method == "range" else list_value]
    if node is None:
        readers = [partial(column_bound, column=column) for column in columns.values()]

    def values(rows: pa.Table) -> Sequence[Values]:
        return rows.columns if node is None else [evaluate(node, rows)]

    if method == "range":
        uppers = _uppers(partitioning, readers)
        return lambda rows: _in_range(values(rows), uppers, wanted), columns
    listed = _listed(partitioning, readers)
    default = next((place for place, part in enumerate(partitioning.partitions) if _DEFAULT in part.values), None)
    return lambda rows: _in_list(values(rows), listed, default, wanted), columns


_MAXVALUE, _DEFAULT = ("MAXVALUE",), ("DEFAULT",)


def _uppers(partitioning: Partitioning, readers: Sequence[Callable[[str], Bound]]) -> list[Row]:
    """The upper bound of each partition."""
    return [
        _row(
            part.bound * (len(readers) if part.bound == _MAXVALUE else 1),
            readers,
            f"the bound of partition {part.name} is not known",
        )
        for part in partitioning.partitions
    ]


def _listed(partitioning: Partitioning, readers: Sequence[Callable[[str], Bound]]) -> list[list[Row]]:
    """The values of each partition; none of one that is only the default."""
    if unknown := [part.name for part in partitioning.partitions if not part.values]:
        raise Inexact(f"the values of partition {unknown[0]} are not known")
    unclear = "a row of values has another number of columns than the list"
    return [
        [_row(values, readers, unclear) for values in part.values if values != _DEFAULT]
        for part in partitioning.partitions
    ]


def _row(texts: Sequence[str | None], readers: Sequence[Callable[[str], Bound]], unclear: str) -> Row:
    if len(texts) != len(readers):
        raise Inexact(unclear)
    return tuple(None if text is None else read(text) for text, read in zip(texts, readers, strict=True))


def _in_range(columns: Sequence[Values], uppers: Sequence[Row], wanted: Sequence[int]) -> Mask:
    """Rows between the upper bound of the partition before and that of the partition; NULL is below everything."""
    if _reaches(columns, uppers[-1]).any():
        raise Inexact("some rows are in none of its partitions")
    inside = np.zeros(len(columns[0]), bool)
    for place in wanted:
        above = _reaches(columns, uppers[place - 1]) if place else np.ones(len(columns[0]), bool)
        inside |= above & ~_reaches(columns, uppers[place])
    return inside


def _reaches(columns: Sequence[Values], bounds: Row) -> Mask:
    """Rows that are not below a bound, compared column by column."""
    reached = np.ones(len(columns[0]), bool)
    for column, bound in reversed(list(zip(columns, bounds, strict=True))):
        greater, equal = compare(column, bound)
        reached = greater | (equal & reached)
    return reached


def _in_list(
    columns: Sequence[Values], listed: Sequence[Sequence[Row]], default: int | None, wanted: Sequence[int]
) -> Mask:
    """Rows that equal one of the listed; those that equal none are in the default partition."""
    found, inside = np.zeros(len(columns[0]), bool), np.zeros(len(columns[0]), bool)
    for place, rows in enumerate(listed):
        for row in rows:
            equal = np.logical_and.reduce([equal_bytes(*pair) for pair in zip(columns, row, strict=True)])
            found |= equal
            if place in wanted:
                inside |= equal
    if default is None and not found.all():
        raise Inexact("some rows are in none of its partitions")
    _refuse_likeness([column.filter(pa.array(~found)) for column in columns], listed)
    return inside | ~found if default in wanted else inside


def _refuse_likeness(rest: Sequence[Values], listed: Sequence[Sequence[Row]]) -> None:
    """Rows of the default partition must not equal a listed one under any collation."""
    if len(rest[0]) == 0:
        return
    for row in (row for rows in listed for row in rows):
        for pair in zip(rest, row, strict=True):
            compare(*pair)
