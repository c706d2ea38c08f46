"""The contract of a source of messages, the same for Kafka and for archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from applier.changefeed.message import Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import OffsetRange, Window

R = TypeVar("R")

Job: TypeAlias = Callable[[Iterable[PartitionMessages]], R]
"""What runs in a task: it takes messages and returns what they hold."""


class Source(Protocol):
    """Where messages are read. Reading has no effect on the source and may be repeated.

    Every method raises TransientError if the source does not answer, and SourceLost if a topic or its offsets are gone.
    """

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of every partition, now."""

    def topic_ids(self) -> Mapping[str, str]:
        """What distinguishes each topic from another of its name, where the source shows it; {} where it does not."""

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """The first offset of each partition whose record is of a Unix time or later, or untimed; else its end."""

    def collect(self, window: Window) -> Messages:
        """Look up some messages in the driver."""

    def read(self, window: Window) -> Messages:
        """The messages of a small window in the driver, as `collect`; the next one is likely to begin where it ends."""

    def map(self, window: Window, job: Job[R]) -> list[R]:
        """Run a job over the messages of a window in several tasks; returns what each of them returned.

        The job gets each partition in one task and in offset order, a part at a time. It is sent to the tasks, so it
        must be picklable, as what it returns must be.

        Raises:
            TransientError: The source does not answer, or tasks failed for a reason that may pass.
            WindowTooLargeError: A task met more bytes than it may read.
            ResultTooLargeError: Spark does not hand over so much; if the same window is asked for again, another way is
                taken.
        """
