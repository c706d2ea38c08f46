"""Bad messages are set aside whole, and many of them in few reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.message import MESSAGE_SCHEMA, Messages, TopicPartition, by_place
from applier.consume.window_size import WindowTooLargeError
from applier.errors import DecodeError
from applier.pipeline.dead_letters import set_aside
from applier.pipeline.scan.task_result import BadMessage

if TYPE_CHECKING:
    from applier.changefeed.window import Window
    from applier.consume.source import Source
    from applier.sink.control.control import Control, DeadLetter

ONE, TWO = TopicPartition("feed", 0), TopicPartition("feed", 1)


class _Source:
    """Every offset has a message whose value says which it is."""

    def __init__(self, most: int = 1_000) -> None:
        self.reads: list[Window] = []
        self._most = most

    def collect(self, window: Window) -> Messages:
        self.reads.append(window)
        if window.messages > self._most:
            raise WindowTooLargeError(0, window.messages)
        rows = [
            {"topic": p.topic, "partition": p.partition, "offset": n, "key": None, "value": f"{p}@{n}".encode()}
            for p, span in window.ranges.items()
            for n in range(span.start, span.end)
        ]
        return dict(by_place(pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)))


class _Control:
    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def bury(self, letters: list[DeadLetter]) -> None:
        self.letters += letters


def test_each_bad_message_is_kept_whole_with_its_own_error() -> None:
    """Neighbours are read at once; good messages between them and those of other partitions are not kept."""
    offsets = [(ONE, 5), (TWO, 5), (ONE, 7), (ONE, 90_000), (ONE, 6), (TWO, 200)]
    source, control = _Source(), _Control()
    holder = Holder("token", "host")
    checkpoint = Checkpoint(Lease(1, holder), step=3, resolved_ts=0, written_at=0)

    bad = [BadMessage(p, n, DecodeError(f"{p}:{n}")) for p, n in offsets]
    set_aside(bad, cast("Source", source), cast("Control", control), checkpoint.step + 1)

    kept = {(TopicPartition(item.topic, item.partition), item.offset): item for item in control.letters}
    assert sorted(kept) == sorted(offsets)
    assert len(control.letters) == len(offsets)
    assert all(item.value == f"{p}@{n}".encode() and item.error == f"{p}:{n}" for (p, n), item in kept.items())
    assert {item.step for item in control.letters} == {4}
    assert len(source.reads) == 3
    assert sum(window.messages for window in source.reads) == 3 + 1 + 196


def test_nothing_bad_is_no_read() -> None:
    """A step without a bad message reads and writes nothing for them."""
    source, control = _Source(), _Control()
    holder = Holder("token", "host")
    checkpoint = Checkpoint(Lease(1, holder), step=3, resolved_ts=0, written_at=0)

    set_aside([], cast("Source", source), cast("Control", control), checkpoint.step + 1)

    assert (source.reads, control.letters) == ([], [])


def test_bad_messages_that_are_too_large_together_are_read_in_parts() -> None:
    """A step that was stretched may hold more bad messages near to one another than one read may hold."""
    source, control = _Source(most=3), _Control()
    offsets = [5, 6, 9, 40, 41, 90]

    bad = [BadMessage(ONE, offset, DecodeError(str(offset))) for offset in offsets]
    set_aside(bad, cast("Source", source), cast("Control", control), 4)

    assert [(letter.offset, letter.value, letter.error) for letter in control.letters] == [
        (offset, f"{ONE}@{offset}".encode(), str(offset)) for offset in offsets
    ]
