"""What is read one record at a time, where a fetch does not fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.consume.kafka.client import read_one_by_one

if TYPE_CHECKING:
    from applier.consume.kafka.records import KafkaRecords

PLACE = TopicPartition("feed", 0)


class OutOfMemoryError(Exception):
    """Named as Java's."""


class _Records:
    """Takes records of so many bytes each, from offset 5 on; does not fit where they are too large."""

    def __init__(self, each: int, begun: int = 0) -> None:
        self.bytes = begun
        self.offsets: list[int] = []
        self.unreadable: list[int] = []
        self._each = each

    def poll(self, too_large: frozenset[int], _milliseconds: int) -> dict[TopicPartition, int]:
        at = 5 + len(self.offsets)
        if at in too_large:
            raise OutOfMemoryError
        self.bytes += self._each
        self.offsets.append(at)
        return {PLACE: at + 1}

    def add_unreadable(self, _place: TopicPartition, offset: int) -> None:
        self.unreadable.append(offset)


def read(records: _Records, end: int, most: int = 1_000, too_large: frozenset[int] = frozenset()) -> int:
    """The offset to read next, after a read from offset 5 on."""
    return read_one_by_one(too_large, PLACE, OffsetRange(5, end), cast("KafkaRecords", records), most)


def test_records_are_read_up_to_the_end_of_the_window() -> None:
    """And none behind it."""
    records = _Records(10)

    assert read(records, 9) == 9
    assert records.offsets == [5, 6, 7, 8]


def test_the_record_that_does_not_fit_alone_ends_the_read_behind_it() -> None:
    """Those before it are kept, and its place is."""
    records = _Records(10)

    assert read(records, 100, too_large=frozenset({7})) == 8
    assert (records.offsets, records.unreadable) == ([5, 6], [7])


@pytest.mark.parametrize("begun", [0, 500])
def test_the_read_ends_once_it_has_enough_bytes(begun: int) -> None:
    """Records that fit are never collected until the array that holds them is full: one would look unreadable then."""
    records = _Records(400, begun)

    assert read(records, 100, most=begun + 1_000) == 8
    assert (records.offsets, records.unreadable) == ([5, 6, 7], [])
