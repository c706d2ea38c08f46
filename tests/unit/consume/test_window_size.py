"""How many messages a window may hold."""

from __future__ import annotations

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import WindowSize


def test_the_count_is_the_limit_until_messages_are_known_to_be_large() -> None:
    """Small messages leave the count as it is."""
    size = WindowSize(1_000, 1 << 20)
    assert size.messages == 1_000

    size.learn(size=500 * 100, messages=500)

    assert size.messages == 1_000


@pytest.mark.parametrize(("each", "messages"), [(10_000, 78), (1 << 20, 1), (1 << 30, 1)])
def test_large_messages_shorten_the_window(each: int, messages: int) -> None:
    """Three quarters of the bytes are planned for; a message alone is always read."""
    size = WindowSize(1_000, 1 << 20)

    size.learn(size=each * 3, messages=3)

    assert size.messages == messages


def test_no_message_changes_nothing() -> None:
    """An empty window shows nothing about the next messages."""
    size = WindowSize(1_000, 1 << 20)
    size.learn(size=30_000, messages=3)
    size.learn(size=0, messages=0)

    assert size.messages == 78


def test_a_watermark_that_stands_still_allows_more_of_both() -> None:
    """A transaction that is larger than a window is reached in the end."""
    size = WindowSize(1_000, 1 << 20)
    size.learn(size=30_000, messages=3)

    size.adapt(4, is_enough=False)
    assert (size.messages, size.most_bytes) == (156, 2 << 20)
    size.adapt(4, is_enough=False)
    size.adapt(4, is_enough=False)
    assert (size.messages, size.most_bytes) == (312, 4 << 20)
    size.adapt(4, is_enough=True)
    assert (size.messages, size.most_bytes) == (78, 1 << 20)


def test_what_is_decoded_in_the_driver_is_small() -> None:
    """By the bytes of the messages that were read last."""
    size, window = WindowSize(1_000, 1 << 20), Window({TopicPartition("a", 0): OffsetRange(0, 100)})
    assert size.is_small(window)

    size.learn(size=1 << 20, messages=99)

    assert not size.is_small(window)
