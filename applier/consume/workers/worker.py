"""A second process that runs a job over some of the messages, as one of Spark's tasks does, without Spark."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from queue import Full, Queue
from typing import Any, cast

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA
from applier.consume.source import RowPass
from applier.consume.workers.main import DONE, FAILED
from applier.consume.workers.transport import Outcome, unpacked
from applier.errors import TransientError
from applier.runtime.tasks.task_error import defect, is_outage

_WAITING = 2
"""Chunks that may wait for the process; then the reader waits."""

_PIPE_BYTES = 2**20
"""A pipe of 64 KiB wakes both ends sixteen times as often."""

_GONE = "A process that decodes messages ended before its work did{how}."
_NONE = "A process that decodes messages cannot be started: {why}."
_AGAIN = "the step is tried again; if this comes back, see whether the machine runs out of memory."


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
                with suppress(OSError, pa.ArrowInvalid), pa.ipc.open_stream(self._stdout) as answer:
                    return next(unpacked(answer.read_all()))
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
