"""Fits the layout that a user wants to the columns of an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from applier.changefeed.table import fold
from applier.config.table_layout import PartitionField, SortField, TableLayout
from applier.errors import TableMismatch
from applier.sink.format.types import TypeJson, iceberg_type


def fitted(table: str, layout: TableLayout, columns: pa.Schema) -> TableLayout:
    """The layout with columns in the letters of the table.

    Raises:
        TableMismatch: A column is missing, or has a type that the transform or the order does not take.
    """
    partition, sort, at = layout.partition, layout.sort, layout.pattern
    return replace(
        layout,
        partition=None if partition is None else tuple(_partition(table, each, columns, at) for each in partition),
        sort=None if sort is None else tuple(_sort(table, each, columns, at) for each in sort),
    )


def takes(transform: str, kind: pa.DataType) -> bool:
    """Whether a transform takes a column of a type."""
    return _TAKES[_kind(transform)][0](kind)


def partition_name(field: PartitionField, taken: Sequence[str]) -> str:
    """A name of a partition field that no column and no other field has, as Iceberg would give it."""
    if field.transform == "identity":
        return field.column
    name = f"{field.column}_{field.transform.rstrip(']').replace('[', '_').replace('truncate', 'trunc')}"
    while name in taken:
        name += "_"
    return name


def _partition(table: str, field: PartitionField, columns: pa.Schema, pattern: str) -> PartitionField:
    way_out = _way_out("partition_by", pattern, columns)
    found = _column(f"{table} cannot be partitioned by {field}", field.column, columns, way_out)
    if not takes(field.transform, found.type):
        kind = _kind(field.transform)
        what = f"Table {table} cannot be partitioned by {field}: column {found.name} is {_shown(found.type)}, and"
        raise TableMismatch(f"{what} {kind} takes {_TAKES[kind][1]}", way_out)
    return replace(field, column=found.name)


def _sort(table: str, field: SortField, columns: pa.Schema, pattern: str) -> SortField:
    way_out = _way_out("sort_by", pattern, columns)
    found = _column(f"{table} cannot be sorted by {field}", field.column, columns, way_out)
    if pa.types.is_nested(found.type):
        what = f"Table {table} cannot be sorted by {field}: column {found.name} is {_shown(found.type)}"
        raise TableMismatch(what, way_out)
    return replace(field, column=found.name)


def _column(refused: str, name: str, columns: pa.Schema, way_out: str) -> pa.Field[pa.DataType]:
    """The column of a name; TiDB compares them without regard to case."""
    exact = [column for column in columns if column.name == name]
    for column in exact or [column for column in columns if fold(column.name) == fold(name)]:
        return column
    raise TableMismatch(f"Table {refused}: it has no column {name}", way_out)


def _way_out(key: str, pattern: str, columns: pa.Schema) -> str:
    correct = f'Correct {key} in [tables."{pattern}"], where columns are {", ".join(columns.names)}'
    return f"{correct}; `applier reload -c FILE` lets a running `applier run` read it."


def _shown(kind: pa.DataType) -> TypeJson:
    found = iceberg_type(kind)
    return found if isinstance(found, str) else f"a {found['type']}"


def _kind(transform: str) -> str:
    return transform.partition("[")[0]


def _is_exact(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return is_text or pa.types.is_integer(kind) or pa.types.is_decimal(kind)


def _is_dated(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us")


def _is_single(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


_DATED = (_is_dated, "date and timestamp")
_TAKES: Mapping[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "identity": (_is_single, "whole numbers, decimals, texts, bytes, booleans and times"),
    "bucket": (lambda kind: _is_exact(kind) or _is_dated(kind), "whole numbers, decimals, texts, bytes and times"),
    # Of a decimal, Iceberg cannot keep -10 for a -9 of one digit.
    "truncate": (lambda kind: _is_exact(kind) and not pa.types.is_decimal(kind), "whole numbers, texts and bytes"),
    "year": _DATED,
    "month": _DATED,
    "day": _DATED,
    "hour": (lambda kind: _is_dated(kind) and not pa.types.is_date(kind), "timestamp"),
}
