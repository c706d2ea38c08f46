"""Gives rows of an older writer schema the values of the columns that were added since.

A feed without DDL messages shows a new column by the schema of the rows that have it. TiDB gives the column's default
to all rows that were there before, also to those whose messages arrive in the same step, or later from a partition that
lags behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.errors import SchemaChangeRefused
from applier.sink.evolve.defaults import DefaultUnknown, existing_value
from applier.sink.evolve.plan import UNKNOWN_DEFAULT_HINT
from applier.sink.format.types import Field, TableSchema


def of_schemas(rules: TypeRules) -> TypeRules:
    """The rules for defaults that a registered schema shows: TiDB stores those of a TIMESTAMP in UTC."""
    return replace(rules, session_zone="UTC")


def is_older(version: TableVersion, than: TableVersion) -> bool:
    """Whether the registry knew the value schema of one version before that of another, under the same key schema.

    A version number of Avro holds both ids (`row_version`). Numbers that are hashes share no upper half.
    """
    return version.version >> 31 == than.version >> 31 and version.version < than.version


def retyped(name: TableName) -> SchemaChangeRefused:
    """Rows of one step that are of several types, and no DDL among them that shows where one ends."""
    what = f"A column of table {name} changed its type in the middle of a step, and the feed carries no DDL."
    hint = "let TiCDC send DDL messages (Avro: enable-tidb-extension, avro-enable-watermark), or load the table again."
    return SchemaChangeRefused(what, hint)


def with_added(
    rows: pa.Table, version: TableVersion, table: TableVersion, schema: TableSchema, rules: TypeRules, prefix: str = ""
) -> pa.Table:
    """Rows with the columns that the table has and their version lacks.

    Args:
        rows: The rows, with `m.present`.
        version: What they are written in.
        table: What the table is now, by the schemas of rows.
        schema: Columns of the Iceberg table.
        rules: How types map.
        prefix: What stands before the names of the table's own columns.

    Raises:
        SchemaChangeRefused: The value of a column in them is not known.
    """
    if version.keys_only or not is_older(version, table) or not pc.any(rows["m.present"]).as_py():
        return rows
    for column in table.columns:
        found = schema.field(column.name)
        if found is not None and version.column(column.name) is None:
            value = _value(column, found, table, of_schemas(rules))
            rows = rows.append_column(prefix + column.name, pa.array([value.as_py()] * len(rows), found.arrow))
    return rows


def _value(column: Column, found: Field, table: TableVersion, rules: TypeRules) -> pa.Scalar[Any]:
    try:
        return existing_value(column, found.arrow, rules, f"{table.name}.{column.name}")
    except DefaultUnknown as error:
        if rules.unknown_default == "null":
            return pa.scalar(None, found.arrow)
        what = (
            f"Table {table.name} cannot follow its upstream: "
            f"The value of the new column {column.name} in existing rows is not known: {error}."
        )
        raise SchemaChangeRefused(what, UNKNOWN_DEFAULT_HINT) from None
