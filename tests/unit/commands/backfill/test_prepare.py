"""What a backfill reads before it begins."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import from_unix_ms
from applier.changefeed.window import OffsetRange, Window
from applier.commands.backfill.prepare import _time_of
from applier.consume.window_size import WindowTooLargeError
from tests.lab import Memory

MOMENTS = {0: datetime(2026, 3, 1, tzinfo=UTC), 1: datetime(2026, 2, 1, tzinfo=UTC)}


class _Large(Memory):
    """Messages that can only be read one at a time."""

    def collect(self, window: Window) -> pa.Table:
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
