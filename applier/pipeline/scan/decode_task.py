"""The row pass: messages in, and per table one typed, reduced Arrow table out, beside every control message met.

The same code runs in Spark's tasks (`frame.mapInArrow(row_pass, FINDING_DDL)`) and, for small windows, in the driver.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.event import Bootstrap, Event, Resolved, RowChange, SchemaChange
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import ColumnBlock, Ints, without
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.consume.window_size import NO_LIMIT, WindowTooLargeError
from applier.decode.decoder import Decoder, owners
from applier.decode.options import DecoderOptions
from applier.decode.protocols import decoder_of_thread
from applier.errors import DecodeError, TransientError, ValueRefused
from applier.order.already_applied import AppliedRows
from applier.order.barrier import segment
from applier.order.reduce import KeyedGroup, KeylessGroup, group
from applier.order.reduce_columns import BlockGroup, by_place, segments
from applier.order.resent import Passages
from applier.order.undated import undated, undated_ddl
from applier.pipeline.scan.message_size import too_large
from applier.pipeline.scan.observations import Observations
from applier.pipeline.scan.task_result import error_payload, finding, finding_batch, rows_batch
from applier.pipeline.scan.task_versions import TaskVersions
from applier.pipeline.scan.type_rows import Typing


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What the tasks need to know; picklable, and callable on an iterator of message batches.

    Attributes:
        protocol: TiCDC's name of the protocol.
        options: Options of its decoder.
        rules: How the configuration bends the type mapping.
        include: Filter rules; rows of other tables are counted and passed.
        versions: Table versions known so far.
        applied: Resolved ts that all tables have applied; rows at or below it were sent again.
        applied_of: The same for tables that are ahead of it.
        covered: In a feed in offset order what tables have beyond the checkpoint, by place.
        passages: In such a feed the DDL messages of each table, behind which rows were sent again.
        upto: The watermark: rows above it are left for a later step.
        cuts: DDL that cut the rows of a table into segments.
        typed: Per table and segment the version whose column types and key count, where the feed's DDL show more
            than its rows.
        ordered: False for a feed in offset order: of two events of a key the one read later counts.
        skip: Offsets of messages that were set aside as dead letters.
        try_all: Try the values of every row, not only those of the last of its key: what was set aside may bring
            one to light that cannot be used either, and so on.
        most_bytes: Bytes of messages at which the task ends: the window is too large.
    """

    protocol: str
    options: DecoderOptions
    rules: TypeRules
    include: tuple[str, ...]
    versions: tuple[TableVersion, ...]
    applied: int
    applied_of: Mapping[TableName, int]
    upto: int
    ordered: bool = True
    covered: Mapping[TableName, AppliedOffsets] = field(default_factory=dict)
    passages: Passages = field(default_factory=dict)
    cuts: Mapping[TableName, Sequence[int]] = field(default_factory=dict)
    typed: Mapping[TableName, Sequence[TableVersion | None]] = field(default_factory=dict)
    skip: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    try_all: bool = False
    most_bytes: int = NO_LIMIT

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read all batches of one task, then yield its findings as batches of `RESULT_SCHEMA`."""
        try:
            task = _TaskState(self, decoder_of_thread(self.protocol, self.options))
            with _without_collector():
                for batch in batches:
                    task.read(batch)
                yield from task.results()
        except WindowTooLargeError as error:
            yield finding_batch(finding("too_large", ts=error.size, count=error.messages))
        except TransientError as error:
            # Spark would wrap it in a traceback; as a finding it reaches the driver as the sentence that it is.
            yield finding_batch(finding("transient", payload=error_payload(error)))


_NONE: Sequence[Event] = ()


def _tables(events: Sequence[Event]) -> Collection[TableName]:
    """The tables of the rows of a message that was read."""
    return {event.name for event in events if isinstance(event, RowChange)}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Decoded rows hold no cycles, but the garbage collector walks them all again and again: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


FIRST_ROWS = 1_000
"""Messages that are read first."""

SLICE_ROWS = 10_000
"""Messages that are read together: enough of each table to pay, few enough to hold as Python objects."""

_Group: TypeAlias = KeyedGroup | KeylessGroup | BlockGroup


class _Runs:
    """Runs of rows of one commit ts in a partition, numbered for each table without a key."""

    def __init__(self) -> None:
        self._last: dict[tuple[TableName, TopicPartition], tuple[int, int]] = {}

    def number(self, name: TableName, place: TopicPartition, ts: int) -> int:
        """Number of the run that the next row of a table belongs to."""
        last, number = self._last.get((name, place), (-1, 0))
        if ts != last:
            number += 1
            self._last[name, place] = ts, number
        return number


def _taken_apart(
    blocks: Sequence[ColumnBlock], rest: Iterable[int], versions: TaskVersions
) -> tuple[Sequence[ColumnBlock], Iterable[int]]:
    """Move the rows of blocks that cannot be reduced by column to the messages that are decoded one by one."""
    alone = {number for block in blocks if not versions.is_reducible(block) for number in block.places.tolist()}
    if not alone:
        return blocks, rest
    # In order of the offsets: rows without a key, read after a watermark, would be taken for sent again.
    left = [block for block in map(partial(without, places=alone), blocks) if len(block.places)]
    return left, sorted([*rest, *alone])


class _TaskState:
    """State of one decode task.

    Args:
        job: What it must do.
        decoder: A decoder of its protocol.
    """

    def __init__(self, job: DecodeTask, decoder: Decoder) -> None:
        self._job = job
        self._decoder = decoder
        self._admits = TableFilter(job.include).admits
        self._applied = AppliedRows(job.applied, job.applied_of, job.covered, job.passages)
        self._versions = TaskVersions(decoder, job.versions, job.typed, job.cuts, self._admits)
        self._seen = Observations(job.protocol, self._admits)
        self._groups: dict[tuple[TableName, int, int, str], KeyedGroup | KeylessGroup] = {}
        self._block_groups: dict[tuple[TableName, int, int, str, Hashable], BlockGroup] = {}
        self._runs = _Runs()
        self._is_taught = False

    def read(self, batch: pa.RecordBatch) -> None:
        """Decode and reduce one batch of messages."""
        self._seen.receive(batch, self._job.most_bytes)
        start = 0
        while start < batch.num_rows:
            # The first messages teach the decoder what the others are read at once by.
            size = SLICE_ROWS if self._is_taught else FIRST_ROWS
            for place, messages in by_place(batch.slice(start, size)):
                self._read_partition(place, messages)
            self._is_taught = True
            start += size

    def _read_partition(self, place: TopicPartition, messages: pa.RecordBatch) -> None:
        """Read messages of one partition: what the decoder can read at once, and the rest one by one."""
        self._seen.read[place] = self._seen.read.get(place, 0) + messages.num_rows
        skip = self._job.skip.get(place, frozenset())
        messages = self._fitting(place, messages, skip)
        offsets = np.asarray(messages.column("offset"))
        columns: list[list[Any]] = [messages.column(name).to_pylist() for name in ("key", "value")]
        keys, values = columns
        rest: Iterable[int] = range(len(values))
        blocks: Sequence[ColumnBlock] = ()
        if self._decoder.bulk is not None and not skip and not self._job.try_all:
            blocks, rest = self._decoder.bulk.read(keys, values)
            blocks, rest = _taken_apart(blocks, rest, self._versions)
        self._read_each(place, rest, offsets, keys, values, skip)
        for block in blocks:
            self._take_block(block, place, offsets)

    def _fitting(self, place: TopicPartition, messages: pa.RecordBatch, skip: frozenset[int]) -> pa.RecordBatch:
        """The messages that are not too large; the others are bad ones, which no decoder sees."""
        large = too_large(messages, self._job.options.max_bytes)
        if not large:
            return messages
        for number, error in large.items():
            offset = messages.column("offset")[number].as_py()
            if offset not in skip:
                # The value says nothing here: to look into it is what must not happen.
                self._seen.reject(place, offset, error, owners(self._decoder, place.topic, None, error))
        return messages.filter(pa.array([number not in large for number in range(messages.num_rows)]))

    def _read_each(
        self,
        place: TopicPartition,
        chosen: Iterable[int],
        offsets: Ints,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        skip: frozenset[int],
    ) -> None:
        """Decode chosen messages, each on its own."""
        for number in (number for number in chosen if int(offsets[number]) not in skip):
            offset, value, events = int(offsets[number]), values[number], _NONE
            try:
                events = self._decoder.decode(keys[number], value)
                for index, event in enumerate(events):
                    if type(event) is RowChange:
                        self._take_row(event, place, offset, index)
                    else:
                        self._take_control(event, place, offset, index)
            except TransientError:
                raise  # Also where it is a DecodeError: no message is bad because the registry refuses a log-in.
            except DecodeError as error:
                found = _tables(events) or owners(self._decoder, place.topic, value, error)
                self._seen.reject(place, offset, error, found)

    def results(self) -> Iterator[pa.RecordBatch]:
        """What this task found: of each table a batch of its rows, which are forgotten then, and one of all else."""
        for groups in cast("list[dict[Any, _Group]]", [self._groups, self._block_groups]):
            while groups:
                where = next(iter(groups))
                if (found := self._rows(where, groups.pop(where))) is not None:
                    yield found
        yield finding_batch(*self._seen.findings())

    def _take_row(self, row: RowChange, place: TopicPartition, offset: int, index: int) -> None:
        job, name, ts = self._job, row.name, row.commit_ts
        # Rows that are not due count, too: they part a run from the same one sent again.
        run = self._runs.number(name, place, ts) if name in self._versions.keyless else 0
        if ts > job.upto:
            self._seen.counts["left"] += 1
            self._seen.hold(place, offset)
            return
        if not self._admits(name):
            self._seen.counts["excluded"] += 1
            return
        if job.ordered and ts == 0:
            raise undated(name, row.op)
        if self._applied.holds(name, place, offset, ts):
            self._seen.counts["replayed"] += 1
            return
        number = segment(job.cuts, name, ts or self._applied.after_ddl(name, place, offset)) if job.cuts else 0
        rows = self._groups.get((name, row.version, number, place.topic))
        if rows is None:
            version = self._versions.get(name, row.version)
            if version is None:
                self._seen.wait(name, row.version, ts, place)
                return
            rows = group(self._versions.typed(version, number), by_place=not job.ordered)
            self._groups[name, row.version, number, place.topic] = rows
        if job.try_all:
            one = group(rows.version)
            one.add(row, (place.partition, offset, index))
            self._typing(rows.version).table(*one.columns())
        # Only what this very pass read counts: rows above the watermark are read again, before the resolved ts that
        # their partition had sent by then.
        replay = rows.is_bag and ts <= self._seen.resolved.get(place, 0)
        rows.add(row, (place.partition, offset, index), replay=replay, run=run)
        self._seen.counts["rows"] += 1

    def _take_block(self, block: ColumnBlock, place: TopicPartition, offsets: Ints) -> None:
        """Take many rows as `_take_row` takes one."""
        job, name = self._job, block.name
        stamps, where = block.commit_ts, offsets[block.places]
        above = stamps > job.upto
        if above.any():
            self._seen.counts["left"] += int(above.sum())
            self._seen.hold(place, int(where[above].min()))
        if not self._admits(name):
            self._seen.counts["excluded"] += int((~above).sum())
            return
        if job.ordered and not stamps.all():
            for offset in where[(stamps == 0) & ~above].tolist():
                self._seen.reject(place, offset, undated(name, block.op), [name])
            above |= stamps == 0
        again, placed = self._applied.of_block(name, place, where, stamps)
        self._seen.counts["replayed"] += int(again.sum())
        due = np.flatnonzero(~above & ~again)
        if not len(due):
            return
        for number, rows in segments(placed[due], job.cuts.get(name, ())):
            some = block if len(rows) == len(stamps) else block.part(due[rows])
            self._add_rows(some, number, place, offsets)

    def _add_rows(self, block: ColumnBlock, number: int, place: TopicPartition, offsets: Ints) -> None:
        """Reduce the rows of a block, which are of one segment."""
        where = (block.name, block.version, number, place.topic, block.form)
        reduced = self._block_groups.get(where)
        if reduced is None:
            version = self._versions.get(block.name, block.version)
            if version is None:
                self._seen.wait(block.name, block.version, int(block.commit_ts.min()), place, len(block.places))
                return
            reduced = self._block_groups[where] = BlockGroup(
                self._versions.typed(version, number), not self._job.ordered
            )
        reduced.add(block, place.partition, offsets)
        self._seen.counts["rows"] += len(block.places)

    def _typing(self, version: TableVersion) -> Typing:
        return Typing(version, self._decoder.wire, self._job.rules)

    def _take_control(self, event: Event, place: TopicPartition, offset: int, index: int) -> None:
        if isinstance(event, Resolved):
            self._seen.resolved[place] = max(event.resolved_ts, self._seen.resolved.get(place, 0))
        elif isinstance(event, Bootstrap):
            self._take_version(event.version, place, announced=True)
        elif isinstance(event, SchemaChange):
            self._take_ddl(event, place, offset, index)

    def _take_version(self, version: TableVersion, place: TopicPartition, *, announced: bool) -> None:
        if self._versions.meet(version, place.topic, announced=announced):
            self._seen.note_version(version, place, announced=announced)

    def _take_ddl(self, change: SchemaChange, place: TopicPartition, offset: int, index: int) -> None:
        if not change.commit_ts and self._job.ordered and self._job.upto >= 0:
            raise undated_ddl()
        if change.after is not None:
            self._take_version(change.after, place, announced=False)
        if change.commit_ts > self._job.upto:
            # It is reported all the same: a DDL may be the last that its topic ever says.
            self._seen.hold(place, offset)
        self._seen.note_ddl(change, place, offset, index)

    def _rows(self, where: tuple[Any, ...], rows: _Group) -> pa.RecordBatch | None:
        """The rows of a group as a finding; None if there are none, or some that do not fit their table."""
        name, _, number, topic, *_ = where
        typing = self._typing(rows.version)
        meta, values = rows.columns()
        if not meta:
            return None
        try:
            table, zero_dates = typing.table(meta, values)
        except ValueRefused:
            # All of them at once: a pass that names one would have to be repeated for each.
            for partition, offset, error in typing.refused(meta, values):
                self._seen.reject(TopicPartition(topic, partition), offset, error, [name])
            return None
        self._seen.counts["zero_dates"] += zero_dates
        del meta, values, rows  # There may be many.
        return rows_batch(name, typing.version, table, number, topic)
