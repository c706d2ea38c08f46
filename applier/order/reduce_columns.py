"""Reduces blocks of rows of one table version to the last change of each key, values as sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import Block, ColumnBlock, FixedRow, Ints, RowShape
from applier.changefeed.table import TableVersion
from applier.order.merge import DATA, KEYED_SCHEMA, last_per_key

_CHUNK_ROWS = 2_000
"""Rows that become columns together: so few that they are still in the processor's cache, enough to pay for arrays."""

_REDUCE_ROWS = 100_000
"""Rows beyond twice the survivors that are reduced together, so that memory grows with the keys and not the rows."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What orders rows."""

    commit_ts: Ints
    partitions: Ints
    offsets: Ints
    indexes: Ints

    @classmethod
    def of(cls, block: Block, partition: int, offsets: Ints) -> _Order:
        """That of the rows of a block; see `BlockGroup.add`."""
        count = len(block.places)
        indexes = block.indexes if isinstance(block, ColumnBlock) else None
        inside = np.zeros(count, np.int64) if indexes is None else indexes
        return cls(block.commit_ts, np.full(count, partition), offsets[block.places], inside)

    @classmethod
    def together(cls, parts: Sequence[_Order]) -> _Order:
        """That of the rows of many, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


@dataclass(slots=True)
class _Pending:
    """Rows of one kind and shape that are not columns yet."""

    order: list[_Order] = field(default_factory=list)
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

    def add(self, block: Block, partition: int, offsets: Ints) -> None:
        """Take the rows of a block.

        Args:
            block: The block.
            partition: Where their messages were read.
            offsets: Offsets of the messages of the batch that the block's places count.
        """
        self.taken += len(block.places)
        order = _Order.of(block, partition, offsets)
        if isinstance(block, ColumnBlock):
            names = block.key if block.op is Op.DELETE else tuple(block.columns)
            self._append(block.op, order, names, [block.columns[name] for name in names])
            return
        pending = self._pending.setdefault((block.op, block.shape), _Pending())
        pending.order.append(order)
        pending.rows += block.rows
        if len(pending.rows) >= _CHUNK_ROWS:
            self._flush(block.op, block.shape)

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
        self._append(op, _Order.together(pending.order), names, shape.arrays(pending.rows, names))

    def _append(self, op: Op, order: _Order, names: Sequence[str], columns: Sequence[pa.Array[Any]]) -> None:
        count = len(order.offsets)
        stamps = pa.array(order.commit_ts, pa.int64())
        meta = [
            stamps,
            pa.array(np.full(count, op is Op.INSERT)),
            stamps,
            pa.array(np.full(count, op is not Op.DELETE)),
            pa.array(order.partitions.astype(np.int32)),
            pa.array(order.offsets, pa.int64()),
            pa.array(order.indexes.astype(np.int32)),
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
