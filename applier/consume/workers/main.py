"""The program of a `Worker`: it reads jobs and messages on standard input, and writes outcomes to standard output.

It ends when its input does, so it never outlives the process that started it by more than the messages at hand.

Of each job it reads the pickled job and an Arrow stream of messages. It answers `DONE` and the outcome, or `FAILED`
and a traceback, after which it ends.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter
from itertools import chain
from typing import Any

import pyarrow as pa

from applier.changefeed.message import in_rows
from applier.consume.source import RowPass
from applier.consume.workers.transport import outcome, pickled, write

DONE = b"+"
FAILED = b"-"


def main() -> None:
    """Serve the process that started this one until it is gone."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a library prints must not come between the answers.
    os.dup2(2, 1)
    try:
        while True:
            # What was written by the very process that started this one is as good as its code.
            serve(pickle.load(requests), requests, answers)  # noqa: S301
    except (BrokenPipeError, EOFError):
        sys.exit()  # It is gone.


def serve(job: RowPass[Any], requests: BufferedReader, answers: BufferedWriter) -> None:
    """Run a job over the messages that follow it, and answer.

    Raises:
        SystemExit: The messages do not end, or the job failed.
        BrokenPipeError: The process that started it is gone.
    """
    messages = _messages(requests)
    try:
        found = pickled(outcome(job, chain.from_iterable(map(in_rows, messages))))
    except Exception:  # noqa: BLE001 - any error is reported
        answers.write(FAILED + traceback.format_exc().encode())
        answers.flush()
        raise SystemExit(1) from None
    for _ in messages:
        pass  # A job may end before its messages do; the next one begins behind them.
    answers.write(DONE)
    write(found, answers)
    answers.flush()
    pa.default_memory_pool().release_unused()  # The next window may be far, and the driver is about to write this one.


def _messages(requests: BufferedReader) -> Iterator[pa.RecordBatch]:
    try:
        with pa.ipc.open_stream(requests) as batches:
            yield from batches
    except (OSError, pa.ArrowInvalid):
        raise SystemExit from None  # Cut short: it is gone.


if __name__ == "__main__":
    main()
