"""Reads topics in Spark's tasks, by the consumer that the driver has: a row of the frame is a block of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.changefeed.message import PartitionMessages
from applier.changefeed.window import Window
from applier.consume.kafka import client, java
from applier.consume.kafka.forward_consumer import in_bulk
from applier.consume.kafka.records import block_messages
from applier.consume.workers.transport import data

_MOST_RECORDS = 10_000
"""Records that a poll may give, decompressed: an executor has less memory than the driver, and several tasks."""

_LEAST_POLLS = 8
"""Polls of a task at the least: what one gives is in the memory of the JVM at once, twice."""


def topic_blocks(spark: SparkSession, windows: Sequence[Window], options: Mapping[str, str], at_once: int) -> DataFrame:
    """A frame of one column of bytes, which `in_blocks` reads; a task reads each window, by Kafka's own client.

    Args:
        spark: The session.
        windows: What the tasks read; none is empty.
        options: Options of Kafka's clients.
        at_once: Messages of a task at the most, as large as those that were read before.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to Kafka's clients
    most = max(len(window.ranges) for window in windows)
    # No number of bytes limits a poll: Kafka counts them compressed.
    records = max(1, min(_MOST_RECORDS, at_once // _LEAST_POLLS))
    own = java.consumer_properties(jvm, in_bulk(options, most, records))
    texts, silent = java.listed(jvm, map(_text, windows)), int(client.SILENT_SECONDS * 1000)
    reader = java.named(jvm, "applier.TopicReader")(own, texts, silent)
    numbers = spark._jsparkSession.range(0, len(windows), 1, len(windows))  # noqa: SLF001 - as above
    as_bytes = java.named(jvm, "org.apache.spark.sql.Encoders").BINARY()
    return DataFrame(numbers.mapPartitions(reader, as_bytes), spark)


def in_blocks(batch: pa.RecordBatch) -> Iterator[PartitionMessages]:
    """The messages of a batch of `topic_blocks`."""
    return map(block_messages, data(pa.chunked_array([batch.column(0)])))


def _text(window: Window) -> str:
    return "\n".join(
        f"{place.topic} {place.partition} {span.start} {span.end}" for place, span in window.ranges.items()
    )
