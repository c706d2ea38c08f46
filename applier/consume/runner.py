"""Runs row passes over the messages of a window: in this process, in others of this machine, or in Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from applier.changefeed.message import Messages
from applier.changefeed.window import Window
from applier.consume.source import KeepingPass, KeptRows, R, RowPass, Source
from applier.consume.tasks.spark import TaskRows, TasksFullError
from applier.consume.window_size import WindowTooLargeError
from applier.consume.workers.pool import WorkerPool
from applier.runtime.logs import logger
from applier.runtime.places import Placement, Places, Where

T = TypeVar("T")

_MOST_PROCESSES = 4
"""Processes of this machine that decode what this one reads, this one included; never more than processors."""


class Ran(NamedTuple, Generic[R]):
    """What each process returned in a row pass, and the rows that Spark's tasks keep; None if all came here."""

    results: list[R]
    kept: KeptRows | None = None


class Runner:
    """Runs row passes over the messages of a source: in this process, in others of this machine, or in Spark's tasks.

    `places` decides where rows run.
    """

    def __init__(self, source: Source, tasks: TaskRows, places: Places) -> None:
        self.places = places
        self._source = source
        self._tasks = tasks
        self._pool = WorkerPool(min(_MOST_PROCESSES, tasks.slots, os.cpu_count() or 1))
        self._heavy: Window | None = None

    @property
    def source(self) -> Source:
        """What messages there are."""
        return self._source

    @property
    def shares(self) -> int:
        """What `source.messages_per_step` allows counts so many times.

        Two for each slot of the executors that are alive, as all of them wait while the driver plans the jobs of a
        window and commits. Each slot has several tasks, so that Spark asks for more executors where it may, and the
        next window is larger.
        """
        return 2 * self._tasks.slots if self.places.has_tasks and self.source.parts_partitions else 1

    def placement(self, window: Window, size: float, most: int, behind: int) -> Placement:
        """Where a window is decoded, as `Places.of_window`; so many messages wait in its partitions `behind` it.

        Processes that were not needed for a while end.
        """
        self._pool.tend()
        waiting = window.messages + behind
        return self.places.of_window(window.messages, size, most, waiting, is_started=self._pool.is_started)

    def read(self, window: Window) -> Messages:
        """The messages of a window whose row passes run here at once; see `Source.read`."""
        self._tasks.drop()
        return self.source.read(window)

    def run(self, window: Window, job: KeepingPass[R], where: Where) -> Ran[R]:
        """Run a job over the messages of a window that is not read here at once.

        The job gets the messages of a partition in offset order, a part at a time: in one process, or in several whose
        results are in this order. It must be picklable, as what it returns must be.

        Raises:
            TransientError: The source does not answer, or tasks failed for a reason that may pass.
            WindowTooLargeError: A process met more bytes than it may read.
        """
        self._tasks.drop()
        with self.source.reading():
            if where is not Where.TASKS or window == self._heavy:
                return Ran(self._in_chunks(window, job, is_alone=where is not Where.PROCESSES))
            try:
                return Ran(*self._tasks.run(self.source.blocks(window, job.limits, self._tasks.slots), job))
            except TasksFullError as full:
                shown = [str(place) for place in sorted(window.ranges)]
                said = {"reason": str(full), "partitions": shown, "messages": window.messages}
                logger().warning("tasks cannot decode a window", **said)
            if window.messages > job.limits.here:
                # What is a share of it for each of many tasks is more than this process holds.
                raise WindowTooLargeError(0, 0)
            self._heavy = window
            return Ran(self._in_chunks(window, job, is_alone=True))

    def _in_chunks(self, window: Window, job: RowPass[R], *, is_alone: bool) -> list[R]:
        return self._pool.run(window, job, ahead(self.source.chunks(window)), is_alone=is_alone)

    def close(self) -> None:
        """Let the rows go that tasks keep, and end the other processes."""
        self._tasks.drop()
        self._pool.close()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make items in a thread, one more than was asked for; an exception is raised in place of its item."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # it is not `end`
