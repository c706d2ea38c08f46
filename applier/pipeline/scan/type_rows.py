"""Converts the wire values of reduced rows to the table's types, or names each row whose value does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from applier.changefeed.event import Image
from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array
from applier.errors import ValueRefused
from applier.order.merge import DATA, KEYED_SCHEMA, KEYLESS_SCHEMA
from applier.order.reduce import KeyedGroup, KeylessGroup

_Column: TypeAlias = "Sequence[Any] | pa.Array[Any]"

Values: TypeAlias = Mapping[str, _Column]
"""Wire values of some rows, per column."""


@dataclass(frozen=True, slots=True)
class Typing:
    """Gives values their types.

    Args:
        version: The table, with the types that count.
        wire: How the protocol writes values.
        rules: How the configuration bends the type mapping.
    """

    version: TableVersion
    wire: WireForm
    rules: TypeRules

    def table(self, meta: pa.Table, values: Values) -> tuple[pa.Table, int]:
        """Append the table's own columns; also how many zero dates were met.

        Args:
            meta: Rows of `KEYED_SCHEMA` or `KEYLESS_SCHEMA`.
            values: Their values.

        Raises:
            ValueRefused: A value does not fit its column.
        """
        zero_dates = 0
        for column in self.version.columns:
            if column.name in values:
                array, zeros = self._array(values[column.name], column)
                meta = meta.append_column(DATA + column.name, array)
                zero_dates += zeros
        return meta, zero_dates

    def refused(self, meta: pa.Table, values: Values) -> Iterator[tuple[int, int, ValueRefused]]:
        """Partition, offset and reason of each row with a value that does not fit; the first one's reason counts."""
        found: dict[int, ValueRefused] = {}
        for column in self.version.columns:
            if column.name in values:
                for row, error in self._refused(values[column.name], column, 0):
                    found.setdefault(row, error)
        for row in sorted(found):
            yield meta["m.partition"][row].as_py(), meta["m.offset"][row].as_py(), found[row]

    def _refused(self, values: _Column, column: Column, first: int) -> Iterator[tuple[int, ValueRefused]]:
        """Values that do not fit, found by halves, as nearly all of them do; column by column, as all may be bad."""
        try:
            self._array(values, column)
        except ValueRefused as error:
            if len(values) == 1:
                yield first, error
                return
            half = len(values) // 2
            yield from self._refused(values[:half], column, first)
            yield from self._refused(values[half:], column, first + half)

    def _array(self, values: _Column, column: Column) -> tuple[pa.Array[Any], int]:
        return to_array(values, column, self.wire, self.rules, f"{self.version.name}.{column.name}")


def columns_of(rows: KeyedGroup | KeylessGroup) -> tuple[pa.Table, Values]:
    """The columns beside the data, and per column wire values; one that no image holds is left out: it is not NULL."""
    meta, images = _meta(rows)
    names = [column.name for column in rows.version.columns]
    held = [name for name in names if any(name in image for image in images)]
    return meta, {name: [image.get(name) for image in images] for name in held}


def _meta(rows: KeyedGroup | KeylessGroup) -> tuple[pa.Table, list[Image]]:
    """The columns beside the data, and the images to take the data from."""
    if isinstance(rows, KeylessGroup):
        events = rows.events
        keyless = ((event.ts, event.present, *event.position, event.replay, event.run) for event in events)
        return _columns(keyless, KEYLESS_SCHEMA), [event.image for event in events]
    survivors = rows.survivors.values()
    meta = ((s.first_ts, s.first_op, s.ts, s.present, *s.position) for s in survivors)
    key = rows.version.key
    images = [s.image if s.present else {name: s.image[name] for name in key} for s in survivors]
    return _columns(meta, KEYED_SCHEMA), images


def _columns(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
