"""How many messages a window may hold."""

from __future__ import annotations

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.tasks.plan import TASK_BYTES, TASK_MESSAGES
from applier.consume.window_size import LONGEST, NO_LIMIT, Limits, WindowSize


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


def test_the_bytes_of_a_window_are_those_of_the_messages_before_it() -> None:
    """4 KiB each before any was read."""
    size, window = WindowSize(1_000, 1 << 20), Window({TopicPartition("a", 0): OffsetRange(0, 100)})
    assert size.bytes_of(window) == 100 * 4096

    size.learn(size=1 << 20, messages=64)

    assert size.bytes_of(window) == 100 << 14


def test_a_window_has_a_share_for_each_process_that_decodes() -> None:
    """At most as many as it may be stretched to; a partition that one task reads has one of them."""
    size = WindowSize(1_000, 1 << 20, shares=16)
    assert (size.messages, size.share, size.most_bytes) == (16_000, 1_000, 1 << 20)

    size.adapt(LONGEST, is_enough=False)
    assert (size.messages, size.share, size.most_bytes) == (32_000, 2_000, 2 << 20)
    for _ in range(9):
        size.adapt(LONGEST, is_enough=False)
    assert (size.times, size.stretch) == (LONGEST, 4)

    size.shares = 1_000
    size.adapt(LONGEST, is_enough=True)
    assert (size.messages, size.share) == (64_000, 1_000)


def test_the_share_of_a_whole_partition_grows_however_many_processes_decode() -> None:
    """A transaction may be longer than it, and no other process can take a part of it."""
    size = WindowSize(1_000, 1 << 20, shares=LONGEST)
    assert size.is_longest(LONGEST)
    size.is_by_share = True

    for _ in range(9):
        assert size.messages == LONGEST * 1_000
        size.adapt(LONGEST, is_enough=False)

    assert size.share == LONGEST * 1_000
    assert size.is_longest(LONGEST)


def test_tasks_take_fewer_large_messages() -> None:
    """About a second of work either way; a window that cannot be shorter may be read in one process."""
    size = WindowSize(500_000, 1 << 30)
    assert size.limits(size.most_bytes) == Limits(1 << 30, TASK_BYTES // 4096, 500_000)  # They may have any size yet.
    size.learn(size=1 << 20, messages=1 << 14)
    assert size.limits(size.most_bytes).at_once == TASK_MESSAGES
    size.learn(size=1 << 20, messages=64)
    assert size.limits(size.most_bytes).at_once == TASK_BYTES // (1 << 14)
    assert size.limits(NO_LIMIT).here == NO_LIMIT
