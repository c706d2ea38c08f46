"""Decides where rows run: in this process, in others of this machine, or in Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Where(StrEnum):
    """Where rows run."""

    HERE = "here"
    """In this process, all at once."""
    IN_CHUNKS = "in chunks"
    """In this process, a chunk at a time: they may be more than its memory holds."""
    PROCESSES = "processes"
    """The same, with other processes of this machine that share the partitions."""
    TASKS = "tasks"
    """In Spark's tasks, where rows stay until they are files."""


_NO_TASKS = "no task of Spark runs elsewhere"


class Placement(NamedTuple):
    """Where rows run, and why, as a clause for the log."""

    where: Where
    because: str


@dataclass(frozen=True, slots=True)
class Places:
    """The thresholds between places, and the one function that compares with them.

    Attributes:
        has_tasks: Rows may stay in Spark's tasks: they run on other machines, or the configuration says so.
        is_forced: Also a small window is decoded there.
        window_bytes: Bytes of messages of a window up to which they are read here at once: a job of Spark costs more.
        process_messages: So many messages that wait are worth other processes: each takes a second of CPU to start.
        staged_bytes: Bytes of decoded rows, which tasks keep, up to which they come here to be staged.
        file_bytes: Bytes of data files up to which they are read or written anew here.
    """

    has_tasks: bool = False
    is_forced: bool = False
    window_bytes: int = 64 << 20
    process_messages: int = 500_000
    staged_bytes: int = 2 << 20
    file_bytes: int = 4 << 20

    def of_window(self, messages: int, size: float, most: int, waiting: int, *, is_started: bool) -> Placement:
        """Where a window of so many messages is decoded.

        They have `size` bytes, if they are as the last ones were, and a step may read `most`. With those behind it, so
        many messages are `waiting` in its partitions. Other processes of this machine may be there already.
        """
        if not messages:
            # A job at each look that finds nothing would keep the executors that wait for it.
            return Placement(Where.HERE, "it has no message")
        limit = min(self.window_bytes, most)
        if self.has_tasks or size <= limit:
            return self._choose(size, limit, is_forced=self.is_forced)
        if is_started or waiting >= self.process_messages:
            return Placement(Where.PROCESSES, f"{waiting} messages wait, and {_NO_TASKS}")
        return Placement(Where.IN_CHUNKS, _NO_TASKS)

    def of_rows(self, size: float) -> Placement:
        """Where rows are staged that tasks have decoded."""
        return self._choose(size, self.staged_bytes)

    def of_files(self, size: float, *, is_by_java: bool) -> Placement:
        """Where data files are read or written anew; the driver's Java alone may reach them."""
        return self._choose(size, self.file_bytes, is_by_java=is_by_java)

    def _choose(self, size: float, least: int, *, is_forced: bool = False, is_by_java: bool = False) -> Placement:
        if is_by_java:
            return Placement(Where.HERE, "only Java reaches the storage, and tasks have none")
        if size <= least and not is_forced:
            return Placement(Where.HERE, f"{size:.0f} bytes are at most {least}")
        if not self.has_tasks:
            return Placement(Where.HERE, _NO_TASKS)
        because = "source.engine is spark" if size <= least else f"{size:.0f} bytes are above {least}"
        return Placement(Where.TASKS, because)
