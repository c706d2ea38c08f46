"""Runs jobs in Spark's tasks in two stages: what they find comes to the driver, their rows go from task to task.

The first stage decodes. Spark keeps what it gives: a task that is lost is run again and gives the same. The second one
takes the pieces of rows that the driver asks for by number, which Spark moves as they are: it knows no row.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from applier.changefeed.message import PartitionMessages
from applier.consume.source import KeepingJob, PieceId, R, StageWork
from applier.consume.workers.transport import data, outcome, settled
from applier.errors import TransientError
from applier.runtime.tasks.process import settle

_FOUND = -1
"""The part whose only piece is what the task found."""

_BATCH_BYTES = 8 << 20
"""Bytes that go from Python to the JVM at once, and the other way round."""

KEPT_DDL = "task int, part int, piece int, body binary"
"""`KEPT` as Spark reads it."""

KEPT = pa.schema([("task", pa.int32()), ("part", pa.int32()), ("piece", pa.int32()), ("body", pa.binary())])  # type: ignore[arg-type]
"""What a task of the first stage gives: a pickled outcome, and rows as Arrow IPC streams."""

ROUTES = pa.schema([("task", pa.int32()), ("part", pa.int32()), ("piece", pa.int32()), ("target", pa.int32())])
"""Which task of the second stage takes a piece; several may."""

_ID = ("task", "part", "piece")

Reader: TypeAlias = Callable[[pa.RecordBatch], Iterable[PartitionMessages]]
"""Takes the messages out of a batch of a frame."""


class TaskRows:
    """The rows that the tasks of the last row pass keep.

    Args:
        spark: The session.
        reading: Turns errors of Spark into those of `Source`: to make lost rows again is to read them.
    """

    def __init__(self, spark: SparkSession, reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._spark = spark
        self._reading = reading
        self._kept: DataFrame | None = None
        self._here: dict[PieceId, pa.Buffer] | None = None

    @property
    def slots(self) -> int:
        """See `KeptRows`."""
        return max(1, self._spark.sparkContext.defaultParallelism)

    def run(self, frame: DataFrame, messages: Reader, job: KeepingJob[R]) -> list[R]:
        """Run a job over a frame, whose batches hold messages, a task for each of its partitions.

        Returns:
            What each task found.

        Raises:
            TransientError, WindowTooLargeError: As `Source.map`.
        """
        self.drop()
        self._limit_batches()
        # As they are: PySpark's usual level would compress them, and a window is read from there twice within seconds.
        level = StorageLevel.MEMORY_AND_DISK_DESER
        self._kept = frame.mapInArrow(partial(_kept, messages, job), KEPT_DDL).persist(level)
        found = self._kept.where(F.col("part") == _FOUND).select("body").toArrow()
        # Tasks run the code of this process with its rights.
        return settled(pickle.loads(body) for body in data(found["body"]))  # noqa: S301

    def stage(self, routes: pa.Table, work: StageWork) -> dict[int, Any]:
        """Bring pieces of rows to tasks, and do work on them.

        Args:
            routes: Which pieces: `ROUTES`, targets from 0 on without a gap.
            work: Takes the number of its target and the pieces; what it returns must be picklable.

        Returns:
            What it returned for each target.

        Raises:
            TransientError, TerminalError: Pieces are gone, and cannot be read again, or a task failed.
        """
        self._limit_batches()
        wanted = self._spark.createDataFrame(routes)
        count = routes["target"].to_numpy().max().item() + 1
        rows = self._rows().join(F.broadcast(wanted), list(_ID))
        moved = rows.select("target", *_ID, "body").repartitionById(count, F.col("target"))
        with self._reading():
            told = moved.mapInArrow(partial(_staged, work), "target int, outcome binary").toArrow()
        pairs = zip(cast("list[int]", told["target"].to_pylist()), data(told["outcome"]), strict=True)
        return {target: pickle.loads(body) for target, body in pairs}  # noqa: S301 - as above

    def collect(self) -> dict[PieceId, pa.Buffer]:
        """See `KeptRows`."""
        if self._here is None:
            with self._reading():
                told = self._rows().toArrow()
            self._here = dict(zip(_ids(told), data(told["body"]), strict=True))
        return self._here

    def _rows(self) -> DataFrame:
        if self._kept is None:
            raise TransientError("The rows of the window are no longer kept.", "the window is read again.")
        return self._kept.where(F.col("part") != _FOUND)

    def drop(self) -> None:
        """Let the rows go."""
        kept, self._kept, self._here = self._kept, None, None
        if kept is not None:
            with suppress(Py4JError):  # Where the JVM is gone, they are.
                kept.unpersist()

    def _limit_batches(self) -> None:
        # Spark counts rows, 10,000 of them; a piece is a row here.
        self._spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _BATCH_BYTES)


def _kept(messages: Reader, job: KeepingJob[R], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    number = cast("TaskContext", TaskContext.get()).partitionId()
    found = outcome(job, chain.from_iterable(map(messages, batches)))
    parts = [] if isinstance(found, Exception) else job.apart(found, number)
    yield _batch([(number, _FOUND, 0, pa.py_buffer(pickle.dumps(found, 5)))])
    held, size = list[tuple[int, int, int, pa.Buffer]](), 0
    for part, pieces in enumerate(parts):
        for piece, rows in enumerate(pieces):
            held.append((number, part, piece, _stream(rows)))
            size += held[-1][-1].size
            if size >= _BATCH_BYTES:
                yield _batch(held)
                held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: list[tuple[int, int, int, pa.Buffer]]) -> pa.RecordBatch:
    *places, bodies = zip(*rows, strict=True)
    ends = pa.array(np.cumsum([0, *(body.size for body in bodies)]), pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), len(rows), [None, ends, pa.py_buffer(b"".join(bodies))])
    return pa.record_batch([*(pa.array(numbers, pa.int32()) for numbers in places), column], schema=KEPT)


def _stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _staged(work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    targets: defaultdict[int, dict[PieceId, pa.Buffer]] = defaultdict(dict)
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for target, place, body in zip(table["target"].to_pylist(), _ids(table), data(table["body"]), strict=True):
            targets[cast("int", target)][place] = body
    for target in list(targets):
        told = pickle.dumps(work(target, targets.pop(target)), 5)
        yield pa.record_batch({"target": pa.array([target], pa.int32()), "outcome": pa.array([told], pa.binary())})


def _ids(rows: pa.Table) -> Iterator[PieceId]:
    return cast("Iterator[PieceId]", zip(*(rows[name].to_pylist() for name in _ID), strict=True))
