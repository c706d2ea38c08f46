"""Shares out the partitions of a window among processes, which decode them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import Window
from applier.consume.source import R, RowPass
from applier.consume.workers.transport import outcome, settled
from applier.consume.workers.worker import Worker

_IDLE_SECONDS = 60.0
"""After so long without a window the other processes end."""


class WorkerPool:
    """This process and the others that it starts, at most `size` in all."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[Worker] = []
        self._last = 0.0

    @property
    def is_started(self) -> bool:
        """Whether other processes are there."""
        return bool(self._workers)

    def run(self, window: Window, job: RowPass[R], chunks: Iterator[Messages], *, is_alone: bool = False) -> list[R]:
        """Run a job in each process, over the messages of its partitions; returns what each of them returned.

        `chunks` holds the messages of the window; one that `is_alone` takes this process only. See `Runner.run`.

        Raises:
            TransientError: A process is gone, or cannot be started; or a job could not go on.
            WindowTooLargeError: A job met more bytes than it may read.
            TerminalError: A job failed in another process.
        """
        # The last share is the smallest, and this process reads for all of them.
        *others, own = shared_out(window, 1 if is_alone else self._size)
        try:
            while len(self._workers) < len(others):
                self._workers.append(Worker())
            told = list(zip(self._workers, others, strict=False))
            for worker, _ in told:
                worker.begin(job)
            found = [outcome(job, _own(chunks, own, told)), *(worker.finish() for worker, _ in told)]
        except BaseException:
            self.close()  # They have a part of a window.
            raise
        self._last = time.monotonic()
        return settled(found)

    def tend(self) -> None:
        """End the other processes if they have not been needed for a while."""
        if self._workers and time.monotonic() - self._last > _IDLE_SECONDS:
            self.close()

    def close(self) -> None:
        """End the other processes."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()


def shared_out(window: Window, most: int) -> list[set[TopicPartition]]:
    """The partitions of a window in shares of about as many messages, largest first; from one share to `most`."""
    spans = sorted(window.ranges.items(), key=lambda item: (-len(item[1]), item[0]))
    shares: list[set[TopicPartition]] = [set() for _ in range(max(1, min(most, len(spans))))]
    sizes = [0] * len(shares)
    for place, span in spans:
        smallest = sizes.index(min(sizes))
        shares[smallest].add(place)
        sizes[smallest] += len(span)
    return [share for _, share in sorted(zip(sizes, shares, strict=True), key=lambda item: -item[0])]


def _own(
    chunks: Iterator[Messages],
    own: Collection[TopicPartition],
    told: Sequence[tuple[Worker, Collection[TopicPartition]]],
) -> Iterator[PartitionMessages]:
    for chunk in chunks:
        for worker, places in told:
            worker.feed(pa.concat_tables([MESSAGE_SCHEMA.empty_table(), *dict(_of(chunk, places)).values()]))
        yield from _of(chunk, own)


def _of(chunk: Messages, places: Collection[TopicPartition]) -> Iterator[PartitionMessages]:
    return ((place, messages) for place, messages in chunk.items() if place in places)
