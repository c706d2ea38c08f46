"""The search for a resolved ts from the ends of partitions."""

from __future__ import annotations

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.pipeline.scan.watermarks import TAIL_MESSAGES, resolved_near_ends

PLACE = TopicPartition("t", 0)


def test_a_search_that_widens_reads_no_message_again() -> None:
    """Down to the start, where nothing is found."""
    spans: list[OffsetRange] = []

    def read(window: Window) -> Messages:
        spans.append(window.ranges[PLACE])
        return {}

    window = Window({PLACE: OffsetRange(7, 10_000)})

    assert resolved_near_ends(window, read, lambda: None) == {}  # type: ignore[arg-type, return-value]
    assert len(spans[0]) == TAIL_MESSAGES
    assert [offset for span in reversed(spans) for offset in range(*span)] == list(range(7, 10_000))
