"""Reads a table in small pieces of its key, and lets TiDB compute a checksum of each.

TiDB computes it where the rows lie. Two checksums of a piece that are equal stand for the same cells at both moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from applier.changefeed.packing import packed
from applier.decode.tidb.range_reader import RangeReader, cell
from applier.decode.tidb.session import session
from applier.decode.tidb.table_ranges import ROW_ID, Bound, TableRange, quoted
from applier.decode.tidb.tidb_export import place

MOST_PIECES = 1024
"""Pieces of a table: TiDB is asked for the checksum of each."""

_QUERY_BYTES = 64 << 10
"""Length of a query, about: one for each piece would cost more than the rows of a few that changed."""

_LEAST_BYTES = 256 << 10
"""Bytes of rows of a piece: one row that changes costs reading them all."""


class Piece(NamedTuple):
    """Rows whose keys lie at one bound or above, and below the other; None is no bound."""

    low: Bound | None
    high: Bound | None


class PieceChecksum(NamedTuple):
    """What TiDB computes of a piece: its rows, and the sum of 64 bits of the MD5 of each.

    A sum and no exclusive or: of rows that come twice, a change of both would not show.
    """

    rows: int
    sum: int


@dataclass(frozen=True, slots=True)
class PieceReader:
    """Reads pieces of one table, of about so many bytes, as of one moment; checksums of one salt can be compared."""

    reader: RangeReader
    salt: int
    size: int

    def read(self, piece: Piece) -> Iterator[tuple[Bound | None, pa.Table]]:
        """The rows of a piece in smaller ones, each with the bound at which it begins.

        It is None for the first, and where no bound lies between a row and the one before: such rows belong to the
        piece before.

        Raises:
            ValueRefused, MomentGone, OutsideRefused, TransientError: As `RangeReader.read`.
        """
        most = max(_LEAST_BYTES, self.size // MOST_PIECES)
        part = TableRange(1, self.reader.order.between(*piece), 0)
        more = [ROW_ID] if self.reader.order.names == (ROW_ID,) else []
        last: list[Any] | None = None
        for rows in self.reader.texts(part, more, most):
            first = self._place(rows, 0)
            bound = self.reader.order.bound(first) if last not in (None, first) else None
            last = self._place(rows, rows.num_rows - 1)
            yield bound, self.reader.typed(part, rows.drop_columns(more))[0]

    def _place(self, rows: pa.Table, row: int) -> list[Any]:
        return [rows[name][row].as_py() for name in self.reader.order.names]

    def checksums(self, pieces: Sequence[Piece]) -> list[PieceChecksum | None]:
        """The checksum of each piece; None where TiDB could not compute the MD5 of each row, as one is too long.

        Raises:
            MomentGone, OutsideRefused, TransientError: As `RangeReader.read`.
        """
        if not pieces:
            return []
        asked = packed([self._asking(number, piece) for number, piece in enumerate(pieces)], len, _QUERY_BYTES)
        with session(self.reader.login, self.reader.tso) as connected:
            found = [row for some in asked for row in connected.rows(" UNION ALL ".join(some))]
        sums = {
            int(number or 0): PieceChecksum(int(rows or 0), int(total or 0)) if rows == hashed else None
            for number, rows, hashed, total in found
        }
        return [sums[number] for number, _ in enumerate(pieces)]

    def _asking(self, number: int, piece: Piece) -> str:
        """What shows a number, the rows of a piece, how many of them have an MD5, and the sum of 64 bits of each."""
        own = f"{place(self.reader.version.name)} WHERE {self.reader.order.between(*piece)}"
        # Each has a short name: a server cuts the text of an expression in the midst of a character.
        hashed = f"SELECT MD5(CONCAT('{self.salt}', {', '.join(self._cells())})) AS h FROM {own}"  # noqa: S608 - quoted
        found = "COUNT(*) AS a, COUNT(h) AS b, SUM(CAST(CONV(LEFT(h, 16), 16, 10) AS UNSIGNED)) AS c"
        return f"SELECT {number} AS n, {found} FROM ({hashed}) AS hashed"  # noqa: S608 - see above

    def _cells(self) -> Iterator[str]:
        """Each column as bytes that no other value has, NULL included, and that cannot be those of its neighbours."""
        for column in self.reader.columns:
            shown = f"CAST({cell(column)} AS BINARY)"
            # CONCAT is NULL for a text that is too long as well: that NULL must become one of the whole row.
            yield f"IF({quoted(column.name)} IS NULL, '-', CONCAT(LENGTH({shown}), ':', {shown}))"


def can_be_cut(reader: RangeReader) -> bool:
    """Whether a table can be read in pieces: bounds hold all columns of its key, so that each row has its own."""
    return len(reader.order.cut) == len(reader.order.names)
