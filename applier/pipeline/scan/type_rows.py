"""Converts the wire values of reduced rows to the table's types, or names each row whose value does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.decode.values.alike import Keys
from applier.decode.values.convert import to_array
from applier.errors import ValueRefused

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
                meta = meta.append_column(column.name, array)
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
            found[row].concern(self.version.name, meta["\0ts"][row].as_py())
            yield meta["\0partition"][row].as_py(), meta["\0offset"][row].as_py(), found[row]

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
        array, zeros = to_array(values, column, self.wire, self.rules, f"{self.version.name}.{column.name}")
        Keys(self.version, self.wire, self.rules).check(column, values, array, zeros)
        return array, zeros
