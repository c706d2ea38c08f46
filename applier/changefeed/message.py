"""Messages: Kafka records as they were read, undecoded, and their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

MESSAGE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]  # type: ignore[arg-type]  # the stubs know no list of fields of several types
)
"""Columns of a frame of messages, the same from Kafka and from an archive."""

MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of one message beyond which it is refused, unless the configuration allows more. A row of TiDB has 6 MiB at the
most by default, and JSON with old values writes ten times that of it at the worst."""

UNREADABLE = b"\xffapplier: this message does not fit into memory once it is decompressed\xff"
"""The value of such a message, in place of what it holds: neither JSON nor Avro begins so. No decoder sees it."""

HIDDEN = b"\xffapplier: this message is not kept, as the configuration hides columns\xff"
"""The value of a dead letter in place of one that may hold hidden values; the message is read again where it lies."""

MESSAGE_ORDER: list[tuple[str, Literal["ascending", "descending"]]] = [
    ("topic", "ascending"),
    ("partition", "ascending"),
    ("offset", "ascending"),
]
"""Order of collected messages."""


Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number that is not negative: a checkpoint with another is damaged."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: Count

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


Messages: TypeAlias = Mapping[TopicPartition, pa.Table]
"""Messages of some partitions in their order, each by offset: `MESSAGE_SCHEMA`."""

PartitionMessages: TypeAlias = tuple[TopicPartition, pa.Table]
"""Messages of one partition, by offset."""


def by_place(messages: pa.Table) -> Iterator[PartitionMessages]:
    """Runs of messages of one partition, of a table that may hold those of several, as Spark's tasks and files do."""
    if not messages.num_rows:
        return
    topics = messages["topic"].combine_chunks().dictionary_encode()
    partitions = messages["partition"].to_numpy()
    changes = (np.diff(partitions) != 0) | (np.diff(topics.indices.to_numpy()) != 0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), messages.num_rows]
    for start, end in pairwise(starts):
        topic: Any = topics.dictionary[topics.indices[start].as_py()].as_py()
        yield TopicPartition(topic, int(partitions[start])), messages.slice(start, end - start)


def in_rows(batch: pa.RecordBatch) -> Iterator[PartitionMessages]:
    """As `by_place`, of a batch."""
    return by_place(pa.Table.from_batches([batch]))


def rows_of(messages: Messages) -> list[dict[str, Any]]:
    """Messages as dictionaries, where there are few of them."""
    return [row for table in messages.values() for row in table.to_pylist()]


class Position(NamedTuple):
    """Position of one event: partition, offset in it, place within the message. Ordered."""

    partition: int
    offset: int
    place: int
