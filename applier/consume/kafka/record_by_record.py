"""Reads messages one at a time, where those of one fetch do not fit into memory once they are decompressed.

Kafka shows the size of a message only after it has decompressed it, so nothing warns of one of 36 KB that becomes
700 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from applier.changefeed.message import TopicPartition
from applier.consume.kafka.records import KafkaRecords
from applier.runtime.permanent_errors import chain_of

_MOST_RECORDS = 1_000
"""Records to read one at a time before the usual consumer goes on: what follows a large one may well fit again."""

MOST_BYTES = 16 * 2**20
"""Bytes to read so, of all partitions: what is read before a chunk is handed on must fit into one array."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether a call failed because the heap of the JVM, or one array, cannot hold what it makes."""
    return isinstance(error, MemoryError) or any(cause.kind == "OutOfMemoryError" for cause in chain_of(error))


@dataclass(frozen=True, slots=True)
class RecordByRecord:
    """One partition, read by a consumer of its own.

    Args:
        consumer: A `KafkaConsumer` of this partition alone, with `max.poll.records` = 1.
        place: The partition.
        java_place: Java's name of it.
        wait: How long a poll waits; a `java.time.Duration`.
    """

    consumer: Any
    place: TopicPartition
    java_place: Any
    wait: Any

    def read(self, start: int, end: int, records: KafkaRecords, most: int) -> int:
        """Read up to an offset, or until a record does not fit alone; that one is taken as unreadable.

        Args:
            start: Offset that the consumer reads next.
            end: Offset to end before.
            records: Takes what is read.
            most: Bytes that these may have before another one is read.

        Returns:
            The offset to read next.
        """
        at = start
        for _ in range(_MOST_RECORDS):
            if at >= end or records.bytes >= most:
                break
            try:
                came = records.add(self.consumer.poll(self.wait))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                records.add_unreadable(self.place, at)
                return at + 1
            if not came:
                break
            at = int(self.consumer.position(self.java_place))
        return at
