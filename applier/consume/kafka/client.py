"""Kafka's own consumer, in the JVM that Spark runs in: the messages of a window.

A Spark job that reads some thousand messages costs more than decoding and committing them, and the first job costs ten
times as much. A consumer is the same code with the same options, stays connected, and needs no job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.kafka import java
from applier.consume.kafka.records import KafkaRecords, RecordFile
from applier.consume.window_size import NO_LIMIT, WindowTooLargeError
from applier.runtime.logs import logger
from applier.runtime.permanent_errors import chain_of

FETCH_SIZE = "max.partition.fetch.bytes"

_AHEAD_BYTES = 64 * 2**20
_LARGEST_BYTES = 4 * 2**20
_SMALLEST_BYTES = 64 * 2**10

_MOST_RECORDS = 100_000
"""Records that a poll may give: all that was fetched, and not 500 of them."""

_POLL_MS = 1_000
SILENT_SECONDS = 60.0
"""Without any progress for so long the brokers count as gone."""

_MOST_BYTES = 2**28
"""Bytes of values that become one array at the most: Arrow's places in it have 31 bits."""

_MOST_ALONE = 1_000
"""Records to read one at a time before the usual consumer goes on: what follows a large one may well fit again."""

_ALONE_BYTES = 16 * 2**20
"""Bytes to read so, of all partitions: what is read before a chunk is handed on must fit into one array."""


class KafkaSilentError(Exception):
    """Kafka has messages, and sent none for a minute."""


@dataclass(frozen=True, slots=True)
class Overfetch:
    """Messages of one partition that were read together. What lies beyond a window is kept: the next one begins there.

    Attributes:
        span: The offsets that were read, also those that hold no message.
        messages: The messages at them, by offset: `MESSAGE_SCHEMA`.
    """

    span: OffsetRange
    messages: pa.Table

    def within(self, end: int) -> pa.Table:
        """The messages before an offset."""
        return self.messages.slice(0, self._count(end))

    def beyond(self, end: int) -> Overfetch | None:
        """What is left of it from an offset on, in memory of its own; None if that is nothing."""
        if end >= self.span.end:
            return None
        # A slice would keep all that was read with it in memory, up to the next window of the partition.
        rest = self.messages.take(np.arange(self._count(end), self.messages.num_rows))
        return Overfetch(OffsetRange(max(end, self.span.start), self.span.end), rest)

    def _count(self, end: int) -> int:
        return int(np.searchsorted(self.messages["offset"].to_numpy(), end))


class ForwardConsumer:
    """A consumer whose reads each begin where the last one ended, as a rule. Options are those of Kafka's clients.

    Attributes:
        java: Kafka's own consumer, once a read has begun.

    Every method raises Py4JJavaError with what Kafka's client raised.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._options = options
        self.java: Any = None
        self._fetch_size = 0
        self._places: dict[TopicPartition, Any] = {}
        self._at: dict[TopicPartition, int] = {}
        self._others: dict[TopicPartition, int] = {}

    def begin(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Go to an offset of each of some partitions, and read no others; returns Java's names of these.

        Others stay assigned: what was fetched of them would be lost.
        """
        # A read that does not come to its end leaves no position that is certain.
        at, self._at = self._at, {}
        places = self._places if at else {}
        number = len({*places, *starts})
        if self.java is None or fetch_size(number) < self._fetch_size:
            self.close()
            self.java, self._fetch_size = java.consumer(self._jvm, in_bulk(self._options, number)), fetch_size(number)
            # It knows no position of those that this read leaves out, and would refuse to read beside them.
            at, places = {}, {}
        new = java.places(self._jvm, (place for place in starts if place not in places))
        self._others, self._places = at, places | new
        if new or not at:
            self.java.assign(java.listed(self._jvm, self._places.values()))
        chosen = {place: self._places[place] for place in starts}
        self.java.pause(self.java.assignment())
        self.java.resume(java.listed(self._jvm, chosen.values()))
        for place, offset in starts.items():
            if place in new or at.get(place) != offset:
                self.java.seek(chosen[place], offset)
        return chosen

    def end(self, positions: Mapping[TopicPartition, int]) -> None:
        """Record that a read ended, with the offset to read next of each partition."""
        self._at = {**self._others, **positions}

    def close(self) -> None:
        """End the connections; the next read makes new ones."""
        if self.java is not None:
            self.java.close(java.duration(self._jvm, java.CLOSE_MS))
        self.java = None


