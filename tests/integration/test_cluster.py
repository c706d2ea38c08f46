"""`applier run` on a cluster whose executors share nothing with its driver but a Python with the packages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import recordings
from tests.recovery.process import Applier, once
from tests.replay import Replay, differences, replay
from tests.services.spark_cluster import SparkCluster, bare_python, python_without_applier


def _feed(folder: Path, name: str, cluster: SparkCluster, python: Path, **spark: str) -> Replay:
    lake = {"uri": f"jdbc:sqlite:{folder}/{name}.db", "warehouse": f"{folder}/{name}"}
    found = replay("pk", "simple-json", {"type": "jdbc", **lake}, folder, "simple", name=name)
    found.raw["source"]["engine"] = "spark"
    found.raw["spark"] = {
        **cluster.settings(python),
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        **spark,
    }
    return found


@pytest.mark.soak
def test_two_appliers_share_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    """The package goes along, every cell is right, and an applier that waits for messages holds no executor."""
    python = python_without_applier(tmp_path / "python")
    first, second = (_feed(_made(tmp_path / name), name, cluster, python) for name in ("first", "second"))

    stays = Applier(first.raw, tmp_path / "first")
    try:
        stays.until("step")
        cluster.wait_for_executors(0)
        passed = once(second.raw, tmp_path / "second")
    finally:
        ended = stays.end()

    assert passed.code == 0, passed.everything
    assert ended.code == 0, ended.everything
    assert [differences(each, recordings.expected("pk")[-1]) for each in (first, second)] == [[], []]


@pytest.mark.soak
def test_nothing_is_touched_before_an_executor_can_work(cluster: SparkCluster, tmp_path: Path) -> None:
    """A Python without packages is a problem of the configuration; where none comes, a stop request ends the wait."""
    python = bare_python(tmp_path / "python")
    bare = _feed(_made(tmp_path / "bare"), "bare", cluster, python)
    huge = _feed(_made(tmp_path / "huge"), "huge", cluster, python, **{"spark.executor.memory": "99g"})

    waits = Applier(huge.raw, tmp_path / "huge")
    try:
        refused = once(bare.raw, tmp_path / "bare")
        _until(lambda: "applier huge" in [app["name"] for app in cluster.state()["activeapps"]])
    finally:
        ended = waits.end()

    assert refused.code == 2, refused.everything
    assert f"the executors of {cluster.master} cannot run tasks: Python 3." in refused.said
    assert "lacks cramjam, fastavro" in refused.said
    assert ended.code == 0, ended.everything
    assert "Initial job has not accepted" not in ended.everything
    assert [each.catalog.list_namespaces() for each in (bare, huge)] == [[], []]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _until(holds: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.2)
