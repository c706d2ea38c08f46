"""Kafka's own clients, in the JVM that Spark runs in: offsets, ids of topics, and the messages of a small window.

A Spark job that reads some thousand messages costs more than all that is done with them, and ten times that where it is
the first one. A consumer is the same code with the same options, stays connected, and needs no job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.kafka.overfetch import Overfetch
from applier.consume.kafka.records import ColumnWriters, KafkaRecords
from applier.consume.source import Chunk

_ADMIN_TIMEOUT_MS = 30_000
_POLL_MS = 1_000
_CLOSE_MS = 1_000
_SILENT_SECONDS = 60.0
"""Without any progress for so long the brokers count as gone."""

_MOST_RECORDS = "100000"
"""Records that a poll may give: all that was fetched, and not 500 of them."""

_MOST_BYTES = 2**28
"""Bytes of values that become one array at the most: Arrow's places in it have 31 bits."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How Kafka writes the id of a topic that has none."""


class KafkaSilentError(Exception):
    """Kafka sent nothing of what it has, for a minute."""


@dataclass(slots=True)
class KafkaClient:
    """One cluster, asked from the driver.

    Every method raises Py4JJavaError with what Kafka's client raised.

    Args:
        jvm: The view of the JVM that py4j gives.
        options: Options of Kafka's clients.
    """

    jvm: Any
    options: Mapping[str, str]
    _admin: Any = field(default=None, init=False)
    _consumer: Any = field(default=None, init=False)
    _writers: ColumnWriters | None = field(default=None, init=False)
    _overfetch: dict[TopicPartition, Overfetch] = field(default_factory=dict, init=False)

    def matching(self, pattern: str) -> list[str]:
        """Topics whose whole name matches a Java regular expression."""
        compiled = self.jvm.java.util.regex.Pattern.compile(pattern)
        return sorted(
            name for name in self._asked().listTopics().names().get().toArray() if compiled.matcher(name).matches()
        )

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of some topics, sorted."""
        return sorted(
            TopicPartition(entry.getKey(), info.partition())
            for entry in self._described(topics)
            for info in entry.getValue().partitions()
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic; brokers before 2.8 give none."""
        ids = {entry.getKey(): str(entry.getValue().topicId().toString()) for entry in self._described(topics)}
        return {topic: found for topic, found in ids.items() if found != _NO_ID}

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of partitions."""
        places, spec = self._java_places(partitions), self._spec()
        starts, ends = self._offsets(places, spec.earliest()), self._offsets(places, spec.latest())
        return {place: OffsetRange(starts[place], ends[place]) for place in places}

    def offsets_at(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """First offset whose record is of a time or later; where there is none, the end."""
        places, spec = self._java_places(partitions), self._spec()
        found, ends = self._offsets(places, spec.forTimestamp(milliseconds)), self._offsets(places, spec.latest())
        # Kafka answers -1 where every record is older.
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}

    def read(self, window: Window) -> pa.Table:
        """The messages of a window: `MESSAGE_SCHEMA`, by topic, partition and offset.

        Raises:
            KafkaSilentError: Nothing came for a minute.
        """
        chunks = list(self.chunks(window, _MOST_BYTES))
        parts = [chunk[place] for place in sorted(window.ranges) for chunk in chunks if place in chunk]
        return pa.concat_tables([MESSAGE_SCHEMA.empty_table(), *parts]).combine_chunks()

    def chunks(self, window: Window, size: int) -> Iterator[Chunk]:
        """The messages of a window, some at a time. See `read`.

        Args:
            window: The window.
            size: Bytes of values from which on a chunk is handed on.
        """
        left, tables, reached = self._begin(window)
        self._writers = self._writers or ColumnWriters(self.jvm)
        while True:
            records = KafkaRecords(self._writers)
            while left and records.bytes < size:
                reached |= self._poll(window, left, records)
            yield self._inside(window, _joined(tables, records.tables()), reached)
            if not left:
                return
            tables, reached = {}, {}

    def _begin(
        self, window: Window
    ) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, pa.Table], dict[TopicPartition, int]]:
        """Go to the start of a window, or behind what was kept of it.

        Returns:
            Java's names of the partitions that are to be read, the messages that were kept, and the offsets to read
            next of the partitions of which that is enough.
        """
        consumer = self._reading()
        left = self._java_places(window.ranges)
        chosen = self._java_list(left.values())
        consumer.assign(chosen)
        # A partition that is assigned again is still paused as the last read left it.
        consumer.resume(chosen)
        kept: dict[TopicPartition, pa.Table] = {}
        reached: dict[TopicPartition, int] = {}
        for place, java_place in left.items():
            span, overfetch = window.ranges[place], self._overfetch.pop(place, None)
            reached[place] = span.start
            if overfetch is not None and overfetch.span.start == span.start:
                kept[place], reached[place] = overfetch.messages, overfetch.span.end
            consumer.seek(java_place, reached[place])
        ended = {place: at for place, at in reached.items() if at >= window.ranges[place].end}
        if ended:
            consumer.pause(self._java_list(left.pop(place) for place in ended))
        return left, kept, ended

    def _poll(
        self, window: Window, left: dict[TopicPartition, Any], records: KafkaRecords
    ) -> dict[TopicPartition, int]:
        """Wait for what comes next, and take the partitions that were read to their ends out of `left`.

        Returns:
            The offsets to read next of those that were taken out.
        """
        consumer = self._reading()
        deadline = time.monotonic() + _SILENT_SECONDS
        while time.monotonic() < deadline:
            came = records.add(consumer.poll(self.jvm.java.time.Duration.ofMillis(_POLL_MS)))
            # Where the last offsets hold no message, the position alone shows that they were read.
            reached = {p: int(consumer.position(left[p])) for p in came or left if p in left}
            ended = {p: at for p, at in reached.items() if at >= window.ranges[p].end}
            if ended:
                consumer.pause(self._java_list(left.pop(place) for place in ended))
            if came or ended:
                return ended
        raise KafkaSilentError

    def _inside(
        self, window: Window, tables: Mapping[TopicPartition, pa.Table], reached: Mapping[TopicPartition, int]
    ) -> Chunk:
        """The messages of a window among what was read; the rest is kept for the next one.

        Args:
            window: The window.
            tables: What was read, by topic and partition.
            reached: The offsets to read next of the partitions that were read to their ends.
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
        for client in (self._admin, self._consumer):
            if client is not None:
                client.close(self.jvm.java.time.Duration.ofMillis(_CLOSE_MS))
        if self._writers is not None:
            self._writers.close()
        self._admin = self._consumer = self._writers = None
        self._overfetch.clear()

    def _asked(self) -> Any:
        if self._admin is None:
            limits = {"default.api.timeout.ms": _ADMIN_TIMEOUT_MS, "request.timeout.ms": _ADMIN_TIMEOUT_MS // 2}
            self._admin = self.jvm.org.apache.kafka.clients.admin.AdminClient.create(self._properties(limits))
        return self._admin

    def _reading(self) -> Any:
        if self._consumer is None:
            # A place to begin is always given: where Kafka does not have it, nobody may choose another.
            fixed = {"enable.auto.commit": "false", "auto.offset.reset": "none", "max.poll.records": _MOST_RECORDS}
            # The bytes stay where they were received: a copy of each record is garbage a moment later.
            as_received = self.jvm.org.apache.kafka.common.serialization.ByteBufferDeserializer
            consumer = self.jvm.org.apache.kafka.clients.consumer.KafkaConsumer
            self._consumer = consumer(self._properties(fixed), as_received(), as_received())
        return self._consumer

    def _properties(self, fixed: Mapping[str, object]) -> Any:
        properties = self.jvm.java.util.Properties()
        for key, value in {**self.options, **fixed}.items():
            properties.setProperty(key, str(value))
        return properties

    def _described(self, topics: Iterable[str]) -> Any:
        return self._asked().describeTopics(self._java_list(topics)).allTopicNames().get().entrySet().toArray()

    def _spec(self) -> Any:
        return self.jvm.org.apache.kafka.clients.admin.OffsetSpec

    def _offsets(self, places: Mapping[TopicPartition, Any], which: Any) -> dict[TopicPartition, int]:
        wanted = self.jvm.java.util.HashMap()
        for java_place in places.values():
            wanted.put(java_place, which)
        found = self._asked().listOffsets(wanted)
        return {place: int(found.partitionResult(java_place).get().offset()) for place, java_place in places.items()}

    def _java_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        java = self.jvm.org.apache.kafka.common
        return {place: java.TopicPartition(place.topic, place.partition) for place in partitions}

    def _java_list(self, items: Iterable[Any]) -> Any:
        java_list = self.jvm.java.util.ArrayList()
        for item in items:
            java_list.add(item)
        return java_list


def _joined(
    first: Mapping[TopicPartition, pa.Table], then: Mapping[TopicPartition, pa.Table]
) -> dict[TopicPartition, pa.Table]:
    """Messages of both, by topic and partition."""
    places = sorted({*first, *then})
    return {place: pa.concat_tables([part[place] for part in (first, then) if place in part]) for place in places}
