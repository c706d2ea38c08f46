"""A topic and a lake in, one measured run of applier on a Spark cluster out, and what it says of larger ones."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.contender import Feed, Run, as_run, write_config
from bench.lake import MEMORY, Lake
from bench.meter import Line, Measured, Sample, measure
from tests.services.spark_cluster import python_without_applier, spark_cluster

MANY = 100
"""Executors that the computed line speaks of, of one core each."""

SMALL_STEP = 250_000
"""Messages of a step in the run that shows what a step costs the driver, however small it is."""

WARM_MESSAGES = 3_000_000
"""Messages until what JVMs run is mostly compiled; steps count from there."""

_FEW_STEPS = 3
"""A run of no more steps has none to leave out."""

_IDLE = 0.4
"""Executors that use less than this part of what they mostly use wait: half of them, within a sample, is neither."""

LARGEST_STEP = 32_000_000
"""Messages of a step that many executors have by default."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds.

    Attributes:
        driver: Of the driver's Python and its JVM.
        executors: Of all executors, and of their Pythons.
    """

    driver: float
    executors: float

    @property
    def whole(self) -> float:
        """Of all together."""
        return self.driver + self.executors


@dataclass(frozen=True, slots=True)
class Places:
    """What a run used, by place.

    Attributes:
        steps: Steps behind the first one and the first `WARM_MESSAGES`.
        messages: Messages of these steps.
        cost: What these steps used.
        applying: The part of it behind decoding: rows of a key come together, are looked up, written and committed.
        rows: Rows that these steps changed.
        waiting: Seconds of these steps in which the executors waited for the driver.
    """

    steps: int
    messages: int
    cost: Cost
    applying: Cost
    rows: int
    waiting: float = 0.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What two runs in steps of different sizes say of many executors.

    Attributes:
        of_step: Seconds for a step in which executors can do nothing.
        of_million: And for each million messages in it.
        gain: How many times the speed of one executor `MANY` have, in steps of `LARGEST_STEP` messages.
    """

    of_step: float
    of_million: float
    gain: float


def by_cost(large: Places, small: Places) -> Outlook:
    """What runs in large and in small steps say if all CPU time of the driver counts, also while executors work."""
    return _outlook(large, small, large.cost.driver, small.cost.driver)


def by_waiting(large: Places, small: Places) -> Outlook:
    """The same if the time counts in which executors wait: the driver has cores for what it does meanwhile."""
    return _outlook(large, small, large.waiting, small.waiting)


def _outlook(large: Places, small: Places, serial_of_large: float, serial_of_small: float) -> Outlook:
    sides = [[large.steps, large.messages / 1e6], [small.steps, small.messages / 1e6]]
    of_step, of_million = (max(0.0, float(each)) for each in np.linalg.solve(sides, [serial_of_large, serial_of_small]))
    serial = of_million + of_step * 1e6 / LARGEST_STEP
    parallel = large.cost.executors * 1e6 / large.messages
    return Outlook(of_step, of_million, (serial + parallel) / (serial + parallel / MANY))


def run_on_cluster(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path) -> Run:
    """`applier run --once` on a standalone cluster that is started for it: a master, two workers.

    Each has a core, so that the cluster has as many as this machine: what took turns on a core would count twice.
    """
    folder = log.with_suffix(".cluster")
    folder.mkdir(parents=True, exist_ok=True)
    python = python_without_applier(folder / "python")
    with spark_cluster(folder, cores=1, memory="3g") as cluster:
        spark = {
            "spark.master": cluster.master,
            "spark.driver.memory": MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "2g",
            "spark.executor.cores": "1",
            "spark.pyspark.python": str(python),
        }
        file = write_config(feed, lake, messages_per_step, spark)
        command = [sys.executable, "-m", "applier", "run", "--once", "-c", str(file)]
        measured = measure(command, log, cluster.workers())
    run = as_run(measured, log, started="changefeed taken", worked="step")
    return run if run.failure else replace(run, places=places(measured))


def places(measured: Measured) -> Places:
    """What the steps of a run used, without those in which JVMs compile, and without the last one: what is left for it
    is mostly so little that the driver reads it.
    """
    found = measured.events("step")
    every = found[:-1] if len(found) > _FEW_STEPS else found
    behind = np.cumsum([step.fields["messages"] for step in every])
    start = min(max(1, int(np.searchsorted(behind, WARM_MESSAGES)) + 1), max(1, len(every) - 1))
    first, steps = every[start - 1], every[start:]
    applying = [_between(measured.samples, step.at - step.fields["apply_seconds"], step) for step in steps]
    return Places(
        steps=len(steps),
        messages=sum(step.fields["messages"] for step in steps),
        cost=Cost(steps[-1].cpu - first.cpu, steps[-1].beside - first.beside) if steps else Cost(0, 0),
        applying=Cost(sum(each.driver for each in applying), sum(each.executors for each in applying)),
        rows=sum(step.fields["rows"] for step in steps),
        waiting=_waiting(measured.samples, first.at, steps[-1].at) if steps else 0.0,
    )


def _waiting(samples: Sequence[Sample], start: float, end: float) -> float:
    """Seconds between two moments in which executors had little to do."""
    pairs = [(old, new) for old, new in pairwise(samples) if start <= old.at < new.at <= end]
    seconds = np.array([new.at - old.at for old, new in pairs])
    used = np.array([new.beside - old.beside for old, new in pairs]) / seconds
    return float(seconds[used < _IDLE * np.median(used)].sum()) if pairs else 0.0


def _between(samples: Sequence[Sample], since: float, end: Line) -> Cost:
    """What was used from a moment to an event; between two samples it grows evenly."""
    at = bisect_left(samples, (since,))
    before, after = samples[max(0, at - 1)], samples[min(at, len(samples) - 1)]
    share = (since - before.at) / (after.at - before.at) if after.at > before.at else 0.0
    driver, executors = (old + share * (new - old) for old, new in zip(before[1:], after[1:], strict=True))
    return Cost(end.cpu - driver, end.beside - executors)
