"""Messages read beyond a window: each belongs to one window only, gaps among the offsets included."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA
from applier.changefeed.window import OffsetRange
from applier.consume.kafka.client import Overfetch

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _messages(*offsets: int) -> pa.Table:
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "timestamp": _AT, "key": None, "value": b"%d" % at}
        for at in offsets
    ]
    return pa.Table.from_pylist(rows, MESSAGE_SCHEMA)


READ = Overfetch(OffsetRange(10, 20), _messages(10, 11, 14, 15, 18))


@pytest.mark.parametrize(
    ("end", "inside", "left"),
    [
        (10, [], [10, 11, 14, 15, 18]),
        (12, [10, 11], [14, 15, 18]),
        (15, [10, 11, 14], [15, 18]),
        (19, [10, 11, 14, 15, 18], []),
    ],
)
def test_what_is_not_inside_is_kept(end: int, inside: list[int], left: list[int]) -> None:
    """Where only offsets without a message are left, they count as read all the same."""
    assert READ.within(end)["offset"].to_pylist() == inside
    rest = READ.beyond(end)
    assert rest is not None
    assert rest.span == OffsetRange(end, 20)
    assert rest.messages.equals(_messages(*left))


@pytest.mark.parametrize("end", [20, 25])
def test_nothing_is_kept_of_what_is_all_inside(end: int) -> None:
    """The next window begins with Kafka."""
    assert READ.within(end).equals(READ.messages)
    assert READ.beyond(end) is None


def test_the_rest_does_not_hold_what_was_read_with_it() -> None:
    """A slice would keep all of it in memory."""
    wide = Overfetch(OffsetRange(0, 10_000), _messages(*range(10_000)))
    rest = wide.beyond(9_990)
    assert rest is not None
    assert rest.messages.get_total_buffer_size() < wide.messages.get_total_buffer_size() / 10
