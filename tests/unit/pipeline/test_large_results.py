"""A window whose results Spark does not hand over is read in parts, and where no part will do, in another way."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import ResultTooLargeError
from applier.order.feed_order import ORDERS
from applier.pipeline.next_step import StepReader
from applier.pipeline.state import State

PLACE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("stretch", "fits", "scanned"), [(1, 250, [1_000, 500, 250]), (1, 0, [3, 1, 1]), (2, 0, [2_000, 2_000])]
)
def test_a_shorter_window_is_tried_where_it_can_help(stretch: int, fits: int, scanned: list[int]) -> None:
    """A message alone is asked for again, as is a window that was stretched up to its watermark."""
    bounds = {PLACE: OffsetRange(0, max(scanned))}
    targets, config, scanner = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
    targets.feed.order = ORDERS["resolved"]
    config.source.messages_per_step, config.source.bytes_per_step = 1_000, 1 << 30
    seen: list[Window] = []

    def scan(window: Window, *_: object, **__: object) -> str:
        again = window in seen
        seen.append(window)
        if window.messages > fits and not again:
            raise ResultTooLargeError
        return "scanned"

    scanner.scan = scan
    state = State(cast("Any", None), Checkpoint(1, 1, 0, 0, Holder("t", "h")))
    reader = StepReader(config, mock.MagicMock(), scanner, targets, state)
    reader._size.stretch = stretch

    window, found = reader._scan(reader._next_window(bounds), bounds, mock.MagicMock(), mock.MagicMock())

    assert [window.messages for window in seen] == scanned
    assert window == seen[-1]
    assert str(found) == "scanned"
