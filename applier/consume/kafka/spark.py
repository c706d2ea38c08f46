"""Reads topics in Spark's tasks, by the consumer that the driver has: what comes to Python is blocks of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from applier.changefeed.message import PartitionMessages
from applier.changefeed.window import Window
from applier.consume.kafka import client, java
from applier.consume.kafka.records import block_messages

_MOST_RECORDS = 10_000
"""Records that a poll may give, decompressed: an executor has less memory than the driver, and several tasks."""

_LEAST_POLLS = 8
"""Polls of a task at the least: what one gives is in the memory of the JVM at once, twice."""


def topic_blocks(
    spark: SparkSession, windows: Sequence[Window], options: Mapping[str, str], at_once: int
) -> RDD[bytes]:
    """Blocks of messages, which `in_blocks` reads; a task reads each window, none of which is empty.

    The options are those of Kafka's clients. A task reads `at_once` messages at the most, as large as those before.
    """
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - the one way to Kafka's clients
    most = max(len(window.ranges) for window in windows)
    # No number of bytes limits a poll: Kafka counts them compressed.
    records = max(1, min(_MOST_RECORDS, at_once // _LEAST_POLLS))
    own = java.consumer_properties(jvm, client.in_bulk(options, most, records))
    reader = java.named(jvm, "applier.TopicReader")(own, int(client.SILENT_SECONDS * 1000))
    texts = context._jsc.parallelize(java.listed(jvm, map(_text, windows)), len(windows))  # noqa: SLF001 - as above
    return RDD(texts.mapPartitions(reader), context, NoOpSerializer())


def in_blocks(blocks: Iterable[bytes]) -> Iterator[PartitionMessages]:
    """The messages of `topic_blocks`."""
    return map(block_messages, blocks)


def _text(window: Window) -> str:
    return "\n".join(
        f"{place.topic} {place.partition} {span.start} {span.end}" for place, span in window.ranges.items()
    )
