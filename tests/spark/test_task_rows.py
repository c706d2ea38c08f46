"""Rows that stay in Spark's tasks: what comes to the driver, and what goes from task to task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark import RDD

from applier.changefeed.message import PartitionMessages
from applier.consume.source import Blocks, PieceId
from applier.consume.spark import reading
from applier.consume.tasks.spark import TaskRows
from applier.consume.window_size import Limits
from applier.errors import RegistryReplaced, TransientError
from tests.few import few

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS, PIECES = 3, 5


@dataclass(frozen=True)
class _Job:
    """Tells the numbers that its task was given, and keeps pieces of so many bytes."""

    size: int = 10
    error: Exception | None = None
    limits: Limits = field(default_factory=Limits)

    def __call__(self, parts: Iterable[PartitionMessages]) -> list[Any]:
        if self.error:
            raise self.error
        return list(parts)

    def apart(self, found: list[Any], task: int) -> Sequence[Iterator[pa.Table]]:
        del found
        values = (bytes([task, piece]) * (self.size // 2) for piece in range(PIECES))
        return [(pa.table({"value": pa.array([value], pa.binary())}) for value in values)]


def _held(target: int, bodies: Mapping[PieceId, pa.Buffer]) -> dict[PieceId, tuple[bytes, int]]:
    del target
    values = {place: pa.ipc.open_stream(body).read_all()["value"][0].as_py() for place, body in bodies.items()}
    return {place: (value[:2], len(value)) for place, value in values.items()}


@pytest.fixture
def rows(spark: SparkSession) -> Iterator[TaskRows]:
    """What keeps rows."""
    found = TaskRows(spark, reading)
    yield found
    found.drop()


def _run(spark: SparkSession, rows: TaskRows, job: _Job) -> list[Any]:
    numbers = cast("RDD[PartitionMessages]", spark.sparkContext.parallelize(range(TASKS), TASKS))
    return rows.run(Blocks(numbers, iter), job)[0]


def _routes(targets: int) -> Any:
    every = [(task, 0, piece) for task in range(TASKS) for piece in range(PIECES)]
    return np.array([(*place, number % targets) for number, place in enumerate(every)], np.int32)


@pytest.mark.parametrize(("size", "targets"), few([(10, 15), (12_000_000, 2), (10, 4)]))
def test_every_piece_comes_to_its_task_as_it_was(size: int, targets: int, spark: SparkSession, rows: TaskRows) -> None:
    """However large it is, and also where what Spark kept of it is gone."""
    assert _run(spark, rows, _Job(size)) == [[0], [1], [2]]
    routes = _routes(targets)
    expected = {
        target: {tuple(place): (bytes([place[0], place[2]]), size) for *place, at in routes.tolist() if at == target}
        for target in range(targets)
    }

    assert rows.stage(routes, _held) == expected
    assert rows._kept is not None
    rows._kept.unpersist(blocking=True)
    assert rows.stage(routes, _held) == expected
    assert _held(0, rows.collect()) == {place: told for every in expected.values() for place, told in every.items()}


def test_results_that_are_cut_short_are_no_window(
    spark: SparkSession, rows: TaskRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark does not say that the JVM could not send all of them: rows of a task would count as applied."""
    collect = RDD.collect
    for some in (slice(0, -1), slice(1, None), slice(0, 0)):
        monkeypatch.setattr(RDD, "collect", lambda self, some=some: collect(self)[some])
        with pytest.raises(TransientError, match="no answer for a part of the messages"):
            _run(spark, rows, _Job())


def test_a_task_that_hands_rows_on_does_not_hold_them(
    spark: SparkSession, rows: TaskRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's serialization keeps a hundred objects for each target: all rows of a window were too much."""
    _run(spark, rows, _Job())
    made, moved = TaskRows._bytes, list[Any]()

    def watched(self: TaskRows, java: Any) -> RDD[bytes]:
        moved.append(java)
        return made(self, java)

    monkeypatch.setattr(TaskRows, "_bytes", watched)
    rows.stage(_routes(2), _held)

    shuffle = moved[0].rdd().dependencies().head().rdd().dependencies().head()
    assert shuffle.serializer().getClass().getSimpleName() == "KryoSerializer"


def test_what_a_task_cannot_pass_is_told_in_its_own_words(spark: SparkSession, rows: TaskRows) -> None:
    """It is no defect of applier: the registry was replaced."""
    with pytest.raises(RegistryReplaced, match=r"another schema\. Hint: load again"):
        _run(spark, rows, _Job(error=RegistryReplaced("It gives another schema.", "load again")))
