"""Bounds of a range: offsets, times and resolved ts."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import CLOCK_SKEW_MS, from_unix_ms
from applier.changefeed.window import OffsetRange
from applier.commands.backfill.request import OPEN, Bound, Range, parse, resolve
from applier.errors import ConfigError, SourceLost

A, B = TopicPartition("shop", 0), TopicPartition("shop", 1)
OTHER = TopicPartition("other", 0)
BOUNDS = {A: OffsetRange(0, 100), B: OffsetRange(20, 80)}
NOON = from_unix_ms(1_769_860_800_000)


def resolved(begin: str, end: str, bounds: Mapping[TopicPartition, OffsetRange] = BOUNDS) -> Range:
    """The range of two texts; partition 0 has the time at offset 30, partition 1 at 40."""
    source: Any = SimpleNamespace(offsets_at=lambda _: {A: 30, B: 40, OTHER: 7})
    return resolve(parse(begin, "--from", "beginning"), parse(end, "--to", "end"), source, bounds)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("0:100,1:250", Bound("0:100,1:250", {(None, 0): 100, (None, 1): 250})),
        ("shop:0:100, other:0:5", Bound("shop:0:100, other:0:5", {("shop", 0): 100, ("other", 0): 5})),
        (str(NOON), Bound(str(NOON), resolved_ts=NOON)),
        ("2026-01-31T12:00:00Z", Bound("2026-01-31T12:00:00Z", resolved_ts=NOON)),
        ("2026-01-31 12:00:00", Bound("2026-01-31 12:00:00", resolved_ts=NOON)),
        ("2026-01-31T20:00:00+08:00", Bound("2026-01-31T20:00:00+08:00", resolved_ts=NOON)),
        ("beginning", Bound("beginning")),
    ],
)
def test_forms_of_a_bound(text: str, bound: Bound) -> None:
    """Offsets per partition, with and without topic, times, resolved ts and the edge are told apart."""
    assert parse(text, "--from", "beginning") == bound


@pytest.mark.parametrize("text", ["", "yesterday", "0:1,0:2", "0:x", "end", "1.5"])
def test_what_is_no_bound_is_refused_with_the_forms(text: str) -> None:
    """The sentence shows what can be given."""
    with pytest.raises(ConfigError, match=r"is no bound: give 0:100,1:250 \(partition:offset\)"):
        parse(text, "--from", "beginning")


def test_a_small_number_is_taken_for_a_forgotten_partition() -> None:
    """100 is no resolved ts of any database."""
    with pytest.raises(ConfigError, match="100 is too small for a resolved ts: give offsets as partition:offset"):
        parse("100", "--to", "end")


def test_offsets_are_taken_as_they_are() -> None:
    """No row is left out by its commit ts."""
    assert resolved("0:10,1:20", "0:50,1:80") == Range(
        {A: OffsetRange(10, 50), B: OffsetRange(20, 80)}, 0, OPEN, "0:10,1:20 to 0:50,1:80"
    )


def test_a_time_begins_where_its_rows_can_be_and_ends_by_commit_ts() -> None:
    """Offsets come from the records' time, with room for clocks that differ; the commit ts decides on rows."""
    asked: list[int] = []

    def at(milliseconds: int) -> dict[TopicPartition, int]:
        asked.append(milliseconds)
        return {A: 30, B: 40}

    source: Any = SimpleNamespace(offsets_at=at)
    found = resolve(Bound("a", resolved_ts=NOON), Bound("b", resolved_ts=NOON + 5), source, BOUNDS)

    assert asked == [1_769_860_800_000 - CLOCK_SKEW_MS]
    assert found == Range({A: OffsetRange(30, 100), B: OffsetRange(40, 80)}, NOON, NOON + 5, "a to b")


def test_the_edges_are_all_that_the_source_has() -> None:
    """From the first offset kept to the end."""
    assert resolved("beginning", "end").spans == BOUNDS


def test_a_time_of_which_the_source_may_have_lost_rows_is_refused() -> None:
    """Partition 1 begins at offset 20, and the time's first record is that very one."""
    source: Any = SimpleNamespace(offsets_at=lambda _: {A: 0, B: 20})
    with pytest.raises(
        SourceLost, match="begins at offset 20 of shop/1, and what was sent at .* may lie before it.*--archive"
    ):
        resolve(Bound("a", resolved_ts=NOON), Bound("end"), source, BOUNDS)


def test_deleted_offsets_are_named_with_the_archive_as_the_way_out() -> None:
    """Kafka's retention took them."""
    with pytest.raises(SourceLost, match="Offsets 5 to 19 of shop/1 were deleted from the source.*--archive"):
        resolved("0:0,1:5", "end")


def test_offsets_that_are_still_to_come_are_refused() -> None:
    """A range that has not been written cannot be replayed."""
    with pytest.raises(SourceLost, match="Offset 101 of shop/0 is not there yet: the partition ends at 100"):
        resolved("0:0,1:20", "0:101,1:80")


@pytest.mark.parametrize(
    ("begin", "end", "sentence"),
    [
        ("0:1", "end", "--from: the offset of partition shop/1 is missing; each partition needs one"),
        ("0:1,1:20,2:0", "end", "--from: the source has no partition shop/2"),
        ("0:50,1:50", "0:40,1:60", "The range from 0:50,1:50 to 0:40,1:60 ends before it begins"),
        (str(NOON), str(NOON - 1), "ends before it begins"),
    ],
)
def test_ranges_that_make_no_sense(begin: str, end: str, sentence: str) -> None:
    """Each with its sentence."""
    with pytest.raises(ConfigError, match=sentence):
        resolved(begin, end)


def test_several_topics_need_their_names() -> None:
    """A partition number alone is not enough."""
    bounds = {**BOUNDS, OTHER: OffsetRange(0, 9)}
    with pytest.raises(ConfigError, match=r"several topics \(other, shop\): give offsets as topic:partition:offset"):
        resolved("0:0,1:20", "end", bounds)
    assert resolved("shop:0:1,shop:1:20,other:0:3", "end", bounds).spans[OTHER] == OffsetRange(3, 9)
