"""Whether a source still holds everything since a commit ts, and where it is read from then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.event import Event, Resolved
from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.ts import from_unix_ms
from applier.changefeed.window import OffsetRange, Window
from applier.consume.source import Source
from applier.decode.decoder import Decoder
from applier.errors import DecodeError, SourceLost
from applier.pipeline.since import newest, since

PLACE = TopicPartition("shop", 0)
NOW = 1_790_000_000_000
TS = from_unix_ms(NOW)


@dataclass
class Fake:
    """A partition that begins at an offset, with watermarks in milliseconds from now on; None is another message."""

    start: int
    marks: Sequence[int | None]
    at: int = 0
    asked: list[int] = field(default_factory=list)

    def bounds(self) -> dict[TopicPartition, OffsetRange]:
        """Of the partition."""
        return {PLACE: OffsetRange(self.start, self.start + len(self.marks))}

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> None:
        """Messages show it."""

    def offsets_at(self, milliseconds: int) -> dict[TopicPartition, int]:
        """What was set."""
        self.asked.append(milliseconds)
        return {PLACE: self.at}

    def collect(self, window: Window) -> Messages:
        """The messages of a window, each a mark."""
        begin, end = window.ranges[PLACE]
        marks = self.marks[begin - self.start : end - self.start]
        names = ("topic", "partition", "key", "value")
        rows = [dict(zip(names, ("shop", 0, None, mark), strict=True)) for mark in marks]
        return {PLACE: pa.Table.from_pylist(rows)} if rows else {}

    def decode(self, key: Any, value: Any) -> list[Event]:
        """The watermark of a message."""
        del key
        if value is None:
            raise DecodeError("A message is broken.")
        return [Resolved(from_unix_ms(NOW + value))]


def _found(fake: Fake) -> dict[TopicPartition, Reading]:
    return since(cast("Source", fake), TS, cast("Decoder", fake))


def test_it_is_read_from_a_minute_earlier() -> None:
    """Clocks differ; what lies before is left out by its commit ts."""
    fake = Fake(100, [5, 6], at=101)
    assert _found(fake) == {PLACE: Reading(101)}
    assert fake.asked == [NOW - 60_000]


def test_a_partition_with_its_first_message_has_everything() -> None:
    """TiCDC has never sent more."""
    assert _found(Fake(0, [5])) == {PLACE: Reading(0)}


def test_a_watermark_at_the_beginning_proves_it() -> None:
    """Whatever the records say of their time; broken messages prove nothing."""
    assert _found(Fake(100, [None, -1, 5], at=100)) == {PLACE: Reading(100)}
    assert _found(Fake(100, [0], at=100)) == {PLACE: Reading(100)}


@pytest.mark.parametrize(
    ("marks", "sentence"),
    [
        ([5], "shop/0 begins at resolved ts .* the messages between them are gone."),
        ([None], "Nothing shows that shop/0 still holds the messages since resolved ts "),
        ([], "Nothing shows that shop/0 still holds the messages since resolved ts "),
    ],
)
def test_what_is_not_proven_is_refused(marks: list[int | None], sentence: str) -> None:
    """With a way out."""
    with pytest.raises(SourceLost, match=sentence) as refusal:
        _found(Fake(100, marks, at=100))
    assert "Export the tables again" in refusal.value.hint


def test_an_archive_is_taken_for_all_that_is_needed() -> None:
    """Its maker chose what it holds."""
    assert since(cast("Source", Fake(100, [5], at=100)), TS, None) == {PLACE: Reading(100)}


def test_the_newest_watermark_is_that_of_all_partitions() -> None:
    """None where there is none."""
    fake = Fake(100, [5, 7])
    assert newest(cast("Source", fake), lambda: cast("Decoder", fake)) == from_unix_ms(NOW + 7)
    silent = Fake(100, [None])
    assert newest(cast("Source", silent), lambda: cast("Decoder", silent)) is None
