"""Reads messages one at a time, where those of one fetch do not fit into memory once they are decompressed.

Kafka shows the size of a message only after it has decompressed it, so nothing warns of one of 36 KB that becomes
700 MB.
"""

from __future__ import annotations

from typing import Any

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.consume.kafka.records import KafkaRecords
from applier.runtime.permanent_errors import chain_of

_MOST_RECORDS = 1_000
"""Records to read one at a time before the usual consumer goes on: what follows a large one may well fit again."""

MOST_BYTES = 16 * 2**20
"""Bytes to read so, of all partitions: what is read before a chunk is handed on must fit into one array."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether a call failed because the heap of the JVM, or one array, cannot hold what it makes."""
    return any(cause.kind == "OutOfMemoryError" for cause in chain_of(error))


def read_one_by_one(
    consumer: Any,
    place: TopicPartition,
    milliseconds: int,
    span: OffsetRange,
    records: KafkaRecords,
    most: int,
) -> int:
    """Read a span of offsets, up to the record that does not fit alone, which counts as unreadable; returns the next.

    The consumer is one of this partition alone, with `max.poll.records` = 1, at the start of the span; a poll of it
    waits for some milliseconds. No other record is read once `records` has `most` bytes.
    """
    at = span.start
    for _ in range(_MOST_RECORDS):
        if at >= span.end or records.bytes >= most:
            break
        try:
            came = records.poll(consumer, milliseconds)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            records.add_unreadable(place, at)
            return at + 1
        if not came:
            break
        at = came[place]
    return at
