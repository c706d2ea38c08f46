"""Shares out the partitions of a window among processes, which decode them as Spark's tasks do, without Spark."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from queue import Full, Queue
from typing import Any, cast

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import Window
from applier.consume.source import R, RowPass
from applier.consume.workers.main import DONE, FAILED
from applier.consume.workers.transport import Outcome, outcome, read, settled
from applier.errors import TransientError
from applier.runtime.tasks.task_error import defect, is_outage

_IDLE_SECONDS = 60.0
"""After so long without a window the other processes end."""

_WAITING = 2
"""Chunks that may wait for the process; then the reader waits."""

_PIPE_BYTES = 2**20
"""A pipe of 64 KiB wakes both ends sixteen times as often."""

_GONE = "A process that decodes messages ended before its work did{how}."
_NONE = "A process that decodes messages cannot be started: {why}."
_AGAIN = "the step is tried again; if this comes back, see whether the machine runs out of memory."


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


class Worker:
    """One process. It ends with this one, in whichever way this one ends.

    Raises:
        TransientError: The system cannot start a process.
    """

    def __init__(self) -> None:
        self._process = _started()
        self._stdin = cast("BufferedWriter", self._process.stdin)
        self._stdout = cast("BufferedReader", self._process.stdout)
        for pipe in (self._stdin, self._stdout):
            with suppress(AttributeError, OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._messages: Queue[pa.Table | None] = Queue(_WAITING)
        self._answer: Future[Outcome[Any]] = Future()

    def begin(self, job: RowPass[Any]) -> None:
        """Begin a job. The one before it must have been finished."""
        self._answer = self._thread.submit(self._exchange, job)

    def feed(self, messages: pa.Table | None) -> None:
        """Give messages to the job, or None as their end; waits while messages of the job are left."""
        while not self._answer.done():
            with suppress(Full):
                self._messages.put(messages, timeout=1)
                return

    def finish(self) -> Outcome[Any]:
        """End the messages of the job, and return its outcome.

        Raises:
            TransientError: The process is gone.
            TerminalError: The job failed.
        """
        self.feed(None)
        return self._answer.result()

    def close(self) -> None:
        """End the process; a job that it has is lost."""
        self._process.kill()
        self.feed(None)
        self._thread.shutdown()
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()
        self._process.wait()

    def _exchange(self, job: RowPass[Any]) -> Outcome[Any]:
        # A process that ended may have written the reason.
        with suppress(OSError):
            self._send(job)
        match self._stdout.read(1):
            case kind if kind == DONE:
                with suppress(OSError, EOFError, pickle.UnpicklingError):
                    return read(self._stdout)
            case kind if kind == FAILED:
                said = self._stdout.read().decode(errors="replace")
                raise TransientError(_GONE.format(how=""), _AGAIN) if is_outage(said) else defect(said)
        status = self._process.wait()
        raise TransientError(_GONE.format(how=f", by signal {-status}" if status < 0 else ""), _AGAIN)

    def _send(self, job: RowPass[Any]) -> None:
        pickle.dump(job, self._stdin)
        with pa.ipc.new_stream(self._stdin, MESSAGE_SCHEMA) as writer:
            while (messages := self._messages.get()) is not None:
                writer.write_table(messages)
        self._stdin.flush()


def _started() -> subprocess.Popen[bytes]:
    # Not the folder that this process happens to run in, whose files might have the names of modules.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "applier.consume.workers.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C ends this process, which then ends that one.
        )
    except OSError as error:
        raise TransientError(_NONE.format(why=error.strerror), _AGAIN) from error
