"""The contract of a source of messages, the same for Kafka and for archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.message import Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import Limits

R = TypeVar("R")

RowPass: TypeAlias = Callable[[Iterable[PartitionMessages]], R]
"""What runs in a task: it takes messages and returns what they hold."""


PieceId: TypeAlias = tuple[int, int, int]
"""A piece of rows that a task keeps: number of the task, of the part in it and of the piece in that."""


StageWork: TypeAlias = Callable[[int, Mapping[PieceId, pa.Buffer]], Any]
"""Work on pieces that were brought to one task: takes its number and the rows of each, as an Arrow IPC stream."""


class KeepingPass(Protocol[R]):
    """A job whose rows may stay in the task that found them."""

    @property
    def limits(self) -> Limits:
        """What each task may take of a window."""

    def __call__(self, parts: Iterable[PartitionMessages], /) -> R:
        """See `RowPass`."""

    def apart(self, found: R, task: int) -> Iterable[Iterable[pa.Table]]:
        """Leave the rows out of what a task found, and return them: for each part of them its pieces."""


class KeptRows(Protocol):
    """Rows that the tasks of a row pass keep."""

    @property
    def slots(self) -> int:
        """Tasks that run at once."""

    def collect(self) -> Mapping[PieceId, pa.Buffer]:
        """All pieces, in this process."""

    def stage(self, routes: npt.NDArray[np.int32], work: StageWork) -> dict[int, Any]:
        """See `TaskRows.stage`."""


class Blocks(NamedTuple):
    """Messages of a window for Spark's tasks: an RDD, and what reads the messages of each of its partitions."""

    rdd: Any
    messages: Callable[[Iterable[Any]], Iterable[PartitionMessages]]


class Source(Protocol):
    """What messages there are, and how they are read. Reading has no effect on the source and may be repeated.

    Every method raises TransientError if the source does not answer, and SourceLost if a topic or its offsets are gone.

    Attributes:
        parts_partitions: Several tasks may each read a part of a partition.
    """

    parts_partitions: bool

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of every partition, now."""

    def topic_ids(self) -> Mapping[str, str]:
        """What distinguishes each topic from another of its name, where the source shows it; {} where it does not."""

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> Mapping[TopicPartition, int] | None:
        """Up to which commit ts partitions hold nothing that was not read, where some were read up to these offsets.

        None where only messages show that. A source that has been `applied` beyond what it holds raises SourceLost.
        """

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """The first offset of each partition whose record is of a Unix time or later, or untimed; else its end."""

    def collect(self, window: Window) -> Messages:
        """Look up some messages in the driver."""

    def read(self, window: Window) -> Messages:
        """The messages of a small window in the driver, as `collect`; the next one is likely to begin where it ends."""

    def chunks(self, window: Window) -> Iterator[Messages]:
        """The same of a window that may be large, a part at a time; each partition in offset order."""

    def blocks(self, window: Window, limits: Limits, slots: int) -> Blocks:
        """The same for Spark's tasks, of which so many run at once; what reads them is picklable."""

    def show_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Show the source, and its tools where they are to know, how far the changefeed is; no failure is raised."""

    def reading(self) -> AbstractContextManager[None]:
        """Raises what Spark and Kafka raise in it as errors of the source."""
