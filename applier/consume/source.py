"""The contract of a source of messages, the same for Kafka and for archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.message import Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import Limits

R = TypeVar("R")

Job: TypeAlias = Callable[[Iterable[PartitionMessages]], R]
"""What runs in a task: it takes messages and returns what they hold."""


PieceId: TypeAlias = tuple[int, int, int]
"""A piece of rows that a task keeps: number of the task, of the part in it and of the piece in that."""


StageWork: TypeAlias = Callable[[int, Mapping[PieceId, pa.Buffer]], Any]
"""Work on pieces that were brought to one task: takes its number and the rows of each, as an Arrow IPC stream."""


class KeepingJob(Protocol[R]):
    """A job whose rows may stay in the task that found them."""

    @property
    def limits(self) -> Limits:
        """What each task may take of a window."""

    def __call__(self, parts: Iterable[PartitionMessages], /) -> R:
        """See `Job`."""

    def apart(self, found: R, task: int) -> Iterable[Iterable[pa.Table]]:
        """Leave the rows out of what a task found, and return them: for each part of them its pieces."""


class KeptRows(Protocol):
    """The rows that the tasks of the last row pass keep."""

    @property
    def slots(self) -> int:
        """Tasks that run at once."""

    def collect(self) -> Mapping[PieceId, pa.Buffer]:
        """All pieces, in this process."""

    def stage(self, routes: npt.NDArray[np.int32], work: StageWork) -> dict[int, Any]:
        """See `TaskRows.stage`."""


class Source(Protocol):
    """Where messages are read. Reading has no effect on the source and may be repeated.

    Every method raises TransientError if the source does not answer, and SourceLost if a topic or its offsets are gone.

    Attributes:
        kept: The rows that the tasks of the last `map` keep; None if they came to the driver.
    """

    @property
    def kept(self) -> KeptRows | None:
        """See the class."""

    @property
    def shares(self) -> int:
        """What `source.messages_per_step` allows counts so many times for a window of `map`, now."""

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

    def map(self, window: Window, job: KeepingJob[R]) -> list[R]:
        """Run a job over the messages of a window in several tasks; returns what each of them returned.

        The job gets the messages of a partition in offset order, a part at a time: in one task, or in several whose
        results are in this order. It is sent to the tasks, so it must be picklable, as what it returns must be.

        Raises:
            TransientError: The source does not answer, or tasks failed for a reason that may pass.
            WindowTooLargeError: A task met more bytes than it may read.
        """
