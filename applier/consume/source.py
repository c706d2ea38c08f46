"""The contract of a source of messages, the same for Kafka and for archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window

R = TypeVar("R")

Job: TypeAlias = Callable[[Iterable[pa.RecordBatch]], R]
"""What runs in a task: messages in, and what they hold out."""

Chunk: TypeAlias = Mapping[TopicPartition, pa.Table]
"""Messages of some partitions, each in the order of its offsets: `MESSAGE_SCHEMA`."""


class Source(Protocol):
    """Where messages are read. Reading has no effect on the source and may be repeated."""

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of every partition, now.

        Raises:
            TransientError: The source does not answer.
            SourceLost: A topic that was asked for does not exist.
        """

    def topic_ids(self) -> Mapping[str, str]:
        """What distinguishes each topic from another of its name, where the source shows it; {} where it does not.

        Raises:
            TransientError: The source does not answer.
            SourceLost: A topic that was asked for does not exist.
        """

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """The first offset of each partition whose record is of a time or later; where there is none, its end.

        Args:
            milliseconds: Unix time. A record without a time counts as one of then.

        Raises:
            TransientError: The source does not answer.
            SourceLost: A topic that was asked for does not exist.
        """

    def collect(self, window: Window) -> pa.Table:
        """The messages of a small window in the driver: `MESSAGE_SCHEMA`, by topic, partition and offset.

        Raises:
            TransientError: The source does not answer.
            SourceLost: The source no longer has the offsets.
        """

    def map(self, window: Window, job: Job[R]) -> list[R]:
        """Run a function over the messages of a window in several tasks; returns what each of them returned.

        Args:
            window: The window.
            job: Called in each task with an iterator of record batches of `MESSAGE_SCHEMA`; each partition comes in
                offset order. It is sent to the tasks, so it must be picklable, as what it returns must be.

        Raises:
            TransientError: The source does not answer, or tasks failed for a reason that may pass.
            WindowTooLargeError: A task met more bytes than it may read.
            SourceLost: The source no longer has the offsets.
        """
