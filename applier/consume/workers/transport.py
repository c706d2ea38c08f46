"""Carries the outcomes of jobs from one process to another, as Arrow batches; within a process they are objects."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, TypeAlias, cast

import pyarrow as pa

from applier.changefeed.message import PartitionMessages, in_rows
from applier.consume.source import R, RowPass
from applier.consume.window_size import WindowTooLargeError
from applier.errors import ApplierError, TransientError
from applier.runtime.outages import system_of

Outcome: TypeAlias = R | ApplierError | WindowTooLargeError
"""What a job returned, or the error that its caller acts on or shows: in a traceback of Spark it would be lost."""

CELLS = pa.schema([("tables", pa.int32()), ("cell", pa.binary())])  # type: ignore[arg-type]  # the stubs know one type
"""An outcome: the pickled object with the number of its tables, then each of them as an Arrow IPC stream."""

_ALIGNED = 64
"""Bytes that Arrow's columns are aligned to."""


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


def packed(job: RowPass[R], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a job over batches of `MESSAGE_SCHEMA`, and yield its outcome as batches of `CELLS`."""
    messages = chain.from_iterable(map(in_rows, batches))
    streams: list[pickle.PickleBuffer] = []
    head = pickle.dumps(outcome(job, messages), 5, buffer_callback=streams.append)
    yield _cell(head, len(streams))
    while streams:
        yield _cell(streams.pop(0), 0)


def unpacked(cells: pa.Table) -> Iterator[Outcome[Any]]:
    """The outcomes that rows of `CELLS` hold."""
    rows = zip(cells["tables"].to_pylist(), data(cells["cell"]), strict=True)
    for count, head in rows:
        # Tasks run the code of this process with its rights.
        yield pickle.loads(head, buffers=[stream for _, stream in islice(rows, count)])  # noqa: S301


def _reduced(table: pa.Table) -> tuple[Callable[[pa.Buffer], pa.Table], tuple[pickle.PickleBuffer]]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _table, (pickle.PickleBuffer(sink.getvalue()),)


def _table(stream: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


# pyarrow alone would pickle the whole column of a slice, and each array separately.
copyreg.pickle(pa.Table, _reduced)


def _cell(content: bytes | pickle.PickleBuffer, tables: int) -> pa.RecordBatch:
    # There may be much of it, and `pa.array` would copy it.
    data = pa.py_buffer(content)
    cell = pa.Array.from_buffers(pa.binary(), 1, [None, pa.array([0, data.size], pa.int32()).buffers()[1], data])
    return pa.record_batch([pa.array([tables], pa.int32()), cell], schema=CELLS)


def data(column: pa.ChunkedArray[pa.BinaryScalar]) -> Iterator[pa.Buffer]:
    """Each cell where it is, as there may be much of it; or a copy where no column could be read in place."""
    # Spark may be set to give types of other sizes.
    for chunk in filter(len, column.cast(pa.binary()).chunks):
        _, places, data = cast("list[pa.Buffer]", chunk.buffers())
        ends = pa.Array.from_buffers(pa.int32(), len(chunk) + 1, [None, places], offset=chunk.offset)
        for start, end in pairwise(cast("list[int]", ends.to_pylist())):
            cell = data.slice(start, end - start)
            yield cell if cell.address % _ALIGNED == 0 else pa.py_buffer(cell.to_pybytes())
