"""Reduces blocks of rows of one table version to the last change of each key, values as sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import TableVersion
from applier.order.latest import last_per_key
from applier.order.reduce import KEYED_SCHEMA, data_of

_REDUCE_ROWS = 100_000
"""Rows beyond twice the survivors that are reduced together, so that memory grows with the keys and not the rows."""


@dataclass(slots=True)
class BlockGroup:
    """Changes of one table version with a key, reduced by column.

    Attributes:
        version: The version, with the types that count.
        by_place: As in `last_per_key`.
        taken: Rows that it was given.
    """

    version: TableVersion
    by_place: bool = False
    taken: int = 0
    _chunks: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _survivors: int = 0

    def add(self, block: ColumnBlock, partition: int, offsets: Ints) -> None:
        """Take the rows of a block; `offsets` are those of the messages that the block's places count."""
        self.taken += len(block.places)
        count, op = len(block.places), block.op
        # Of a deleted row only the key counts; the other columns become NULL beside rows that have them.
        names = block.key if op is Op.DELETE else tuple(block.columns)
        stamps = pa.array(block.commit_ts, pa.int64())
        meta = [
            stamps,
            pa.array(np.full(count, op, np.int8)),
            stamps,
            pa.array(np.full(count, op is not Op.DELETE)),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(offsets[block.places], pa.int64()),
            pa.array(np.zeros(count, np.int32) if block.indexes is None else block.indexes.astype(np.int32)),
        ]
        columns = [*meta, *(block.columns[name] for name in names)]
        self._chunks.append(pa.Table.from_arrays(columns, [*KEYED_SCHEMA.names, *names]))
        self._rows += count
        if self._rows >= 2 * self._survivors + _REDUCE_ROWS:
            self._chunks = [self._reduce()]
            self._rows = self._survivors = self._chunks[0].num_rows

    def columns(self) -> tuple[pa.Table, dict[str, pa.Array[Any]]]:
        """One row per key: the columns of `KEYED_SCHEMA`, and the wire values of the table's own columns."""
        rows = self._reduce()
        values = data_of(rows)
        arrays = (column.combine_chunks() for column in values.columns)
        return rows.select(KEYED_SCHEMA.names), dict(zip(values.column_names, arrays, strict=True))

    def _reduce(self) -> pa.Table:
        rows = pa.concat_tables(self._chunks, promote_options="permissive").combine_chunks()
        self._chunks = []  # The result is a copy; a task would else hold three.
        return last_per_key(rows, self.version.key, by_place=self.by_place)
