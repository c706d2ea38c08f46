"""Runs jobs in Spark's tasks in two stages: what they find comes to the driver, their rows go from task to task.

The first stage decodes. Spark keeps what it gives: a task that is lost is run again and gives the same. The second one
takes the pieces of rows that the driver asks for by number, which Spark moves as they are: it knows no row, and plans
no query.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, StorageLevel, TaskContext
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from applier.changefeed.message import PartitionMessages
from applier.consume.kafka.client import is_out_of_memory
from applier.consume.kafka.java import named
from applier.consume.source import Blocks, KeepingPass, PieceId, R, StageWork
from applier.consume.workers.transport import outcome, settled
from applier.errors import TransientError
from applier.runtime.permanent_errors import chain_of
from applier.runtime.tasks.spark import spare_the_next

_FOUND = -1
"""The part whose only piece, the first of a task, is what the task found."""

_PLACE = np.dtype("<i4")
"""The four numbers before each piece, as `PieceRoutes.java` reads them: task, part, piece, and one that is 0, so that
the columns behind them stay aligned.
"""

_HEAD = 4 * _PLACE.itemsize

_MOVES = 2
"""Tasks for each slot that hand pieces on: that is no work, and to follow a task costs the driver some ms."""

Kept: TypeAlias = "RDD[bytes]"
"""What the tasks of the first stage give, in bytes: a pickled outcome, and pieces of rows as Arrow IPC streams."""

_TOO_LARGE = "Job aborted due to stage failure: Total size of serialized results"
"""How Spark begins to say that results are above `spark.driver.maxResultSize`."""


class TasksFullError(Exception):
    """Tasks have no memory for what they are to decode, or the driver none for what they found."""


class TaskRows:
    """Runs row passes in Spark's tasks, and has the rows that those of the last one keep.

    To make lost rows again is to read them: so `Source.reading` turns errors of Spark into those of a source.
    """

    def __init__(self, spark: SparkSession, reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._context = spark.sparkContext
        self._reading = reading
        self._kept: Kept | None = None
        self._here: dict[PieceId, pa.Buffer] | None = None

    @property
    def slots(self) -> int:
        """See `KeptRows`."""
        return max(1, self._context.defaultParallelism)

    def run(self, blocks: Blocks, job: KeepingPass[R]) -> tuple[list[R], TaskRows]:
        """Run a job on the messages of each partition of some blocks: what each task found, and the rows they keep.

        Raises:
            TasksFullError: It wants more memory than there is.
            TransientError, WindowTooLargeError: As `Runner.run`.
            ApplierError: A task cannot pass a message, and would meet it again.
        """
        self.drop()
        messages = blocks.messages  # A task has no RDD.
        kept = blocks.rdd.mapPartitions(lambda every: _kept(job, messages(every)))
        kept._bypass_serializer = True  # noqa: SLF001 - PySpark would pickle bytes
        # As they are: PySpark's usual level would compress them, and a window is read from there twice within seconds.
        self._kept = kept.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        first = self._java("PieceRoutes$First")()
        try:
            found = self._bytes(kept._jrdd.mapPartitions(first)).collect()  # noqa: SLF001 - the one way to Java's functions
        except (Py4JJavaError, PySparkException) as error:
            self.drop()
            if is_result_too_large(error):
                raise TasksFullError("what tasks found does not fit into spark.driver.maxResultSize") from error
            if is_out_of_memory(error):
                raise TasksFullError("messages do not fit into the memory of tasks") from error
            raise
        if [_place(each)[0] for each in found] != [*range(kept.getNumPartitions())]:
            # PySpark takes the end of the stream for that of the results, also where the JVM could not send them all.
            raise TransientError("Spark gave no answer for a part of the messages.", "the window is read again.")
        # Tasks run the code of this process with its rights.
        return settled(pickle.loads(memoryview(each)[_HEAD:]) for each in found), self  # noqa: S301

    def stage(self, routes: npt.NDArray[np.int32], work: StageWork) -> dict[int, Any]:
        """Bring pieces of rows to tasks, do work on them, and return what it returned, picklable, for each target.

        The routes say which pieces: rows of task, part, piece and target; targets from 0 on without a gap.

        Raises:
            TransientError, TerminalError: Pieces are gone, and cannot be read again, or a task failed.
        """
        wanted = self._java("PieceRoutes")(routes.astype(_PLACE).tobytes(), int(routes[:, -1].max()) + 1)
        with self._reading():
            near = self._rows()._jrdd.coalesce(_MOVES * self.slots)  # noqa: SLF001 - as above
            moved = near.mapPartitionsToPair(wanted).partitionBy(wanted)
            # Java's own serialization holds the last hundred objects of each stream, and there is one for each target:
            # all rows that a task hands on would be in its memory.
            kryo = named(self._context._jvm, "org.apache.spark.serializer.KryoSerializer")  # noqa: SLF001 - as above
            moved.rdd().setSerializer(kryo(self._context._jsc.sc().conf()))  # noqa: SLF001 - as above
            return dict(self._bytes(moved.values()).mapPartitionsWithIndex(partial(_staged, work)).collect())

    def collect(self) -> dict[PieceId, pa.Buffer]:
        """See `KeptRows`."""
        if self._here is None:
            with self._reading():
                self._here = dict(_pieces(self._rows().collect()))
        return self._here

    def _rows(self) -> Kept:
        if self._kept is None:
            raise TransientError("The rows of the window are no longer kept.", "the window is read again.")
        return self._kept

    def drop(self) -> None:
        """Let the rows go."""
        kept, self._kept, self._here = self._kept, None, None
        if kept is not None:
            with suppress(Py4JError):  # Where the JVM is gone, they are.
                kept.unpersist()

    def _java(self, name: str) -> Any:
        return named(self._context._jvm, f"applier.{name}")  # noqa: SLF001 - as above

    def _bytes(self, java: Any) -> RDD[bytes]:
        return RDD(java, self._context, NoOpSerializer())


def is_result_too_large(error: Exception) -> bool:
    """Whether Spark refuses to hand over the results of a job; it has neither a class nor a code for that."""
    return any(cause.kind == "SparkException" and cause.text.startswith(_TOO_LARGE) for cause in chain_of(error))


def _kept(job: KeepingPass[R], messages: Iterable[PartitionMessages]) -> Iterator[pa.Buffer]:
    spare_the_next()
    task = cast("TaskContext", TaskContext.get()).partitionId()
    found = outcome(job, messages)
    parts = [] if isinstance(found, Exception) else job.apart(found, task)
    yield pa.py_buffer(_head(task, _FOUND, 0) + pickle.dumps(found, 5))
    for part, pieces in enumerate(parts):
        for piece, rows in enumerate(pieces):
            sink = pa.BufferOutputStream()
            sink.write(_head(task, part, piece))
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            yield sink.getvalue()


def _head(*place: int) -> bytes:
    return np.array([*place, 0], _PLACE).tobytes()


def _staged(work: StageWork, target: int, pieces: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    spare_the_next()
    yield target, work(target, dict(_pieces(pieces)))


def _pieces(every: Iterable[bytes]) -> Iterator[tuple[PieceId, pa.Buffer]]:
    for each in every:
        place = _place(each)
        if place[1] != _FOUND:
            yield place, pa.py_buffer(each)[_HEAD:]


def _place(each: bytes) -> PieceId:
    task, part, piece, _ = map(int, np.frombuffer(each, _PLACE, 4))
    return task, part, piece
