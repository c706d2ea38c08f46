"""Shows columns of a table of a TiDB as they were at one moment: what all rows hold, or those of some keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TEXTS, ColumnPath, TypeRules
from applier.config.login import Login
from applier.decode.dump.typed_rows import typed
from applier.decode.tidb.range_reader import cell, table_of
from applier.decode.tidb.session import Session, session
from applier.decode.tidb.table_ranges import COMPARED, literal, quoted
from applier.decode.tidb.tidb_export import TidbExport, place
from applier.errors import ValueRefused

KEYS = 500
"""Keys that one query names."""


@dataclass(frozen=True, slots=True)
class RowsAsOf:
    """The rows of a table as of a TSO, typed as a load types them."""

    login: Login
    tso: int
    version: TableVersion
    rules: TypeRules

    @staticmethod
    def find(login: Login, tso: int, name: TableName, rules: TypeRules) -> RowsAsOf:
        """Look for a table; raises as `TidbExport.find`, and ConfigError if there was none of this name."""
        export = TidbExport.find(login, tso, lambda other: other == name)
        return RowsAsOf(login, tso, export.version(name), rules)

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row."""
        return self.version.key

    def only_value(self, name: str, arrow: pa.DataType) -> pa.Scalar[Any] | None:
        """What all rows hold in a column; None where they hold different values, or there is no row.

        Raises:
            ValueRefused: The column is not there, or of another type.
        """
        column = self._column(name)
        # Texts that differ may be equal by their collation, and 1 and 1.0 are one value of JSON.
        exact = f", HEX({quoted(column.name)})" if column.type.name in (*TEXTS, "json") else ""
        query = f"SELECT DISTINCT {cell(column)}{exact} FROM {place(self.version.name)} LIMIT 2"  # noqa: S608 - quoted
        with session(self.login, self.tso) as asked:
            rows = asked.rows(query)
        if len(rows) != 1:
            return None
        found = self._typed([column], [row[:1] for row in rows])[0][column.name]
        value: pa.Scalar[Any] = _of_type(found, column, arrow)[0]
        return value

    def values(self, name: str, kind: ColumnType, arrow: pa.DataType, keys: pa.Table) -> pa.ChunkedArray[Any]:
        """What some rows hold in a column, in the order of their keys.

        Raises:
            ValueRefused: The column is of another type, or a row is not there.
        """
        column = self._column(name)
        if not _is_same(column.type, kind):
            raise self._refused(f"its column {name} was {column.type.text} then, and not {kind.text}")
        with session(self.login, self.tso) as asked:
            starts = range(0, keys.num_rows, KEYS)
            parts: Any = [self._of_keys(asked, column, arrow, keys.slice(start, KEYS)) for start in starts]
        found: pa.ChunkedArray[Any] = pa.chunked_array(parts, type=arrow)  # type: ignore[call-overload]
        return found

    def _of_keys(self, asked: Session, column: Column, arrow: pa.DataType, keys: pa.Table) -> pa.Array[Any]:
        rows, _ = self.of_keys(asked, keys, [column])
        return _of_type(rows[column.name], column, arrow).combine_chunks()

    def of_keys(self, asked: Session, keys: pa.Table, columns: Sequence[Column]) -> tuple[pa.Table, int]:
        """The rows of some keys in their order, which a session shows as of the TSO; and how many zero dates they had.

        Raises:
            ValueRefused: A row is not there, or a value does not fit its column.
            OutsideRefused, TransientError: TiDB refuses the query, or was lost.
        """
        own = [self._column(name) for name in self.key]
        every = [*own, *(column for column in columns if column not in own)]
        wanted = _rows(keys, own)
        literals = ", ".join(f"({', '.join(map(self._literal, row, own))})" for row in wanted)
        cells, names = ", ".join(map(cell, every)), ", ".join(quoted(column.name) for column in own)
        where = f"{place(self.version.name)} WHERE ({names}) IN ({literals})"
        shown = asked.rows(f"SELECT {cells} FROM {where}")  # noqa: S608 - quoted
        rows, zero_dates = self._typed(every, shown)
        found = {_known(row): at for at, row in enumerate(_rows(rows, own))}
        if any(_known(row) not in found for row in wanted):
            raise self._refused("rows are here that were not there then")
        return rows.take(pa.array([found[_known(row)] for row in wanted], pa.int64())), zero_dates

    def _typed(self, columns: Sequence[Column], rows: Sequence[tuple[bytes | None, ...]]) -> tuple[pa.Table, int]:
        names = [column.name for column in columns]
        if not rows:
            raise self._refused("rows are here, and none of them was there then")
        try:
            return typed(table_of(names, rows), self.version, self.rules, "raw", "UTC")
        except (ValueError, pa.ArrowException):
            raise self._refused("its values cannot be read") from None

    def _column(self, name: str) -> Column:
        column = self.version.column(name)
        if column is None:
            raise self._refused(f"it had no column {name} then")
        return column

    def _literal(self, value: Any, column: Column) -> str:
        """A value of a key as SQL writes it."""
        if self.rules.mask_of(ColumnPath(self.version.name, column.name)) is not None:
            raise self._refused(f"its key column {column.name} is masked, so that its rows cannot be asked for")
        if column.type.name not in COMPARED or value is None:
            raise self._refused(f"SQL does not find its rows by a key of {column.type.name}")
        return literal(_printed(value), column)

    def _refused(self, why: str) -> ValueRefused:
        return ValueRefused(f"TiDB {self.login.address} does not show table {self.version.name}: {why}.")


def _rows(rows: pa.Table, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[column.name].to_pylist() for column in columns), strict=True))


def _known(row: Sequence[Any]) -> tuple[bytes, ...]:
    """What a key is found by: a number that a message alone shows may be typed as text."""
    return tuple(map(_printed, row))


def _is_same(shown: ColumnType, wanted: ColumnType) -> bool:
    """Whether two descriptions are of one type, as far as each says: that of before the statement is another one."""
    pairs: list[tuple[Any, Any]] = [(shown.length, wanted.length), (shown.scale, wanted.scale)]
    pairs += [(shown.elements or None, wanted.elements or None)]
    is_alike = shown.name == wanted.name and shown.unsigned == wanted.unsigned
    return is_alike and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _of_type(values: pa.ChunkedArray[Any], column: Column, arrow: pa.DataType) -> pa.ChunkedArray[Any]:
    if values.type != arrow:
        what = f"Column {column.name} is {column.type.text} in TiDB, which is {values.type} here, and not {arrow}."
        raise ValueRefused(what)
    return values


def _printed(value: Any) -> bytes:
    """A value of a key as TiDB prints it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(" ").encode()
    return (f"{value:f}" if isinstance(value, Decimal) else str(value)).encode()
