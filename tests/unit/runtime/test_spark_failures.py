"""What a failed job of Spark is to a user: its kinds and what the system said, never a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from applier.errors import ApplierError, TerminalError, TransientError, ValueRefused
from applier.runtime.tasks.spark import map_in_tasks, reported


class _Failed(Py4JJavaError):  # type: ignore[misc]  # published without types
    """An error as py4j gives it, with the report of a job for its text."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.java_exception = None

    def __str__(self) -> str:
        return str(self.args[0])


def test_a_full_disk_is_named_whatever_class_the_error_has() -> None:
    """PySpark gives errors of tasks that it does not know as Java does."""
    report = "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\\n row: secret"
    with pytest.raises(TransientError) as found, reported("load rows of table lake.shop.orders"):
        raise _Failed(report)
    assert found.value.what.startswith("Spark cannot load rows of table lake.shop.orders: ")
    assert found.value.what.endswith("; caused by: No space left on device")
    assert "secret" not in found.value.what


def test_code_that_fails_in_a_task_is_not_run_again() -> None:
    """It would fail for as long as an outage is waited for; what it says may hold a row."""
    report = (
        "org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: Traceback (most):\n"
        '  File "/x/applier.zip/applier/sink/evolve/move_rows.py", line 41, in __call__\n{raised}\n\tat org.apache'
    )
    with pytest.raises(TerminalError) as found, reported("move rows"):
        raise _Failed(report.format(raised="KeyError: 'secret'"))
    assert found.value.what == "A task failed with KeyError at applier/sink/evolve/move_rows.py line 41."

    with pytest.raises(TransientError), reported("move rows"):
        raise _Failed(report.format(raised="OSError: When reading: the storage is busy"))


def _session() -> Any:
    """A session whose tasks run here."""

    def parallelize(parts: list[ApplierError], count: int) -> SimpleNamespace:
        assert count == len(parts)
        return SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(part) for part in parts]))

    return SimpleNamespace(sparkContext=SimpleNamespace(parallelize=parallelize))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of tasks, which take no time."""
    taken = list[float]()
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=taken.append))
    return taken


def test_what_cannot_pass_comes_first_and_is_not_tried_again(pauses: list[float]) -> None:
    """An error is a value until all tasks are done: Spark would lose its sentence."""

    def refused(error: ApplierError) -> None:
        raise error

    with pytest.raises(ValueRefused, match="b") as found:
        map_in_tasks(_session(), "see", refused, [TransientError("a"), ValueRefused("c"), ValueRefused("b", "hint")])
    assert found.value.hint == "hint"
    assert pauses == [1, 5]


def test_answers_that_are_missing_are_not_taken_for_none() -> None:
    """What is not told of a part would be rows that were written, and that no commit shows."""
    told = SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [1]))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(parallelize=lambda parts, count: told))
    with pytest.raises(TransientError, match="gave no answer for a part of the work"):
        map_in_tasks(session, "load rows", lambda part: part, [1, 2])


def test_an_outage_of_a_moment_ends_no_job(pauses: list[float]) -> None:
    """A part is tried again where it is; the others are not."""
    done = list[int]()

    def work(part: int) -> int:
        done.append(part)
        if done == [1, 2]:
            raise TransientError("the storage does not answer.")
        return part * 10

    assert map_in_tasks(_session(), "see", work, [1, 2, 3]) == [10, 20, 30]
    assert done == [1, 2, 2, 3]
    assert pauses == [1]
    assert map_in_tasks(_session(), "see", work, []) == []
