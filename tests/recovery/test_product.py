"""Every kind of past, killed at every point: started again, each checkpoint is what the database held."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from applier.commands.follower import Follower
from applier.errors import TransientError
from tests.disasters import FAILURES, Crash, Disasters, Failure
from tests.lab import Lab
from tests.recovery.cases import CASES
from tests.recovery.extent import EVERYTHING, every
from tests.recovery.snapshots import repeated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    *("read", "decoded", "table-ensured", "data-files-staged", "commit-sent", "commit-done", "applied"),
    *("ddl-due", "ddl-applied", "ddl-recorded"),
)
"""All kill points that more than one case comes to."""

TURNS = (1, 2, 4, 7)
"""The n-th time that a point is reached."""

ONE_EACH = [
    ("inserts", "read", 2),
    ("hot-keys", "decoded", 2),
    ("key-swaps", "data-files-staged", 2),
    ("key-swaps-raw", "commit-done", 2),
    ("columns", "ddl-due", 2),
    ("rebuilds", "commit-sent", 2),
    ("tables", "ddl-applied", 2),
    ("partitions", "half-exchanged", 1),
    ("many-tables", "commit-done", 2),
    ("bag", "applied", 2),
    ("replays", "ddl-recorded", 2),
    ("bag-by-offset", "commit-sent", 2),
    ("bag-changes-by-offset", "table-ensured", 2),
    ("tables-by-offset", "ddl-recorded", 2),
]
"""A kill of each kind of past that no other test of `make test` kills."""

CRASHES = [*itertools.product(CASES, POINTS, TURNS), ("partitions", "half-exchanged", 1)] if EVERYTHING else ONE_EACH

SAMPLE = [("parked", "request-taken", 1), ("parked-elsewhere", "resume-shown", 1)]

BACK = (
    *("request-taken", "request-done", "resume-begun", "resume-taken-in", "resume-range-read", "resume-shown"),
    *("resume-done", *POINTS),
)

COMING_BACK = list(itertools.product(("parked", "parked-elsewhere"), BACK, TURNS)) if EVERYTHING else SAMPLE
"""The same from the request on that brings parked tables back."""

BROKEN_BACK = list(itertools.product(("parked", "parked-elsewhere"), FAILURES, range(1, 12) if EVERYTHING else (2, 7)))

IN_A_RENAME = list(itertools.product(("names", "names-parked"), range(14, 44), (1, 4, 9)))
"""Kills at the n-th commit, and again at the n-th point after it."""

OUTAGES = list(itertools.product(CASES, FAILURES, (1, 3, 5, 8) if EVERYTHING else (5,)))


@pytest.mark.parametrize(("case", "point", "turn"), CRASHES)
def test_killed_at_a_point(case: str, point: str, turn: int, spark: SparkSession, disasters: Disasters) -> None:
    """Each cell is right at each checkpoint; the point was reached, or there is none in this case."""
    lab = CASES[case].lab(spark, f"kill_{case}_{point}_{turn}".replace("-", "_"))
    disasters.crash(point, turn)

    _finish(lab, disasters)

    assert disasters.struck == {f"die at {point}": 1} or (EVERYTHING and disasters.reached[point] < turn)
    assert disasters.reached["decoded"] > 0


@pytest.mark.parametrize(("case", "first", "second"), every(IN_A_RENAME, 120))
def test_killed_twice_while_names_change_hands(
    case: str, first: int, second: int, spark: SparkSession, disasters: Disasters
) -> None:
    """A name without its table proves no drop while a statement that moves it is half done, nor does another's table.

    A parked table whose copy is under way may be moved, too.
    """
    lab = CASES[case].lab(spark, f"names_{case}_{first}_{second}".replace("-", "_"))
    disasters.crash("commit-sent", first)

    _finish(lab, disasters, after_crash=lambda: disasters.crash("", second))

    assert disasters.struck.total() > 0


@pytest.mark.parametrize(("case", "failure", "turn"), every(OUTAGES, 23))
def test_catalog_fails_in_a_step(
    case: str, failure: Failure, turn: int, spark: SparkSession, disasters: Disasters
) -> None:
    """A change whose answer was lost, that was never made, that came second, or a catalog that is down."""
    lab = CASES[case].lab(spark, f"fail_{case}_{failure}_{turn}".replace("-", "_"))
    disasters.fail(failure, turn)

    _finish(lab, disasters)

    assert disasters.struck.total() > 0


@pytest.mark.parametrize(("case", "point", "turn"), COMING_BACK)
def test_killed_while_tables_come_back(
    case: str, point: str, turn: int, spark: SparkSession, disasters: Disasters
) -> None:
    """Parked tables come back all the same, each whole, and no snapshot of theirs counts twice."""
    lab = CASES[case].lab(spark, f"back_{case}_{point}_{turn}".replace("-", "_"))

    _finish(lab, disasters, lambda: disasters.crash(point, turn))

    assert disasters.struck == {f"die at {point}": 1} or turn > 1


@pytest.mark.parametrize(("case", "failure", "turn"), every(BROKEN_BACK[::-1], 16))
def test_catalog_fails_while_tables_come_back(
    case: str, failure: Failure, turn: int, spark: SparkSession, disasters: Disasters
) -> None:
    """Parked tables come back all the same, each whole, and no snapshot of theirs counts twice."""
    lab = CASES[case].lab(spark, f"broken_{case}_{failure}_{turn}".replace("-", "_"))

    _finish(lab, disasters, lambda: disasters.fail(failure, turn))

    assert disasters.struck.total() > 0


def _finish(
    lab: Lab,
    disasters: Disasters,
    at_resume: Callable[[], None] | None = None,
    after_crash: Callable[[], None] | None = None,
) -> None:
    """Run to the end, started again after a crash and tried again after an outage; more goes wrong once for each."""
    follower: Follower | None = None
    while True:
        try:
            follower = follower or Follower(lab.start())
            pipeline, step = follower.pipeline, follower.turn()
            request = lab.next_request(pipeline)
            if request is not None:
                if request.kind == "resume" and at_resume is not None:
                    at_resume()
                    at_resume = None
                lab.carry_out(pipeline, request)
        except Crash:
            follower = None
            disasters.mend()
            if after_crash is not None:
                after_crash()
                after_crash = None
            continue
        except TransientError:
            disasters.mend()
            continue
        # After a crash tables may be ahead of the checkpoint, until a step has come as far.
        if step.moved or not pipeline.state.ahead:
            lab.check(pipeline)
        if step.complete and not step.moved and not step.resuming and request is None:
            break
    assert lab.order == "offset" or pipeline.state.resolved_ts == lab.database.ts
    lab.check(pipeline)
    lab.check_all_back(pipeline)
    assert [line for name, table in lab.tables().items() for line in repeated(str(name), table.metadata)] == []
