"""The row pass: messages in, and per table one typed, reduced Arrow table out, beside every control message met.

The same code runs in the driver, in worker processes and in Spark's tasks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.event import Bootstrap, Event, Resolved, RowChange, SchemaChange
from applier.changefeed.fate import Fate
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import UNREADABLE, PartitionMessages, Position, TopicPartition
from applier.changefeed.row_block import ColumnBlock, Ints, without
from applier.changefeed.table import TableName, TableVersion, refuse_nul, refuse_rekeyed
from applier.changefeed.types import TypeRules
from applier.consume.window_size import Limits, WindowTooLargeError
from applier.decode.decoder import ClaimReader, Decoder, NamedByDdl, owners
from applier.decode.large_messages import LIMIT_HINT
from applier.decode.options import DecoderOptions
from applier.decode.protocols import decoder_of_thread
from applier.errors import BatchRefused, DecodeError, TransientError
from applier.order.barrier import Barrier
from applier.order.feed_order import FeedOrder, ResolvedOrder, undated_ddl
from applier.order.pieces import PIECE_ROWS
from applier.pipeline.scan.row_groups import Admission, RowGroups
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks, TaskVersions

_MEMORY_HINT = (
    "Raise spark.driver.memory and source.max_message_bytes; messages that the producer compressed together with it "
    "are refused, too."
)

_STAND_IN = pa.scalar(UNREADABLE, pa.binary())


Skip: TypeAlias = Mapping[int, frozenset[TableName]]
"""Messages of a partition by offset; see `DecodeTask.skip`."""


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What the tasks need to know; picklable, and callable on messages, those of one partition at a time.

    Attributes:
        protocol: TiCDC's name of the protocol.
        rules: How the configuration bends the type mapping.
        include: Filter rules; rows of other tables are counted and passed.
        versions: Table versions known so far.
        upto: The watermark: rows above it are left for a later step.
        order: What places the rows, and which of them the tables have.
        skip: Offsets of messages that were set aside as dead letters, and the tables whose rows in them are; none for
            the whole message.
        try_all: Try the values of every row, not only those of the last of its key: what was set aside may bring
            one to light that cannot be used either, and so on.
        limits: What the task may take, and how its rows are cut.
        samples: Keep a row of each table as it was sent, and as it is typed.
    """

    protocol: str
    options: DecoderOptions
    rules: TypeRules
    include: tuple[str, ...]
    versions: tuple[TableVersion, ...]
    upto: int
    order: FeedOrder = field(default_factory=ResolvedOrder)
    marks: DdlMarks = field(default_factory=DdlMarks)
    skip: Mapping[TopicPartition, Skip] = field(default_factory=dict)
    try_all: bool = False
    limits: Limits = field(default_factory=Limits)
    samples: bool = False

    @property
    def admits(self) -> Callable[[TableName], bool]:
        """Whether rows of a table are taken."""
        return TableFilter(self.include).admits

    def apart(self, found: TaskResult, task: int) -> list[list[pa.Table]]:
        """See `KeepingPass`."""
        return found.apart(task, self.limits.splits, self.limits.piece_rows or PIECE_ROWS)

    def __call__(self, parts: Iterable[PartitionMessages]) -> TaskResult:
        """What all messages of one task hold.

        Raises:
            TransientError: The registry or the claim-check storage does not answer.
            WindowTooLargeError: The messages have `most_bytes`.
        """
        decoder = decoder_of_thread(self.protocol, self.options)
        task = _TaskState(self, decoder)
        with _without_collector(), _reading_claims(decoder, task.wants):
            for place, messages in parts:
                task.read(place, messages)
            task.rows.finish()
        return task.found


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


@contextmanager
def _reading_claims(decoder: Decoder, wants: Callable[[TableName, int], bool]) -> Iterator[None]:
    """Let a decoder read the claim-check files of wanted rows. It outlives the task, and must not keep its rows."""
    if not isinstance(decoder, ClaimReader):
        yield
        return
    before, decoder.large.wants = decoder.large.wants, wants
    try:
        yield
    finally:
        decoder.large.wants = before


FIRST_ROWS = 1_000
"""Messages that are read first."""

SLICE_ROWS = 10_000
"""Messages that are read together: enough of each table to pay, few enough to hold as Python objects."""


