"""Two versions of a table in, the same without the virtual generated columns that its Iceberg table does not have.

No protocol carries the values of virtual generated columns: a column of theirs would show NULL where upstream has a
value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from applier.changefeed.table import Column, TableVersion
from applier.ddl.actions import Action
from applier.sink.evolve.column_mapping import ColumnMapping, lineage

VIRTUAL = "virtual"
"""`Column.generated` of these columns."""


def stored(
    before: TableVersion, after: TableVersion, actions: Sequence[Action], *, omit: bool, held: Collection[str] | None
) -> tuple[TableVersion, TableVersion]:
    """Both versions without the virtual columns that the Iceberg table lacks, or does not get.

    Args:
        before: The table before a statement.
        after: The table after it.
        actions: Its actions.
        omit: Whether new virtual columns are left out.
        held: Columns of the Iceberg table; None where it is not at hand, so that it has all that it should have.
    """
    found = lineage(before, after, actions)
    absent = {c.name for c in before.columns if c.generated == VIRTUAL and held is not None and c.name not in held}
    left_out = {
        new.name
        for old, new in found.pairs
        if _is_virtual(new, found) and (omit if old is None else old.name in absent)
    }
    return _without(before, absent), _without(after, left_out)


def columns_of_new(version: TableVersion, *, omit: bool) -> tuple[Column, ...]:
    """Columns that a new Iceberg table gets."""
    return tuple(
        column
        for column in version.columns
        if not (omit and column.generated == VIRTUAL and column.name not in version.key)
    )


def absent_from(version: TableVersion, held: Collection[str]) -> set[str]:
    """Names of the virtual columns that an Iceberg table with some columns does not have."""
    return {column.name for column in version.columns if column.generated == VIRTUAL and column.name not in held}


def with_virtual(version: TableVersion, known: TableVersion) -> TableVersion:
    """The version that rows describe, with the virtual columns that are known: rows never hold them."""
    columns = list(version.columns)
    for place, column in enumerate(known.columns):
        if column.generated == VIRTUAL and version.column(column.name) is None:
            columns.insert(place, column)
    return version if len(columns) == len(version.columns) else replace(version, columns=tuple(columns))


def _is_virtual(column: Column, found: ColumnMapping) -> bool:
    written = found.written(column)
    return VIRTUAL in (column.generated, written.generated if written else None)


def _without(version: TableVersion, names: Collection[str]) -> TableVersion:
    if not names:
        return version
    return replace(version, columns=tuple(column for column in version.columns if column.name not in names))
