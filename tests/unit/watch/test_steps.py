"""The newest steps, as the checkpoints show them, and why the lag is what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.ts import from_unix_ms
from applier.order.feed_order import ORDERS
from applier.watch.progress import explained, moved
from applier.watch.report import HolderReport, PartitionProgress, StatusReport, StepProgress

NOW = 1_700_000_000_000
ORDER = ORDERS["resolved"]


def checkpoint(step: int, second: int, **changes: Any) -> Checkpoint:
    """A checkpoint that was written a second after its resolved ts, which is that of so many seconds."""
    at = NOW + second * 1000
    return replace(Checkpoint(Lease(1, Holder("t", "h")), step, from_unix_ms(at), at + 1000), **changes)


def test_steps_are_those_that_moved() -> None:
    """A heartbeat repeats the checkpoint before it, and the oldest has none to compare it with."""
    found = [checkpoint(5, 2), checkpoint(4, 1, written_at=NOW + 60_000), checkpoint(3, 1), checkpoint(2, 0)]

    assert [step.step for step in moved(found, ORDER)] == [5, 3]
    assert [step.lag_seconds for step in moved(found, ORDER)] == [1.0, 1.0]


def test_a_partition_that_is_new_to_a_topic_is_no_step() -> None:
    """The checkpoint has it before anything moves."""
    new = {TopicPartition("shop", 1): Reading(0, None)}
    found = [checkpoint(4, 1, partitions=new), checkpoint(3, 1), checkpoint(2, 0)]

    assert [step.step for step in moved(found, ORDER)] == [3]


def test_in_offset_order_the_places_show_what_moved() -> None:
    """There is no resolved ts, and so no lag."""
    places = [{TopicPartition("shop", 0): Reading(offset, None)} for offset in (9, 9, 7)]
    found = [
        checkpoint(step, 0, resolved_ts=0, partitions=place) for step, place in zip((3, 2, 1), places, strict=True)
    ]

    assert [(step.step, step.lag_seconds) for step in moved(found, ORDERS["offset"])] == [(2, None)]


def test_a_checkpoint_has_the_time_of_the_one_before() -> None:
    """That of the newest is not known yet."""
    counts = {"messages": 5, "applied": 4, "tables": 2, "backlog": 0, "apply_ms": 1500, "checkpoint_ms": 250}
    found = [checkpoint(step, step, counts=counts) for step in (3, 2, 1)]

    newest, older = moved(found, ORDER)

    assert (newest.messages, newest.rows, newest.tables, newest.backlog) == (5, 4, 2, 0)
    assert (newest.seconds, older.seconds) == ({"apply": 1.5}, {"apply": 1.5, "checkpoint": 0.25})


def test_what_an_older_version_did_not_write_is_unknown() -> None:
    """Neither its backlog nor its time is zero."""
    (step,) = moved([checkpoint(2, 1, counts={"messages": 5}), checkpoint(1, 0)], ORDER)

    assert (step.backlog, step.seconds) == (None, {})


def report(
    steps: Sequence[StepProgress], lag: float | None = 1.0, ages: Sequence[int | None] = (0,), **changes: Any
) -> StatusReport:
    """A report with a lag, and partitions that sent a resolved ts so many seconds ago."""
    sent = [None if seconds is None else from_unix_ms(NOW - seconds * 1000) for seconds in ages]
    holder = HolderReport("process 1 on h", "h", 1, 1, "", "", 1.0, released=False)
    found = StatusReport("shop", 300.0, "", resolved_ts=from_unix_ms(NOW), lag_seconds=lag, holder=holder)
    partitions = tuple(PartitionProgress("shop", index, 7, ts, None) for index, ts in enumerate(sent))
    return replace(found, steps=tuple(steps), partitions=partitions, **changes)


def steps(*backlogs: int | None, seconds: Mapping[str, float] | None = None) -> list[StepProgress]:
    """Steps with these backlogs, newest first."""
    spent = seconds if seconds is not None else {"apply": 1.0, "read": 1.0, "decode": 1.0}
    return [StepProgress(9, "", 1.0, 10, 10, 3, backlog, spent) for backlog in backlogs]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (report(steps(0, 0, 0)), None),
        (report(steps(500, 900, 0)), None),
        (report(steps(22_005, 22_000, 21_999)), None),
        (report([]), None),
        (report(steps(None, None, None, seconds={}), lag=900), None),
        (
            report(steps(0, 0, seconds={"apply": 4.0, "read": 1.0})),
            (
                "Apply takes 80% of the steps' time: "
                "a step made 3 commits of rows on average, one for each table that got some."
            ),
        ),
        (
            report(steps(900, 500, 100), lag=60),
            "The backlog grows, from 100 to 900 messages in 3 steps: the source sends more than the steps apply.",
        ),
        (
            report(steps(900, 500, 100, seconds={"decode": 1.0}), lag=60),
            (
                "The backlog grows, from 100 to 900 messages in 3 steps: the source sends more than the steps apply; "
                "decode takes 100% of the steps' time: more cores decode faster."
            ),
        ),
        (report(steps(0, 0, 0), lag=60), None),
        (
            report(steps(0, 0), lag=60, ages=(0, 45)),
            "Partition shop/1 holds the watermark back: it is 45 s behind the others.",
        ),
        (
            report(steps(0, 0), lag=None, ages=(0, None)),
            "Partition shop/1 holds the watermark back: it has sent no resolved ts.",
        ),
    ],
)
def test_one_sentence_says_why(found: StatusReport, sentence: str | None) -> None:
    """Where the steps show it; nothing is made up from figures that are unknown."""
    assert explained(found, found.partitions) == sentence


def test_without_an_applier_the_steps_are_not_the_reason() -> None:
    """The last one may have been slow, but there is none now."""
    found = report(steps(0), lag=900)
    assert found.holder is not None

    released = replace(found, holder=replace(found.holder, released=True))

    assert explained(released, released.partitions) == "No applier follows the changefeed now, so the lag grows."


def test_a_partition_is_named_also_where_no_step_is_left_to_look_at() -> None:
    """Heartbeats alone are among the newest checkpoints, ten minutes after the last step."""
    found = report([], lag=900, ages=(0, None))

    assert explained(found, found.partitions) == (
        "Partition shop/1 holds the watermark back: it has sent no resolved ts."
    )
    assert explained(found, found.partitions[:1]) is None
