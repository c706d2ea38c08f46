"""Takes from the Iceberg table what rows leave open in their types.

Rows of Open and Canal-JSON name neither the precision of a decimal nor the length of a bit column. A table that was
loaded before the feed begins has both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import Column, TableVersion
from applier.errors import TableMismatch
from applier.sink.format.types import Chunks, Field, TableSchema, iceberg_type

_MOST_BITS = 63
"""Bits that an Iceberg `long` takes without a sign."""


def supplied(version: TableVersion, schema: TableSchema) -> TableVersion:
    """The version with the digits and bits of the Iceberg table, where the version leaves them open."""
    columns = tuple(_supplied(column, schema.field(column.name)) for column in version.columns)
    return version if columns == version.columns else replace(version, columns=columns)


def _supplied(column: Column, found: Field | None) -> Column:
    kind = column.type
    if found is None or kind.length is not None:
        return column
    if kind.name == "bit" and found.arrow == pa.int64():
        return replace(column, type=replace(kind, length=_MOST_BITS))
    if (
        kind.name == "decimal"
        and isinstance(found.arrow, pa.Decimal128Type)
        and kind.scale in (None, found.arrow.scale)
    ):
        return replace(column, type=replace(kind, length=found.arrow.precision, scale=found.arrow.scale))
    return column


def fitted(rows: pa.Table, version: TableVersion, schema: TableSchema, table: str, prefix: str = "") -> pa.Table:
    """Rows whose values have the digits and bits of the Iceberg table.

    Args:
        rows: The rows.
        version: What they are written in.
        schema: Columns of the Iceberg table.
        table: Its name, for the refusal.
        prefix: What stands before the names of the table's own columns.

    Raises:
        TableMismatch: A value needs more digits or bits.
    """
    for old, new in zip(version.columns, supplied(version, schema).columns, strict=True):
        place = rows.schema.get_field_index(prefix + old.name)
        if old is not new and place >= 0:
            rows = rows.set_column(place, prefix + old.name, _cast(rows[place], schema.field(old.name), table))
    return rows


def _cast(values: Any, found: Field | None, table: str) -> Chunks:
    if found is None or values.type == found.arrow:
        return values  # type: ignore[no-any-return]  # the stubs know no type of a chunked array
    try:
        return pc.cast(values, found.arrow)  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        what = f"A value of column {found.name} of table {table} does not fit {iceberg_type(found.arrow)}."
        hint = "Widen the column of the Iceberg table, or load the table with the type that upstream has."
        # The text of the error holds the value.
        raise TableMismatch(what, hint) from None
