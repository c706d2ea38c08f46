"""Reads the rows of a key range as of one moment, as text that TiDB prints, and types them as those of an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.dump.typed_rows import typed
from applier.decode.tidb.session import meaning, session
from applier.decode.tidb.table_ranges import Order, TableRange, quoted
from applier.decode.tidb.tidb_export import place
from applier.errors import ValueRefused

BLOCK_BYTES = 4 << 20
"""Bytes of rows that are typed at once."""

_MEND = "Correct the value in TiDB and load the table again, or leave it out in tables.include."

_FEW_ROWS = 16
"""Rows that are fetched before their size is looked at: a row may have some MB."""

_CELL_BYTES = 8
"""What a cell counts beside its text, as NULL and small numbers take memory too."""


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads the ranges of one table as of a TSO; each in a connection of its own."""

    login: Login
    tso: int
    version: TableVersion
    rules: TypeRules
    order: Order

    def parts(self, part: TableRange, size: int) -> tuple[TableRange, ...]:  # noqa: ARG002 - a range is one part already
        """What tasks read of a range."""
        return (part,)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns whose values are read."""
        return tuple(column for column in self.version.columns if self.rules.takes(self.version.name, column))

    def query(self, part: TableRange, more: Sequence[str] = ()) -> str:
        """What shows the rows of a range, sorted; with more columns, behind their own, if names of any are given."""
        cells = ", ".join([*map(cell, self.columns), *map(quoted, more)])
        rows = f"{place(self.version.name)} WHERE {part.condition}"
        return f"SELECT {cells} FROM {rows} ORDER BY {self.order.by}"  # noqa: S608 - names and literals are quoted

    def read(self, part: TableRange) -> Iterator[tuple[pa.Table, int]]:
        """The rows of a range in bounded blocks, with the number of zero dates that became NULL.

        Raises:
            ValueRefused: A value does not fit its column.
            MomentGone, OutsideRefused: TiDB no longer holds the moment, or refuses to show the table.
            TransientError: TiDB is not there, or was lost.
        """
        for rows in self.texts(part):
            yield self.typed(part, rows)

    def typed(self, part: TableRange, rows: pa.Table) -> tuple[pa.Table, int]:
        """Rows of a range, as `texts` gives them, in their types; see `read`."""
        where = f"In range {part.number} of table {self.version.name}"
        try:
            return typed(rows, self.version, self.rules, "raw", "UTC")
        except ValueRefused as refusal:
            raise ValueRefused(f"{where}: {refusal.what}", refusal.hint or _MEND) from None
        except (ValueError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise ValueRefused(f"{where}, rows cannot be read: {reason}.", _MEND) from None

    def texts(self, part: TableRange, more: Sequence[str] = (), most: int = BLOCK_BYTES) -> Iterator[pa.Table]:
        """The same as TiDB prints them, with more columns: a `binary` column for each; a block has about `most` bytes.

        Raises:
            MomentGone, OutsideRefused, TransientError: As `read`.
        """
        names = [*(column.name for column in self.columns), *more]
        with session(self.login, self.tso) as asked, asked.streamed(self.query(part, more)) as cursor:
            while True:
                with meaning(self.login):
                    rows = _block(cursor, most)
                if not rows:
                    return
                yield table_of(names, rows)


def _block(cursor: Any, most: int) -> list[tuple[bytes | None, ...]]:
    """The next rows, of so many bytes and a few rows at the most; none at the end."""
    rows, size = list[tuple[bytes | None, ...]](), 0
    while size < most and (few := cursor.fetchmany(_FEW_ROWS)):
        rows += few
        size += sum(_CELL_BYTES * len(row) + sum(map(len, filter(None, row))) for row in few)
    return rows


def table_of(names: Sequence[str], rows: Sequence[Any]) -> pa.Table:
    """Rows as TiDB prints them, at least one: a `binary` column for each name."""
    return pa.table([pa.array(cells, pa.binary()) for cells in zip(*rows, strict=True)], names=list(names))


def cell(column: Column) -> str:
    """What shows a column exactly: as text, FLOAT comes with six digits."""
    name = quoted(column.name)
    return f"CAST({name} AS DOUBLE)" if column.type.name == "float" else name
