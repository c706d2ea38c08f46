"""A workload in, its row events out: which key is inserted, updated or deleted, in commit order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

Shape = Literal["append", "uniform", "hot", "recent"]
Ints = npt.NDArray[np.int64]

INSERT, UPDATE, DELETE = 0, 1, 2
PRELOADED = -1
"""Version of the rows that are in the table before the first event."""

START_MS = 1_735_689_600_000
"""2025-01-01 00:00 UTC in Unix milliseconds: the upstream clock just after the tables were made."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What happens upstream.

    Attributes:
        events: Row events.
        shape: `append`: 70 % inserts, 25 % updates and 5 % deletes of keys whose age is log-uniform, so mostly recent
            ones. `uniform`: 90 % updates and 10 % deletes of preloaded keys. `hot`: 95 % writes and 5 % deletes, keys
            log-uniform by rank, so the first hundred get about half. `recent`: the same of the newest preloaded keys.
            A write to a key that is not there is an insert.
        preloaded: Rows that exist before the first event.
        tables: Tables that the keys are dealt to.
        seed: Another seed is another workload of the same shape.
        start_ms: Upstream clock at the first event, Unix milliseconds.
        rate: Events per second of that clock.
    """

    events: int
    shape: Shape = "append"
    preloaded: int = 0
    tables: int = 1
    seed: int = 1
    start_ms: int = START_MS
    rate: int = 10_000


@dataclass(frozen=True, slots=True)
class Events:
    """Row events in commit order, one element each.

    Attributes:
        number: Ascending; names the image that the event writes and its commit ts.
        key: Key over all tables: table `key % tables`, column `id` is `key // tables`.
        op: INSERT, UPDATE or DELETE.
        before: Number of the event that wrote the old image, or PRELOADED; means nothing for an insert.
    """

    number: Ints
    key: Ints
    op: Ints
    before: Ints

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, part: slice | Ints) -> Events:
        return Events(self.number[part], self.key[part], self.op[part], self.before[part])


def commit_ts(workload: Workload, number: Ints) -> Ints:
    """TSO of events: every one is a transaction of its own."""
    return ((workload.start_ms + number * 1000 // workload.rate) << 18) + number % 1000


def plan(workload: Workload) -> Events:
    """The events of a workload."""
    draw = {"append": _append, "uniform": _uniform, "hot": _hot, "recent": _recent}[workload.shape]
    # Deletes of absent keys fall out, so a few more are drawn than needed.
    draws = workload.events + workload.events // 5 + 100
    key, is_write = draw(workload, draws, np.random.default_rng(workload.seed))
    frame = pl.DataFrame({"number": np.arange(draws), "key": key, "is_write": is_write})
    frame = frame.with_columns(
        is_alive=pl.col("is_write").shift(1).over("key").fill_null(pl.col("key") < workload.preloaded),
        before=pl.col("number").shift(1).over("key").fill_null(PRELOADED),
    )
    kept = frame.filter(pl.col("is_write") | pl.col("is_alive")).head(workload.events)
    op = pl.when(~pl.col("is_write")).then(DELETE).when(pl.col("is_alive")).then(UPDATE).otherwise(INSERT)
    kept = kept.with_columns(op=op.cast(pl.Int64))
    return Events(*(kept[name].to_numpy() for name in ("number", "key", "op", "before")))


Draw = tuple[Ints, npt.NDArray[np.bool_]]


def _append(workload: Workload, draws: int, rng: np.random.Generator) -> Draw:
    choice = rng.random(draws)
    is_new = choice < 0.70
    made = workload.preloaded + np.cumsum(is_new)
    age = np.floor(np.maximum(made, 1) ** rng.random(draws)).astype(np.int64)
    key = np.where(is_new, made - 1, np.maximum(made - age, 0))
    return key, choice < 0.95


def _uniform(workload: Workload, draws: int, rng: np.random.Generator) -> Draw:
    return rng.integers(0, max(1, workload.preloaded), draws), rng.random(draws) < 0.90


def _hot(workload: Workload, draws: int, rng: np.random.Generator) -> Draw:
    population = max(1, workload.preloaded, workload.events // 10)
    rank = np.floor(population ** rng.random(draws)).astype(np.int64) - 1
    return rank, rng.random(draws) < 0.95


def _recent(workload: Workload, draws: int, rng: np.random.Generator) -> Draw:
    newest = min(max(1, workload.preloaded), 2 * workload.events)
    return workload.preloaded - 1 - rng.integers(0, newest, draws), rng.random(draws) < 0.95