def in_bulk(options: Mapping[str, str], partitions: int, records: int = _MOST_RECORDS) -> dict[str, str]:
    """Options of a consumer that reads so many partitions as fast as it can, and gives so many records at once."""
    return {FETCH_SIZE: str(fetch_size(partitions)), **options, "max.poll.records": str(records)}


def fetch_size(partitions: int) -> int:
    """Bytes that a broker may send of a partition at once, so that those of all fit into memory.

    With Kafka's 1 MiB and few partitions, requests take a third of the reading time.
    """
    share = _AHEAD_BYTES >> max(0, partitions - 1).bit_length()
    return min(_LARGEST_BYTES, max(_SMALLEST_BYTES, share))


class KafkaClient:
    """The consumer of one cluster, with the options of Kafka's clients; `read` may hold `most_bytes` of messages.

    A window that begins elsewhere than where the last one of its partitions ended throws away what was fetched ahead.

    Every method raises Py4JJavaError with what Kafka's client raised.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str], most_bytes: int = NO_LIMIT) -> None:
        self.jvm, self.options, self.most_bytes = jvm, options, most_bytes
        self._consumer = ForwardConsumer(jvm, options)
        self._file: RecordFile | None = None
        self._overfetch: dict[TopicPartition, Overfetch] = {}
        self._at: dict[TopicPartition, int] = {}

    def read(self, window: Window) -> Messages:
        """The messages of a window.

        Raises:
            KafkaSilentError: Nothing came for a minute.
            WindowTooLargeError: The messages have more bytes than a step may read.
        """
        found: Messages = {}
        for chunk in self.chunks(window, min(_MOST_BYTES, self.most_bytes)) if window.ranges else ():
            found = _joined(found, chunk)
            size = sum(messages.nbytes for messages in found.values())
            if size > self.most_bytes and window.messages > 1:
                raise WindowTooLargeError(size, sum(messages.num_rows for messages in found.values()))
        return found

    def chunks(self, window: Window, size: int) -> Iterator[Messages]:
        """The messages of a window, handed on whenever their values have `size` bytes or more. See `read`."""
        left, tables, reached = self._begin(window)
        self._file = self._file or RecordFile(self.jvm)
        while True:
            records = KafkaRecords(self._file)
            while left and records.bytes < size:
                reached |= self._poll(window, left, records)
            yield self._inside(window, _joined(tables, records.tables()), reached)
            if not left:
                self._consumer.end(self._at)
                return
            tables, reached = {}, {}

    def _begin(
        self, window: Window
    ) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, pa.Table], dict[TopicPartition, int]]:
        """Go to the start of a window, or behind what was kept of it.

        Returns Java's names of the partitions that are to be read, the messages that were kept, and the offsets to read
        next of the partitions that need no more than these.
        """
        kept: dict[TopicPartition, pa.Table] = {}
        reached: dict[TopicPartition, int] = {}
        for place, span in window.ranges.items():
            overfetch = self._overfetch.pop(place, None)
            reached[place] = span.start
            if overfetch is not None and overfetch.span.start == span.start:
                kept[place], reached[place] = overfetch.messages, overfetch.span.end
        self._at = dict(reached)
        left = self._consumer.begin(reached)
        return left, kept, self._taken_out(window, left, reached)

    def _poll(
        self, window: Window, left: dict[TopicPartition, Any], records: KafkaRecords
    ) -> dict[TopicPartition, int]:
        """Wait for what comes next, and take the partitions that were read to their ends out of `left`.

        Returns the offsets to read next of these.
        """
        deadline = time.monotonic() + SILENT_SECONDS
        while time.monotonic() < deadline:
            came = self._add_next(window, left, records)
            # Where the last offsets hold no message, the position alone shows that they were read.
            asked = came or {place: int(self._consumer.java.position(at)) for place, at in left.items()}
            reached = {place: at for place, at in asked.items() if place in left}
            self._at |= reached
            ended = self._taken_out(window, left, reached)
            if came or ended:
                return ended
        raise KafkaSilentError

    def _taken_out(
        self, window: Window, left: dict[TopicPartition, Any], reached: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        ended = {place: at for place, at in reached.items() if at >= window.ranges[place].end}
        if ended:
            self._consumer.java.pause(java.listed(self.jvm, [left.pop(place) for place in ended]))
        return ended

    def _add_next(
        self, window: Window, left: Mapping[TopicPartition, Any], records: KafkaRecords
    ) -> dict[TopicPartition, int]:
        """Take what the next poll brings; one record at a time where all of it does not fit into memory.

        Kafka shows the size of a message only after it has decompressed it, so nothing warns of one of 36 KB that
        becomes 700 MB.

        Returns the next offsets of the partitions that it read.
        """
        try:
            return records.poll(self._consumer.java, _POLL_MS)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        logger().warning("messages do not fit into memory together", partitions=[str(place) for place in sorted(left)])
        # What it fetched is lost with it, and no position of its is certain.
        self._consumer.close()
        before, most = dict(self._at), records.bytes + _ALONE_BYTES
        for place, java_place in left.items():
            if records.bytes < most:
                self._at[place] = self._read_alone(place, java_place, window.ranges[place].end, records, most)
        self._consumer.begin({place: self._at[place] for place in left})
        return {place: self._at[place] for place in left if self._at[place] > before[place]}

    def _read_alone(self, place: TopicPartition, java_place: Any, end: int, records: KafkaRecords, most: int) -> int:
        """Read some records of one partition one by one; returns the offset to read next."""
        consumer = java.consumer(self.jvm, {**self.options, "max.poll.records": "1"})
        try:
            consumer.assign(java.listed(self.jvm, [java_place]))
            consumer.seek(java_place, self._at[place])
            span = OffsetRange(self._at[place], end)
            return read_one_by_one(consumer, place, span, records, most)
        finally:
            consumer.close(java.duration(self.jvm, java.CLOSE_MS))

    def _inside(self, window: Window, tables: Messages, reached: Mapping[TopicPartition, int]) -> Messages:
        """The messages of a window among what was read; the rest is kept for the next one.

        `reached` has the offsets to read next of the partitions that were read to their ends.
        """
        chunk = {}
        for place, messages in tables.items():
            span = window.ranges[place]
            read = Overfetch(OffsetRange(span.start, reached.get(place, span.end)), messages)
            chunk[place] = read.within(span.end)
            if rest := read.beyond(span.end):
                self._overfetch[place] = rest
        return chunk

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()
        if self._file is not None:
            self._file.close()
        self._file = None
        self._overfetch.clear()


def _joined(first: Messages, then: Messages) -> Messages:
    places = sorted({*first, *then})
    return {place: pa.concat_tables([part[place] for part in (first, then) if place in part]) for place in places}


def is_out_of_memory(error: Exception) -> bool:
    """Whether a call failed because the heap of the JVM, or one array, cannot hold what it makes."""
    return any(cause.kind == "OutOfMemoryError" for cause in chain_of(error))


def read_one_by_one(consumer: Any, place: TopicPartition, span: OffsetRange, records: KafkaRecords, most: int) -> int:
    """Read a span of offsets, up to the record that does not fit alone, which counts as unreadable; returns the next.

    The consumer is one of this partition alone, with `max.poll.records` = 1, at the start of the span. No other
    record is read once `records` has `most` bytes.
    """
    at = span.start
    for _ in range(_MOST_ALONE):
        if at >= span.end or records.bytes >= most:
            break
        try:
            came = records.poll(consumer, _POLL_MS)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            records.add_unreadable(place, at)
            return at + 1
        if not came:
            break
        at = came[place]
    return at
