"""Builds a predicate for the rows of some partitions of an upstream table.

TiDB drops, truncates and exchanges partitions without row events, so a row's partition is computed here as TiDB
computes it (`pkg/table/tables/partition.go`). What the feed does not show (the collation of a column, the time zone of
a session) is tried in every way it may be: a row that would then be in one partition or in another is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from applier.changefeed.table import Column, Partition, Partitioning, TableVersion, fold
from applier.changefeed.types import DATE_TYPES
from applier.errors import RELOAD, SchemaChangeRefused
from applier.sink.tidb_partitions.bounds import Bound, Mask, bound_of, column_bound, compare, equal_alike, equal_bytes
from applier.sink.tidb_partitions.expression import (
    Inexact,
    StringLiteral,
    Values,
    columns_of,
    constant,
    evaluate,
    parse,
    parse_names,
)


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Which rows of a table are in some of its partitions, by the columns that decide.

    The predicate takes living rows with those columns and returns one boolean a row. It raises SchemaChangeRefused
    where a row cannot be placed exactly.
    """

    columns: tuple[str, ...]
    predicate: Callable[[pa.Table], pa.BooleanArray]


def rows_of(version: TableVersion, partitioning: Partitioning | None, names: Sequence[str]) -> PartitionRows:
    """Find the rows of some partitions, named in any letters, of a table as it is partitioned before the statement.

    The partitioning is None where that is not known.

    Raises:
        SchemaChangeRefused: They cannot be determined exactly; says why.
    """
    try:
        rule, node_columns = _rule(version, partitioning, names)
        columns = tuple(_spelt(version, name) for name in node_columns)
    except Inexact as error:
        raise _refused(version, names, error) from None

    def predicate(rows: pa.Table) -> pa.BooleanArray:
        try:
            for column in columns:
                _check_values(column, rows[column.name])
            aliased = pa.table([rows[column.name] for column in columns], names=list(node_columns))
            return pa.array(rule(aliased), pa.bool_())
        except Inexact as error:
            raise _refused(version, names, error) from None
        except pa.ArrowException:
            raise _refused(version, names, Inexact("a value is out of the range of its partitioning")) from None

    return PartitionRows(tuple(column.name for column in columns), predicate)


Rule: TypeAlias = "Callable[[pa.Table], Mask]"
"""Decides which rows are in one of the wanted partitions; the columns have the names of the expression."""


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
) -> tuple[Rule, tuple[str, ...]]:
    if partitioning is None:
        raise Inexact("no statement of the feed shows how it is partitioned")
    wanted, text = _wanted(partitioning, names), partitioning.expression
    method, is_by_columns, _ = partitioning.method.partition(" columns")
    if method not in ("range", "list"):
        raise Inexact(f"it is partitioned by {method.upper()}, which is not computed here")
    node = None if is_by_columns else parse(text)
    by = parse_names(text) if node is None else columns_of(node)
    columns = [_spelt(version, name) for name in by] if node is None else None

    def values(rows: pa.Table) -> Sequence[Values]:
        return rows.columns if node is None else [evaluate(node, rows)]

    if method == "range":
        uppers = [_range_bound(partition, columns) for partition in partitioning.partitions]
        return lambda rows: _in_range(values(rows), uppers, wanted), by
    listed = [_listed(partition, columns) for partition in partitioning.partitions]
    return lambda rows: _in_list(values(rows), listed, wanted), by


def _range_bound(partition: Partition, columns: Sequence[Column] | None) -> tuple[Bound, ...]:
    if columns is None:
        return (bound_of(partition),)
    texts = partition.bound
    if texts == ("MAXVALUE",):
        texts *= len(columns)
    if len(texts) != len(columns):
        raise Inexact(f"the bound of partition {partition.name} is not known")
    return tuple(column_bound(text, column) for text, column in zip(texts, columns, strict=True))


def _in_range(columns: Sequence[Values], uppers: Sequence[tuple[Bound, ...]], wanted: Sequence[int]) -> Mask:
    """Rows between the upper bound of the partition before and that of the partition; NULL is below everything."""
    if _reaches(columns, uppers[-1]).any():
        raise Inexact("some rows are in none of its partitions")
    inside = np.zeros(len(columns[0]), bool)
    for place in wanted:
        above = _reaches(columns, uppers[place - 1]) if place else np.ones(len(columns[0]), bool)
        inside |= above & ~_reaches(columns, uppers[place])
    return inside


def _reaches(columns: Sequence[Values], bounds: tuple[Bound, ...]) -> Mask:
    """Rows that are not below a bound, compared column by column."""
    reached = np.ones(len(columns[0]), bool)
    for column, bound in reversed(list(zip(columns, bounds, strict=True))):
        greater, equal = compare(column, bound)
        reached = greater | (equal & reached)
    return reached


_DEFAULT = ("DEFAULT",)


@dataclass(frozen=True, slots=True)
class _Listed:
    rows: list[tuple[Bound, ...]]
    is_default: bool


def _listed(partition: Partition, columns: Sequence[Column] | None) -> _Listed:
    if not partition.values:
        raise Inexact(f"the values of partition {partition.name} are not known")
    rows = [_list_row(row, columns) for row in partition.values if row != _DEFAULT]
    return _Listed(rows, is_default=_DEFAULT in partition.values)


def _list_row(row: Sequence[str | None], columns: Sequence[Column] | None) -> tuple[Bound, ...]:
    if columns is None:
        return tuple(None if text is None else _whole(text) for text in row)
    if len(row) != len(columns):
        raise Inexact("a row of values has another number of columns than the list")
    return tuple(
        None if text is None else column_bound(text, column) for text, column in zip(row, columns, strict=True)
    )


def _whole(text: str) -> int:
    node = parse(text)
    if isinstance(node, StringLiteral):
        raise Inexact("a value of a list is no whole number")
    return constant(node)


def _in_list(columns: Sequence[Values], listed: Sequence[_Listed], wanted: Sequence[int]) -> Mask:
    """Rows that equal one of the listed; those that equal none are in the default partition."""
    found, inside = np.zeros(len(columns[0]), bool), np.zeros(len(columns[0]), bool)
    for place, partition in enumerate(listed):
        for row in partition.rows:
            equal = _equal(columns, row, equal_bytes)
            found |= equal
            if place in wanted:
                inside |= equal
    default = next((place for place, partition in enumerate(listed) if partition.is_default), None)
    if default is None and not found.all():
        raise Inexact("some rows are in none of its partitions")
    _refuse_likeness([column.filter(pa.array(~found)) for column in columns], listed)
    return inside | ~found if default in wanted else inside


def _equal(columns: Sequence[Values], row: tuple[Bound, ...], equals: Callable[[Values, Bound], Mask]) -> Mask:
    mask: Mask = np.logical_and.reduce([equals(*pair) for pair in zip(columns, row, strict=True)])
    return mask


def _refuse_likeness(rest: Sequence[Values], listed: Sequence[_Listed]) -> None:
    """Rows of the default partition must not equal a listed one under any collation."""
    if len(rest[0]) == 0:
        return
    for partition in listed:
        for row in partition.rows:
            _equal(rest, row, equal_alike)
