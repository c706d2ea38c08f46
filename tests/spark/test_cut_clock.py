"""Each snapshot of a changefeed is younger than the newest cut: the rule by which a commit waits for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.errors import TransientError
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.clock import Clock
from applier.sink.iceberg.maintenance import rewrite_manifests, snapshot_times
from tests.spark.test_sink_commit import Case

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]

NOW, MINUTE = 1_795_250_000_000, 60_000


@pytest.fixture
def lake(lake: Catalog) -> Any:
    """The catalog, with times of its own: other tests must not wait for those of a test here."""
    kept, lake.java.clock = lake.java.clock, Clock()
    yield lake
    lake.java.clock = kept


@pytest.mark.parametrize(
    ("time_of_newest", "wait"),
    [(NOW - 5, 0), (NOW - 1, 0), (NOW, 1), (NOW + 1, 2), (NOW + 700, 701), (NOW + MINUTE, MINUTE + 1)],
)
def test_a_commit_waits_until_the_clock_is_above(lake: Catalog, time_of_newest: int, wait: int) -> None:
    """In the same millisecond it waits for the next one; a clock that stepped back by up to a minute catches up."""
    assert lake.java.own.PreparedCommit.waiting(NOW, time_of_newest) == wait


def test_a_snapshot_that_got_an_old_time_is_not_shown(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """The clock may step back behind the wait."""
    case = Case(spark, lake, fresh_name())
    head = case.writer.table.handle.currentSnapshot()
    at = int(head.timestampMillis())

    lake.java.own.PreparedCommit.refuseOld(head, at - 1)
    with pytest.raises(Exception, match="the clock of this machine was set back meanwhile"):
        lake.java.own.PreparedCommit.refuseOld(head, at)


def test_rows_and_maintenance_come_after_the_cut(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """The clock is behind the cut, as after a take-over by another machine: each kind of commit waits for it."""
    case = Case(spark, lake, fresh_name())
    clock, table = lake.java.clock, case.writer.table
    assert clock.cut() == max(snapshot_times(table).values())

    def moved(work: Callable[[], object]) -> None:
        after = time.time_ns() // 1_000_000 + 400
        clock.begin(after)
        before = snapshot_times(table)
        work()
        table.refresh()
        times = snapshot_times(table)
        assert [times[it] for it in times.keys() - before.keys()], "nothing was committed"
        assert all(times[it] > after for it in times.keys() - before.keys())
        case.writer.reload()

    moved(case.apply)
    moved(lambda: case.writer.stamp(Stamp("shop", 2, case.ts)))
    moved(lambda: rewrite_manifests(table, Stamp("shop", 2, case.ts), table.snapshot_id or 0))
    case.check()


def test_a_clock_that_is_further_behind_ends_the_step_in_one_sentence(
    spark: SparkSession, lake: Catalog, fresh_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed."""
    case = Case(spark, lake, fresh_name())
    before = snapshot_times(case.writer.table)
    lake.java.clock.begin(time.time_ns() // 1_000_000 + 2 * MINUTE)
    monkeypatch.setattr("applier.sink.commit.committer.ATTEMPTS", 1)

    with pytest.raises(TransientError, match=r"the clock of this machine is 1[12]\d s behind .*: set the clock"):
        case.apply()

    case.writer.table.refresh()
    assert snapshot_times(case.writer.table) == before
