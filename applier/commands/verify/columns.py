"""Finds the columns that an Iceberg table had at a snapshot for those of its upstream."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from applier.errors import TableMismatch
from applier.sink.format.types import Field, TableSchema
from applier.sink.iceberg.table import Table
from applier.sink.write.file_writer import check_columns


class ColumnMissing(TableMismatch):
    """A table has no column of a name that the other side has."""


class FileTwice(TableMismatch):
    """A table has a data file more than once, so that its rows count more than once."""


def schemas_at(table: Table, snapshot_id: int | None, *, is_shown: bool) -> list[TableSchema]:
    """The schemas that a table may have had when it showed a snapshot, the likeliest first.

    A table that shows it now has its own; another writer may have dropped columns without a snapshot. Else `run` has
    gone on since. As a DDL that changes no row makes no snapshot, the columns may be newer than the snapshot then.
    """
    if is_shown:
        return [table.schema]
    made = [] if snapshot_id is None else [table.schema_at(snapshot_id)]
    return [*made, table.schema, *table.former_schemas()]


def columns_at(table: Table, schemas: Sequence[TableSchema], wanted: pa.Schema) -> TableSchema:
    """The columns of a table that hold those of its upstream, in their order, by the first schema that fits best.

    Raises:
        ColumnMissing: It has not all of them.
        TableMismatch: A column has a type that cannot hold the upstream's, or it may be one of two of that name; or no
            column is wanted: rows without cells are not even counted.
    """
    if not wanted.names:
        raise TableMismatch(f"No column of table {table} can be compared.", "Compare it with TiDB: set upstream.url.")
    exact = [schema for schema in schemas if _is_exact(schema, wanted)]
    fitting = exact or [schema for schema in schemas if _fits(table, schema, wanted)]
    if not fitting:
        lacking = [column.name for column in wanted if column.name not in table.schema.names]
        if lacking:
            raise ColumnMissing(f"Table {table} has no column {', '.join(lacking)}, which the other side has.")
        check_columns(str(table), wanted, table.schema)
        raise TableMismatch(f"The columns that table {table} had at the resolved ts are not known any more.")
    found = fitting[0]
    fields = [field for column in wanted if (field := found.field(column.name)) is not None]
    _refuse_twins(table, fields, [schema for schema in fitting if schema.id >= schemas[0].id])
    return replace(found, fields=tuple(fields), arrow=pa.schema([found.arrow.field(field.name) for field in fields]))


def _refuse_twins(table: Table, fields: Sequence[Field], since: Sequence[TableSchema]) -> None:
    """Refuse columns that were made anew in schemas since the snapshot, by DROP and ADD: either could be meant."""
    for field in fields:
        others = [schema.field(field.name) for schema in since]
        if any(other is not None and other.id != field.id for other in others):
            what = (
                f"Column {field.name} of table {table} was made anew near the resolved ts, "
                "and the snapshot does not say which of the two counts."
            )
            raise TableMismatch(what, "Give the command again once `applier run -c FILE` has gone on.")


def _is_exact(schema: TableSchema, wanted: pa.Schema) -> bool:
    found = [schema.field(column.name) for column in wanted]
    return all(field is not None and field.arrow == column.type for field, column in zip(found, wanted, strict=True))


def _fits(table: Table, schema: TableSchema, wanted: pa.Schema) -> bool:
    with suppress(TableMismatch):
        check_columns(str(table), wanted, schema)
        return True
    return False
