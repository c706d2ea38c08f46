"""A step that takes longer than the lease: its applier lives, nobody gets its changefeed, and its work counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.message import Messages
from applier.changefeed.window import Window
from applier.errors import CheckpointConflict
from applier.pipeline.heartbeat import beating
from applier.sink.control.control import Control, unix_ms
from applier.sink.control.lease import this_process
from applier.sink.iceberg.catalog import Catalog
from tests.lab import CATALOG, Lab, Memory
from tests.recovery.cases import CASES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE = 1.0
"""Seconds; how long a beat really takes decides nothing here."""


@pytest.fixture
def before_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Makes the source give no message until something has been done, once."""
    real = Memory.collect

    def install(action: Callable[[], None]) -> None:
        actions = [action]

        def collect(source: Memory, window: Window) -> Messages:
            while actions:
                actions.pop()()
            return real(source, window)

        monkeypatch.setattr(Memory, "collect", collect)

    return install


def rival(spark: SparkSession, lab: Lab) -> Control:
    """The control tables as another process sees them."""
    return Control.open(Catalog(spark, CATALOG), lab.name)


def test_a_step_that_is_longer_than_the_lease_keeps_the_changefeed(
    spark: SparkSession, before_reading: Callable[[Callable[[], None]], None]
) -> None:
    """A second applier that comes after the lease, in the middle of the step, is refused; the step is whole."""
    lab = CASES["inserts"].lab(spark, "long_step")
    pipeline = lab.start()
    taken = pipeline.state.checkpoint.written_at
    refusals: list[str] = []

    def outlast() -> None:
        other = rival(spark, lab)
        deadline = time.monotonic() + 60
        while (last := other.last_checkpoint()) is None or last.written_at <= taken + LEASE * 1000:
            assert time.monotonic() < deadline, "nothing has beaten"
            time.sleep(0.05)
        with pytest.raises(CheckpointConflict) as refused:
            other.take(replace(this_process(unix_ms()), host="elsewhere"), LEASE, now=last.written_at + 1)
        refusals.append(str(refused.value))

    before_reading(outlast)
    with beating(pipeline.state, 0.1):
        assert pipeline.step().moved
        lab.check(pipeline)

    assert len(refusals) == 1
    assert "The changefeed is held by process" in refusals[0]
    assert "That process seems to be at work" in refusals[0]
    last = rival(spark, lab).last_checkpoint()
    assert last is not None
    assert replace(pipeline.state.checkpoint, control_rows={}) == replace(last, control_rows={})


def test_a_step_whose_changefeed_was_taken_meanwhile_writes_nothing(
    spark: SparkSession, before_reading: Callable[[Callable[[], None]], None]
) -> None:
    """The beat finds it out in the middle of the step, and the next write of the step is refused."""
    lab = CASES["inserts"].lab(spark, "lost_step")
    pipeline = lab.start()

    def lose() -> None:
        rival(spark, lab).take(replace(this_process(unix_ms()), host="elsewhere"), take_over=True)
        for thread in threading.enumerate():
            if thread.name == "heartbeat":
                thread.join(60)
                assert not thread.is_alive(), "it beats although another process has the changefeed"

    before_reading(lose)
    taken = pytest.raises(CheckpointConflict, match=r"was taken by process \d+ on elsewhere")
    with beating(pipeline.state, 0.1), taken:
        pipeline.step()

    assert lab.tables() == {}
