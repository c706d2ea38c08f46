"""A cluster loses an executor, a worker or the driver while rows are in Spark's tasks: no row is lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from tests import recordings
from tests.recovery.extent import every
from tests.recovery.process import Applier, once
from tests.recovery.snapshots import faults_of
from tests.replay import Replay, differences, replay
from tests.services.held_tasks import HeldTasks
from tests.services.spark_cluster import SparkCluster

_MESSAGES = 60_000
"""Messages a step: two steps, the second of which replaces rows of the first, and each in more than one share."""


LOSSES = [
    # The first one is in `make test`: rows that the first job kept are lost as well, and read again.
    ("executor", ("stage",), ""),
    ("executor", ("decode",), ""),
    ("executor", (), "decoded:1:STOP"),
    ("worker", ("decode", "stage"), ""),
    ("worker", (), "data-files-staged:2:STOP"),
]
"""What is killed; while tasks of which jobs have done their work, and none knows; or where the driver stands still."""

DRIVERS = [
    ("data-files-staged:2",),  # In `make test`.
    ("decode", "stage"),
    ("decoded:1", "data-files-staged:2"),
    ("commit-done:3", "commit-done:2"),
]
"""Where a driver is killed, one after the other: while tasks of a job have done their work, or at a kill point."""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> HeldTasks:
    """One Python for the executors of all tests of this file."""
    return HeldTasks(tmp_path_factory.mktemp("tasks"))


def _feed(folder: Path, cluster: SparkCluster, tasks: HeldTasks, **spark: str) -> Replay:
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    found = replay("workload", "simple-json", lake, folder, "simple")
    found.raw["source"] |= {"engine": "spark", "messages_per_step": _MESSAGES}
    found.raw["spark"] = {**cluster.settings(tasks.python), **spark}
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("what", "jobs", "point"), every(LOSSES, len(LOSSES)))
def test_what_runs_tasks_is_killed(
    what: str, jobs: tuple[str, ...], point: str, cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path
) -> None:
    """Spark runs the tasks again elsewhere, and makes rows again that nobody keeps: no one has to start anything."""
    found = _feed(tmp_path, cluster, tasks)
    for job in jobs:
        tasks.hold(job)
    with _started(found, tmp_path, point) as running:
        if point:
            _until(lambda: _is_stopped(running.pid))
            for pid in cluster.executors():
                _lose(cluster, what, pid)
            running.send(signal.SIGCONT)
        for job in jobs:
            _lose(cluster, what, tasks.executor_of(job))
            tasks.let_go(job)
        ended = running.wait()

    assert ended.code == 0, ended.everything
    _is_whole(found, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.soak
@pytest.mark.parametrize("places", every(DRIVERS, len(DRIVERS)))
def test_the_driver_is_killed(places: tuple[str, ...], cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path) -> None:
    """Each start takes the changefeed at once, and does again what was not committed."""
    found = _feed(tmp_path, cluster, tasks)
    for number, place in enumerate(places):
        if ":" in place:
            killed = once(found.raw, tmp_path, kill_at=place)
        else:
            tasks.hold(place)
            with _started(found, tmp_path) as running:
                tasks.executor_of(place)
                killed = running.end(signal.SIGKILL)
            tasks.let_go(place)
        assert killed.code == -signal.SIGKILL, f"never came to {place}: {killed.everything}"
        assert ("is gone" in killed.taken["because"]) == (number > 0)

    ended = once(found.raw, tmp_path)

    assert ended.code == 0, ended.everything
    _is_whole(found, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_task_runs_twice(cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path) -> None:
    """What the slower one has written belongs to no table."""
    often = {"interval": "100ms", "quantile": "0.1", "multiplier": "1.01", "minTaskRuntime": "100ms"}
    speculation = {f"spark.speculation.{key}": value for key, value in often.items()}
    found = _feed(tmp_path, cluster, tasks, **{"spark.speculation": "true", **speculation})
    tasks.hold("stage", 0)

    ended = once(found.raw, tmp_path)

    tasks.let_go("stage")
    assert ended.code == 0, ended.everything
    _is_whole(found, tmp_path)
    there = {str(file) for file in (tmp_path / "tables").rglob("*.parquet")}
    known = {file for name in found.tables() for file in _files(found, name)}
    assert known < there


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_two_appliers_at_once(cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path) -> None:
    """Each has an executor, and rows of its own in it."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    found = [_feed(folder, cluster, tasks, **{"spark.cores.max": "1"}) for folder in folders]

    with ExitStack() as stack:
        running = [stack.enter_context(_started(*each)) for each in zip(found, folders, strict=True)]
        ended = [each.wait() for each in running]

    assert [each.code for each in ended] == [0, 0], "".join(each.everything for each in ended)
    for each, folder in zip(found, folders, strict=True):
        _is_whole(each, folder)


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_what_a_cluster_cannot_do_is_one_sentence(cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path) -> None:
    """Results that the driver may not take, and files on another disk: nothing wrong is committed, nothing is lost."""
    small = _feed(tmp_path, cluster, tasks, **{"spark.driver.maxResultSize": "8k"})
    found = _feed(tmp_path, cluster, tasks)

    refused = once(small.raw, tmp_path)
    with tasks.own_disk():
        elsewhere = once(found.raw, tmp_path)
    ended = once(found.raw, tmp_path)

    assert (refused.code, elsewhere.code, ended.code) == (3, 3, 0), refused.everything + elsewhere.everything
    assert "Rows do not fit into spark.driver.maxResultSize." in refused.said
    assert "is not on this machine: the task that wrote it has another disk. Hint: keep the tables" in elsewhere.said
    _is_whole(found, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_request_ends_a_job_that_cannot_end(
    number: signal.Signals, cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path
) -> None:
    """Where no executor is left, the step under way never ends."""
    found = _feed(tmp_path, cluster, tasks)
    found.raw["run"] = {"stop_seconds": 1}
    tasks.hold("decode")

    with _started(found, tmp_path) as running:
        tasks.executor_of("decode")
        with _no_worker(cluster):
            stopped = running.end(number)
    tasks.let_go("decode")
    ended = once(found.raw, tmp_path)

    assert (stopped.code, stopped.said) == (
        0,
        "Stopped 1 s after the request, in the middle of a step, which the next start does again.",
    )
    assert ended.code == 0, ended.everything
    _is_whole(found, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_executors_come_back(cluster: SparkCluster, tasks: HeldTasks, tmp_path: Path) -> None:
    """A step that waits for executors keeps the changefeed, and goes on once there are some."""
    found = _feed(tmp_path, cluster, tasks)
    tasks.hold("stage")

    with _started(found, tmp_path) as running:
        tasks.executor_of("stage")
        with _no_worker(cluster):
            running.until("waiting for executors")
            told = _status(tmp_path)
        tasks.let_go("stage")
        ended = running.wait()

    assert (told["holder"]["pid"], told["holder"]["released"]) == (running.pid, False)
    assert ended.code == 0, ended.everything
    _is_whole(found, tmp_path)


@contextmanager
def _no_worker(cluster: SparkCluster) -> Iterator[None]:
    for number in range(2):
        cluster.stop_worker(number)
    yield
    for number in range(2):
        cluster.start_worker(number)


@contextmanager
def _started(found: Replay, folder: Path, kill_at: str = "") -> Iterator[Applier]:
    """A run that nothing of this test outlives."""
    running = Applier(found.raw, folder, "--once", kill_at=kill_at)
    try:
        yield running
    finally:
        running.send(signal.SIGKILL)


def _files(found: Replay, name: TableName) -> list[str]:
    table = found.catalog.load_table(found.identifier(name))
    return [str(path).removeprefix("file:") for path in table.inspect.data_files()["file_path"].to_pylist()]


def _lose(cluster: SparkCluster, what: str, pid: int) -> None:
    if what == "executor":
        cluster.kill_executor(pid)
    else:
        cluster.kill_worker_of(pid)


def _is_whole(found: Replay, folder: Path) -> None:
    """Every cell is right, no change counts twice, and status says so."""
    assert differences(found, recordings.expected("workload")[-1]) == []
    assert faults_of(found) == []
    told = _status(folder)
    assert (told["verdict"], told["exit_code"], told["holder"]["released"]) == ("complete", 0, True)
    assert [table["state"] for table in told["tables"]] == ["in step"] * 3


def _status(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "applier", "status", "-c", str(folder / "applier.toml"), "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return dict(json.loads(found.stdout))


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _until(holds: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.1)
