"""Derives the upstream tables from control tables and Iceberg columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.commands.catalog_reader import Lake
from applier.commands.control_reader import ControlView
from applier.ddl.schema_tracker import Tables
from applier.errors import TerminalError
from applier.sink.control.tables import TABLE_VERSIONS
from applier.sink.format.types import Field, TableSchema

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TYPES = {
    "boolean": ColumnType("tinyint", length=1),
    "int": ColumnType("int"),
    "long": ColumnType("bigint"),
    "float": ColumnType("float"),
    "double": ColumnType("double"),
    "date": ColumnType("date"),
    "timestamp": ColumnType("datetime", scale=6),
    "timestamptz": ColumnType("timestamp", scale=6),
    "string": ColumnType("longtext"),
    "binary": ColumnType("longblob"),
}
"""The widest upstream type that maps onto an Iceberg type."""


def tracked(lake: Lake, changefeed: str) -> Tables:
    """The upstream tables of a changefeed as its newest checkpoint left them; none for one that never ran.

    Raises:
        TransientError: The catalog does not answer.
        TerminalError: The control tables hold something that this applier does not read.
    """
    view = ControlView(lake, changefeed)
    versions = _versions(view)
    newest = view.checkpoint()
    if newest is None or not newest.tables:
        return Tables(version for version in versions.values() if not version.keys_only)
    tables = Tables()
    for name, item in newest.tables.items():
        if (version := versions.get((name, item.version))) is not None:
            tables.put(version, item.partitioning)
    return tables


def upstream_of(name: TableName, schema: TableSchema) -> TableVersion:
    """What an upstream table with these Iceberg columns may look like; lengths and exact types are not shown."""
    columns = tuple(_column(field, is_key=field.name in schema.identifier) for field in schema.fields)
    return TableVersion(name, 0, columns, handle_key=schema.identifier)


def _versions(view: ControlView) -> Mapping[tuple[TableName, int], TableVersion]:
    try:
        return {(version.name, version.version): version for version in view.versions()}
    except (ValueError, KeyError, TypeError) as error:
        msg = f"Table {'.'.join(view.name(TABLE_VERSIONS))} holds a description that cannot be read."
        raise TerminalError(msg, "Check with the version of applier that wrote it, or a newer one.") from error


def _column(field: Field, *, is_key: bool) -> Column:
    kind = field.type if isinstance(field.type, str) else "list"
    if match := _DECIMAL.fullmatch(kind):
        digits = ColumnType("decimal", length=int(match[1]), scale=int(match[2]))
        return Column(field.name, digits, nullable=not is_key)
    return Column(field.name, _TYPES.get(kind, ColumnType("vector")), nullable=not is_key)
