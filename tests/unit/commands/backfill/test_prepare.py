"""What a backfill reads before it begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.ts import from_unix_ms
from applier.changefeed.window import OffsetRange, Window
from applier.commands.backfill.bounds import Range
from applier.commands.backfill.prepare import _begin, _time_of
from applier.consume.window_size import WindowTooLargeError
from applier.ddl.schema_tracker import Tables
from applier.pipeline.state import State
from tests.builders import ACCOUNT
from tests.lab import Memory

MOMENTS = {0: datetime(2026, 3, 1, tzinfo=UTC), 1: datetime(2026, 2, 1, tzinfo=UTC)}


class _Large(Memory):
    """Messages that can only be read one at a time."""

    def collect(self, window: Window) -> Messages:
        if window.messages > 1:
            raise WindowTooLargeError(size=1 << 30, messages=window.messages)
        return super().collect(window)


def test_the_time_of_a_range_is_found_however_large_its_first_messages_are() -> None:
    """That of the earliest first message; those of all partitions need not fit into one step."""
    source = _Large(
        [
            {"topic": "t", "partition": partition, "offset": 0, "timestamp": moment, "key": None, "value": b"x"}
            for partition, moment in MOMENTS.items()
        ]
    )

    found = _time_of(source, {TopicPartition("t", partition): OffsetRange(0, 1) for partition in MOMENTS})

    assert found == from_unix_ms(int(MOMENTS[1].timestamp() * 1000))


class _Control:
    """Takes what is written."""

    def save_versions(self, versions: Any) -> None:
        """See `Control`."""

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Control`."""


def test_a_backfill_knows_the_ddl_in_front_of_its_range() -> None:
    """In offset order a row of before such a DDL may have been sent again into the range."""
    place = TopicPartition("t", 0)
    passed = {ACCOUNT: {place: 7}}
    first = Checkpoint(1, 0, 0, 0, Holder("h", "h"))
    main = State(cast("Any", _Control()), Checkpoint(1, 4, 0, 0, Holder("h", "h"), passed=passed))
    job = State(cast("Any", _Control()), first)

    _begin(job, main, Range({place: OffsetRange(3, 9)}), Tables())

    assert job.checkpoint.passed == passed
