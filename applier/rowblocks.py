"""Blocks of rows of one table version in, one reduced Arrow table out: the last change of each key, values as sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableVersion
from applier.decode.bulk import Block, ColumnBlock, FixedRow, RowShape
from applier.order.merge import DATA, KEYED_SCHEMA, last_per_key

_CHUNK_ROWS = 2_000
"""Rows that become columns together: so few that they are still in the processor's cache, enough to pay for arrays."""

_REDUCE_ROWS = 100_000
"""Rows beyond twice the survivors that are reduced together, so that memory grows with the keys and not the rows."""


@dataclass(slots=True)
class _Pending:
    """Rows of one kind and shape that are not columns yet."""

    commit_ts: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    rows: list[FixedRow] = field(default_factory=list)


@dataclass(slots=True)
class BlockGroup:
    """Changes of one table version with a key, reduced by column.

    Attributes:
        version: The version, with the types that count.
        by_place: As in `KeyedGroup`.
        taken: Rows that it was given.
    """

    version: TableVersion
    by_place: bool = False
    taken: int = 0
    _pending: dict[tuple[Op, RowShape], _Pending] = field(default_factory=dict)
    _chunks: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _survivors: int = 0

    def add(self, block: Block, numbers: Sequence[int], partition: int, offsets: Sequence[int]) -> None:
        """Take some rows of a block.

        Args:
            block: The block.
            numbers: Which of its rows.
            partition: Where their messages were read.
            offsets: Offsets of the messages of the batch that the block's places count.
        """
        self.taken += len(numbers)
        if isinstance(block, ColumnBlock):
            self._add_columns(block if len(numbers) == len(block.places) else block.part(numbers), partition, offsets)
            return
        pending = self._pending.setdefault((block.op, block.shape), _Pending())
        pending.commit_ts += [block.commit_ts[number] for number in numbers]
        pending.partitions += [partition] * len(numbers)
        pending.offsets += [offsets[block.places[number]] for number in numbers]
        pending.rows += [block.rows[number] for number in numbers]
        if len(pending.rows) >= _CHUNK_ROWS:
            self._flush(block.op, block.shape)

    def _add_columns(self, block: ColumnBlock, partition: int, offsets: Sequence[int]) -> None:
        count = len(block.places)
        read = _Pending(block.commit_ts, [partition] * count, [offsets[place] for place in block.places])
        names = block.key if block.op is Op.DELETE else tuple(block.columns)
        self._append(block.op, read, names, [block.columns[name] for name in names], block.indexes)

    def columns(self) -> tuple[pa.Table, dict[str, pa.Array[Any]]]:
        """One row per key: the columns of `KEYED_SCHEMA`, and the wire values of the table's own columns."""
        for op, shape in list(self._pending):
            self._flush(op, shape)
        rows = self._reduce()
        values = {name.removeprefix(DATA): rows[name] for name in rows.column_names if name.startswith(DATA)}
        return rows.select(KEYED_SCHEMA.names), {name: column.combine_chunks() for name, column in values.items()}

    def _flush(self, op: Op, shape: RowShape) -> None:
        pending = self._pending.pop((op, shape))
        # Of a deleted row only the key counts; the other columns become NULL beside rows that have them.
        names = shape.key if op is Op.DELETE else shape.names
        self._append(op, pending, names, shape.arrays(pending.rows, names))

    def _append(
        self,
        op: Op,
        pending: _Pending,
        names: Sequence[str],
        columns: Sequence[pa.Array[Any]],
        indexes: Sequence[int] = (),
    ) -> None:
        count = len(pending.offsets)
        stamps = pa.array(pending.commit_ts, pa.int64())
        meta = [
            stamps,
            pa.array(np.full(count, op is Op.INSERT)),
            stamps,
            pa.array(np.full(count, op is not Op.DELETE)),
            pa.array(pending.partitions, pa.int32()),
            pa.array(pending.offsets, pa.int64()),
            pa.array(indexes or np.zeros(count, np.int32), pa.int32()),
        ]
        chunk = pa.Table.from_arrays([*meta, *columns], [*KEYED_SCHEMA.names, *(DATA + name for name in names)])
        self._chunks.append(chunk)
        self._rows += count
        if self._rows >= 2 * self._survivors + _REDUCE_ROWS:
            self._chunks = [self._reduce()]
            self._rows = self._survivors = self._chunks[0].num_rows

    def _reduce(self) -> pa.Table:
        rows = pa.concat_tables(self._chunks, promote_options="permissive").combine_chunks()
        self._chunks = []  # What comes out is a copy, too: three of them would be the most that a task ever holds.
        return last_per_key(rows, [DATA + name for name in self.version.key], by_place=self.by_place)


def segments(commit_ts: np.ndarray, cuts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Numbers of the segments that rows belong to, as `order.barrier.segment` counts, and of the rows in each."""
    if not cuts:
        yield 0, np.arange(len(commit_ts))
        return
    numbers = np.searchsorted(np.asarray(cuts), commit_ts, side="left")
    for number in np.unique(numbers).tolist():
        yield number, np.flatnonzero(numbers == number)


def by_place(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Runs of messages of one partition; from Kafka a batch is one."""
    topics = batch.column("topic").dictionary_encode()
    partitions = batch.column("partition").to_numpy()
    changes = (np.diff(partitions) != 0) | (np.diff(topics.indices.to_numpy()) != 0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        topic: Any = topics.dictionary[topics.indices[start].as_py()].as_py()
        yield TopicPartition(topic, int(partitions[start])), batch.slice(start, end - start)
