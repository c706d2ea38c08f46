"""Crashes anywhere in a step: at every checkpoint the tables are what they would be without."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.pipeline.step import Pipeline
from tests import recordings
from tests.disasters import Crash, Disasters
from tests.recovery.extent import every
from tests.recovery.snapshots import changed_since, faults_of
from tests.replay import Replay, differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    ("partition", "simple-json", 60, 5),
    ("txns", "simple-json", 250, 1),
    ("ddl", "simple-json", 1000, 4),
    ("pk", "simple-avro", 100, 7),
    ("txns", "simple-json-ts-dispatch", 1500, 2),
    ("ddl", "simple-json-topic-per-table", 150, 6),
]
"""Scenario, variant, messages a step, seed."""

SOAK = [
    (scenario, variant, messages, seed)
    for scenario in ("txns", "ddl", "partition", "pk", "types")
    for variant in recordings.variants(scenario, "simple-")
    if "handlekey" not in variant
    for messages in (60, 250)
    for seed in range(100, 100 + int(os.environ.get("CRASHES", "1")))
]

_OFTEN = 12
"""A crash comes after about half as many points; the more often one step dies, the longer it lives."""


@dataclass(slots=True)
class Mortal:
    """A replay that dies again and again on its way, at points drawn by a seed.

    Args:
        replay: The replay.
        spark: The session.
        disasters: Lets it die.
        seed: Seed of the draw.
    """

    replay: Replay
    spark: SparkSession
    disasters: Disasters
    seed: int

    def run(self) -> Iterator[Pipeline]:
        """Run to the end of the source, with a new pipeline after each crash.

        It is given after each step that moved, and at the end: the last checkpoint may have been written by a step that
        died on it.
        """
        chance = random.Random(self.seed)
        deaths, complete = 0, False
        while not complete:
            with ExitStack() as stack:
                # The old pipeline is gone; only then the new one may live.
                stack.callback(self.disasters.mend)
                self.disasters.crash("", chance.randint(1, int(_OFTEN * 1.3**deaths)))
                try:
                    pipeline = stack.enter_context(self.replay.running(self.spark))
                    while not complete:
                        step = pipeline.step()
                        complete = step.complete and not step.moved
                        if step.moved or complete:
                            deaths = 0
                            yield pipeline
                except Crash:
                    deaths += 1
                else:
                    self.disasters.mend()


@pytest.fixture
def mortal(
    request: pytest.FixtureRequest, spark: SparkSession, lake: dict[str, str], tmp_path: Path, disasters: Disasters
) -> Mortal:
    """A replay, and the crashes that it is to survive."""
    scenario, variant, messages, seed = request.param
    found = replay(scenario, variant, lake, tmp_path, "simple", name=f"crash-{scenario}-{variant}-{messages}-{seed}")
    found.raw["source"]["messages_per_step"] = messages
    return Mortal(found, spark, disasters, seed)


def _named(cases: list[tuple[str, str, int, int]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mortal", cases, indirect=True, ids=["-".join(map(str, case)) for case in cases])


@_named(every(CASES, 6))
def test_tables_are_equal_at_every_checkpoint(mortal: Mortal) -> None:
    """Whatever point a step dies at, each cell is right at the next checkpoint, and no snapshot counts twice."""
    check(mortal)

    assert mortal.disasters.struck.total() > 3


@pytest.mark.soak
@_named(SOAK)
def test_all_recordings_are_equal_at_every_checkpoint(mortal: Mortal) -> None:
    """The same over all recordings of the Simple protocol; CRASHES says how many seeds each."""
    check(mortal)


def check(mortal: Mortal) -> None:
    """Compare at every checkpoint whose resolved ts was recorded, and at the end."""
    found = mortal.replay
    states = {state["resolved_ts"]: state for state in recordings.expected(found.scenario)}
    reached = 0
    for pipeline in mortal.run():
        reached = pipeline.state.resolved_ts
        if reached in states:
            assert differences(found, states[reached]) == [], (
                f"at resolved ts {reached}, after {mortal.disasters.struck}"
            )
        assert changed_since(found, pipeline.state.checkpoint.cut.heads) == [], "the checkpoint is not one cut"
    assert reached >= max(states)
    assert differences(found, states[max(states)]) == []
    assert faults_of(found) == []
