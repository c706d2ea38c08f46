"""Crashes anywhere in a step: at every checkpoint the tables are what they would be without."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.pipeline import Pipeline
from tests import recordings
from tests.recovery.crashes import Crashes, finish
from tests.recovery.snapshots import faults_of, heads
from tests.replay import Replay, differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    ("txns", "simple-json", 250, 1),
    ("txns", "simple-json-ts-dispatch", 1500, 2),
    ("ddl", "simple-json", 1000, 4),
    ("partition", "simple-json", 60, 5),
    ("ddl", "simple-json-topic-per-table", 150, 6),
    ("pk", "simple-avro", 100, 7),
]
"""Scenario, variant, messages a step, seed."""

SOAK = [
    (scenario, variant, messages, seed)
    for scenario in ("txns", "ddl", "partition", "pk", "types")
    for variant in recordings.variants(scenario, "simple-")
    if "handlekey" not in variant
    for messages in (60, 250, 1000)
    for seed in range(100, 100 + int(os.environ.get("SCHEDULES", "1")))
]


@pytest.fixture
def crashed(
    request: pytest.FixtureRequest, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Replay, Crashes]:
    """A replay, and the crashes that it is to survive."""
    scenario, variant, messages, seed = request.param
    found = replay(scenario, variant, lake, tmp_path, "simple", name=f"crash-{scenario}-{variant}-{messages}-{seed}")
    found.raw["source"]["messages_per_step"] = messages
    crashes = Crashes(seed, often=12)
    crashes.install(monkeypatch)
    return found, crashes


def _named(cases: list[tuple[str, str, int, int]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("crashed", cases, indirect=True, ids=["-".join(map(str, case)) for case in cases])


@_named(CASES)
def test_tables_are_equal_at_every_checkpoint(crashed: tuple[Replay, Crashes], spark: SparkSession) -> None:
    """Whatever point a step dies at, each cell is right at the next checkpoint, and no snapshot counts twice."""
    found, crashes = crashed
    check(found, spark, crashes)

    assert crashes.at.total() > 3


@pytest.mark.soak
@_named(SOAK)
def test_all_recordings_are_equal_at_every_checkpoint(crashed: tuple[Replay, Crashes], spark: SparkSession) -> None:
    """The same over all recordings of the Simple protocol; SCHEDULES says how many seeds each."""
    check(crashed[0], spark, crashed[1])


def check(found: Replay, spark: SparkSession, crashes: Crashes) -> None:
    """Compare at every checkpoint whose resolved ts was recorded, and at the end."""
    states = {state["resolved_ts"]: state for state in recordings.expected(found.scenario)}
    reached = 0
    with ExitStack() as stack:
        for pipeline in finish(starter(found, spark, crashes, stack), crashes):
            reached = pipeline.state.resolved_ts
            if reached in states:
                assert differences(found, states[reached]) == [], f"at resolved ts {reached}, after {crashes.at}"
            assert pipeline.state.checkpoint.snapshots == heads(found), "the checkpoint is not one cut"
    assert reached >= max(states)
    assert differences(found, states[max(states)]) == []
    assert faults_of(found) == []


def starter(found: Replay, spark: SparkSession, crashes: Crashes, stack: ExitStack) -> Callable[[], Pipeline]:
    """Starts a pipeline and lets go of the one before."""

    def start() -> Pipeline:
        stack.close()
        crashes.revive()
        return stack.enter_context(found.running(spark))

    return start
