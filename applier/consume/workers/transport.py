"""Carries the outcomes of jobs from one process to another; within a process they are objects."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable
from io import BufferedIOBase
from typing import Any, BinaryIO, TypeAlias, cast

import pyarrow as pa

from applier.changefeed.message import PartitionMessages
from applier.consume.source import R, RowPass
from applier.consume.window_size import WindowTooLargeError
from applier.errors import ApplierError, TransientError
from applier.runtime.outages import system_of

Outcome: TypeAlias = R | ApplierError | WindowTooLargeError
"""What a job returned, or the error that its caller acts on or shows: in a traceback of Spark it would be lost."""


def outcome(job: RowPass[R], messages: Iterable[PartitionMessages]) -> Outcome[R]:
    """Run a job."""
    try:
        return job(messages)
    except TransientError as error:
        # Its traceback stays in this process, and where it is raised again would say `source`.
        if (system := system_of(error)) != "source":
            error.system = system
        return error
    except (ApplierError, WindowTooLargeError) as error:
        return error


def settled(outcomes: Iterable[Outcome[R]]) -> list[R]:
    """What jobs returned.

    Raises:
        TransientError: One of them could not go on; all must be run again.
        WindowTooLargeError: One of them met more bytes than it may read.
        ApplierError: One of them met what a retry meets again.
    """
    found = list(outcomes)
    for error in found:
        if isinstance(error, Exception):
            raise error
    return cast("list[R]", found)


def pickled(found: Outcome[Any]) -> list[bytes | pickle.PickleBuffer]:
    """An outcome as the object, then each of its tables as an Arrow IPC stream."""
    streams: list[pickle.PickleBuffer] = []
    return [pickle.dumps(found, 5, buffer_callback=streams.append), *streams]


def write(parts: list[bytes | pickle.PickleBuffer], file: BinaryIO) -> None:
    """Write what is `pickled`, and let each part go: there may be much of it."""
    pickle.dump([memoryview(part).nbytes for part in parts], file)
    while parts:
        file.write(parts.pop(0))


def read(file: BufferedIOBase) -> Outcome[Any]:
    """The outcome that another process wrote.

    Raises:
        EOFError, pickle.UnpicklingError: It is cut short.
    """
    # What was written by a process that this one started is as good as its code.
    head, *streams = [_read(file, size) for size in pickle.load(file)]  # noqa: S301
    return cast("Outcome[Any]", pickle.loads(head, buffers=streams))  # noqa: S301


def _read(file: BufferedIOBase, size: int) -> pa.Buffer:
    found = pa.allocate_buffer(size)  # Aligned as Arrow's columns are.
    if file.readinto(memoryview(found)) < size:
        raise EOFError
    return found


def _reduced(table: pa.Table) -> tuple[Callable[[pa.Buffer], pa.Table], tuple[pickle.PickleBuffer]]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _table, (pickle.PickleBuffer(sink.getvalue()),)


def _table(stream: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


# pyarrow alone would pickle the whole column of a slice, and each array separately.
copyreg.pickle(pa.Table, _reduced)