def _taken_apart(
    blocks: Sequence[ColumnBlock], rest: Iterable[int], is_columnar: Callable[[ColumnBlock], bool]
) -> tuple[Sequence[ColumnBlock], Iterable[int]]:
    """Move the rows of blocks that cannot be reduced by column to the messages that are decoded one by one."""
    alone = {number for block in blocks if not is_columnar(block) for number in block.places.tolist()}
    if not alone:
        return blocks, rest
    # In order of the offsets: rows without a key, read after a watermark, would be taken for sent again.
    left = [block for block in map(partial(without, places=alone), blocks) if len(block.places)]
    return left, sorted([*rest, *alone])


class _TaskState:
    """State of one decode task."""

    def __init__(self, job: DecodeTask, decoder: Decoder) -> None:
        self._job = job
        self._decoder = decoder
        self.found = TaskResult()
        self._admission = Admission(job.admits, job.protocol, job.upto, job.order, job.marks, self.found)
        self._versions = TaskVersions(decoder, job.versions, job.marks)
        self.rows = RowGroups(decoder.wire, self._versions, self._admission, job.rules, job.try_all, job.samples)
        self._is_taught = False
        self._place, self._offset = TopicPartition("", 0), 0
        self._named = decoder if isinstance(decoder, NamedByDdl) else None

    def wants(self, name: TableName, commit_ts: int) -> bool:
        """Whether a row of the message that is decoded now may be due; see `LargeMessages.wants`."""
        return self._admission.fate_of(name, commit_ts, self._place, self._offset) is None

    def read(self, place: TopicPartition, messages: pa.Table) -> None:
        """Decode and reduce messages of one partition.

        Raises:
            WindowTooLargeError: With it, the task has read as many bytes as it may.
        """
        measures = self.found.measures
        measures["bytes"] += messages.nbytes
        if measures["bytes"] > self._job.limits.most_bytes:
            raise WindowTooLargeError(measures["bytes"], measures["messages"] + messages.num_rows)
        start = 0
        while start < messages.num_rows:
            # The first messages teach the decoder what the others are read at once by.
            size = SLICE_ROWS if self._is_taught else FIRST_ROWS
            self._read_slice(place, messages.slice(start, size))
            self._is_taught = True
            start += size

    def _read_slice(self, place: TopicPartition, messages: pa.Table) -> None:
        """Read some messages: what the decoder can read at once, and the rest one by one."""
        self.found.receive(place, messages.num_rows)
        if self._named is not None:
            self._named.at(place.topic)
        skip = self._job.skip.get(place, {})
        messages = self._fitting(place, messages, skip)
        offsets = np.asarray(messages.column("offset"))
        keys, values = (cast("list[bytes | None]", messages.column(name).to_pylist()) for name in ("key", "value"))
        rest: Iterable[int] = range(len(values))
        blocks: Sequence[ColumnBlock] = ()
        if self._decoder.bulk is not None and not skip and not self._job.try_all:
            blocks, rest = self._decoder.bulk.read(keys, values, self._job.rules.old_rows)
            blocks, rest = _taken_apart(blocks, rest, self._is_columnar)
        self._read_each(place, rest, offsets, keys, values, skip)
        self.rows.take_rows(place)
        self.found.measures["entries"] += _beside(blocks)
        for block in blocks:
            self.rows.take_block(block, place, offsets)

    def _is_columnar(self, block: ColumnBlock) -> bool:
        return self._versions.is_reducible(block) and self.rows.is_whole(block)

    def _fitting(self, place: TopicPartition, messages: pa.Table, skip: Collection[int]) -> pa.Table:
        """The messages that are not too large; the others are bad ones, which no decoder sees."""
        large = _too_large(messages, self._job.options.max_bytes)
        if not large:
            return messages
        for number, error in large.items():
            offset = messages.column("offset")[number].as_py()
            if offset in skip:
                self._set_aside()
            else:
                # The value says nothing here: to look into it is what must not happen.
                self._admission.reject(place, offset, error, owners(self._decoder, place.topic, None, error))
        return messages.filter(pa.array([number not in large for number in range(messages.num_rows)]))

    def _read_each(
        self,
        place: TopicPartition,
        chosen: Iterable[int],
        offsets: Ints,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        skip: Skip,
    ) -> None:
        """Decode chosen messages, each on its own."""
        self._place = place
        for number in chosen:
            self._offset, value = int(offsets[number]), values[number]
            spoilt = set(skip.get(self._offset, ()))
            if not spoilt and self._offset in skip:
                self._set_aside()
                continue
            events = self._events(keys[number], value)
            self.found.measures["entries"] += max(1, len(events)) - 1
            if not events:
                self.found.fates[Fate.CONTROL, None] += 1
            for index in range(len(events)):
                self._take(events, index, value, spoilt)

    def _events(self, key: bytes | None, value: bytes | None) -> Sequence[Event | DecodeError]:
        """What a message holds, in order, and an error for each row that cannot be read."""
        try:
            return self._decoder.decode(key, value)
        except TransientError:
            raise  # Also where it is a DecodeError: no message is bad because the registry refuses a log-in.
        except BatchRefused as error:
            return error.events
        except DecodeError as error:
            return (error,)

    def _take(
        self, events: Sequence[Event | DecodeError], index: int, value: bytes | None, spoilt: set[TableName]
    ) -> None:
        """Take a part of a message, unless it is a row of a table of which another one in it is bad."""
        place, offset, event = self._place, self._offset, events[index]
        try:
            if type(event) is RowChange:
                if event.name in spoilt:
                    self._set_aside(event.name)
                else:
                    self.rows.take_row(event, place, offset, index)
            elif isinstance(event, DecodeError):
                raise event
            else:
                self._take_control(event, place, offset, index)
        except TransientError:
            raise
        except DecodeError as error:
            if isinstance(event, Bootstrap):
                error.concern(event.version.name)
            row = next((other for other in events[index:] if isinstance(other, RowChange)), None)
            if row is not None and not isinstance(event, (DecodeError, SchemaChange)):
                error.concern(row.name, row.commit_ts)
            if error.tables and spoilt.issuperset(error.tables):
                self._set_aside(TableName(*error.tables[0]))
                return
            if self._admission.reject(place, offset, error, owners(self._decoder, place.topic, value, error)):
                spoilt.update(error.tables)

    def _set_aside(self, name: TableName | None = None) -> None:
        self.found.fates[Fate.SET_ASIDE, name] += 1

    def _take_control(self, event: Event, place: TopicPartition, offset: int, index: int) -> None:
        match event:
            case Resolved(ts):
                self.found.resolve(place, ts)
                self.found.fates[Fate.CONTROL, None] += 1
            case Bootstrap(version):
                self._take_version(version, place, announced=True)
                self.found.fates[Fate.CONTROL, None] += 1
            case SchemaChange():
                self._take_ddl(event, place, offset, index)

    def _take_version(self, version: TableVersion, place: TopicPartition, *, announced: bool) -> None:
        name, found = version.name, self.found
        known = self._versions.get(name, version.version)
        version = version.declared(known)
        refuse_rekeyed(known, version)
        is_new = known is None or known != version or known.fingerprints != version.fingerprints
        is_new |= announced and found.topics.get(name) != place.topic
        if not is_new or not self._admission.admits(name):
            return
        refuse_nul(version)
        self._versions.learn(version)
        found.versions[name, version.version] = version
        # A RENAME carries the table under its new name, but goes to the topic of the old one.
        if announced:
            found.topics[name] = place.topic

    def _take_ddl(self, change: SchemaChange, place: TopicPartition, offset: int, index: int) -> None:
        if not (change.commit_ts or self._job.order.by_place) and self._job.upto >= 0:
            raise undated_ddl()
        fate = Fate.CONTROL
        if change.after is not None:
            self._take_version(change.after, place, announced=False)
        if change.commit_ts > self._job.upto:
            # It is reported all the same: a DDL may be the last that its topic ever says.
            self.found.hold(place, offset)
            fate = Fate.HELD
        self.found.fates[fate, None] += 1
        self.found.barriers.append(Barrier(change, place.topic, Position(place.partition, offset, index)))


def _beside(blocks: Sequence[ColumnBlock]) -> int:
    """How many rows of blocks lie beside another one in their message."""
    several = [block.places for block in blocks if block.indexes is not None]
    return sum(map(len, several)) - len(np.unique(np.concatenate(several))) if several else 0


def _too_large(messages: pa.Table, limit: int) -> dict[int, DecodeError]:
    """Number of each message that is larger than a limit or that the driver cannot hold, and the error that says so."""
    keys, values = (messages[name] for name in ("key", "value"))
    found = {
        number: DecodeError("It does not fit into the memory of the driver once it is decompressed.", _MEMORY_HINT)
        for number in np.flatnonzero(np.asarray(pc.equal(values, _STAND_IN).fill_null(False))).tolist()
    }
    if messages.nbytes > limit:
        sizes = _sizes(keys) + _sizes(values)
        for number in np.flatnonzero(sizes > limit).tolist():
            what = f"It holds {sizes[number]:,} bytes; source.max_message_bytes is {limit:,}."
            found[number] = DecodeError(what, LIMIT_HINT)
    return found


def _sizes(column: pa.ChunkedArray[pa.BinaryScalar]) -> npt.NDArray[np.int64]:
    return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
