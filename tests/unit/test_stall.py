"""A watermark that stands still has its reason in one sentence."""

from __future__ import annotations

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.ts import from_unix_ms
from applier.findings import Waiting
from applier.pipeline import Step
from applier.run import behind, stall
from applier.telemetry import StatusLine

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
EARLY, LATE = from_unix_ms(1_795_250_000_000), from_unix_ms(1_795_250_060_000)
STATUS = StatusLine(1, EARLY, 0, 0, 0, 0, 0, 0, {}, {})


def test_a_partition_that_stopped_sending_is_named() -> None:
    """With where it stands, and how far the others are."""
    assert behind({P0: LATE, P1: EARLY, P2: LATE - 1}, EARLY) == (
        f"The watermark is held at {EARLY} (2026-11-21T08:33:20+00:00) by t/1; "
        f"others have come to {LATE} (2026-11-21T08:34:20+00:00)."
    )


def test_a_feed_that_stopped_as_a_whole_is_named() -> None:
    """All partitions stand at the watermark."""
    assert behind({P0: EARLY, P1: EARLY}, EARLY) == (
        f"No partition has sent a watermark above {EARLY} (2026-11-21T08:33:20+00:00): "
        "TiCDC is paused, or does not reach Kafka."
    )


def test_topics_that_are_given_up_are_not_blamed() -> None:
    """A topic without tables stands below the watermark for ever, and does not count."""
    assert " by t/1;" in behind({P0: LATE, P1: EARLY, P2: EARLY - 5}, EARLY)


def test_nothing_is_said_of_a_feed_without_watermarks() -> None:
    """There is nothing that could stand still."""
    assert behind({}, None) == ""
    assert stall(Step(moved=False, complete=True, status=STATUS)) == ""


def test_rows_that_wait_come_before_partitions_that_are_late() -> None:
    """They hold the watermark themselves."""
    waiting = [Waiting(TableName("d", "t"), 7, EARLY, 3, P0)]
    step = Step(moved=False, complete=True, status=STATUS, waiting=waiting, resolved={P0: LATE, P1: EARLY}, mark=EARLY)

    assert stall(step).startswith("Rows wait for a schema that has not come: 3 of table d.t from t/0")
    assert stall(Step(moved=False, complete=True, status=STATUS, silent=[P1])) == "No watermark has ever come from t/1."
