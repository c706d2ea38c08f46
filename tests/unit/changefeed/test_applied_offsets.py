"""What a table has in offset order: by place, and while a step has a DDL also by commit ts."""

from __future__ import annotations

import json

import pytest

from applier.changefeed.applied_offsets import AppliedOffsets, Reach, furthest
from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange

P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
DDL = 470606913410433024


def test_a_commit_covers_its_window_and_keeps_what_was_covered() -> None:
    """Ends are exclusive; partitions that the window does not hold stay as they were."""
    found = AppliedOffsets({P1: (Reach(4),)}).after({P0: OffsetRange(0, 7)}, Reach(0).upto, {})

    assert found.holds(P0, 6, DDL)
    assert not found.holds(P0, 7, DDL)
    assert found.holds(P1, 3, 0)
    assert not found.holds(OTHER, 0, 0)


def test_a_commit_before_a_ddl_covers_no_row_after_it() -> None:
    """Rows of the same offsets that lie above its commit ts are of a later commit."""
    window = {P0: OffsetRange(5, 9)}
    before = AppliedOffsets({P0: (Reach(5),)}).after(window, DDL, {})
    after = before.after(window, Reach(0).upto, {})

    assert before.holds(P0, 4, DDL + 1)
    assert before.holds(P0, 8, DDL)
    assert not before.holds(P0, 8, DDL + 1)
    assert after.reaches == {P0: (Reach(9),)}


def test_a_shorter_window_takes_nothing_back() -> None:
    """A step that failed read up to 90; its repetition reads up to 60 and leaves out what lies behind."""
    first = AppliedOffsets().after({P0: OffsetRange(0, 90)}, DDL, {})
    second = first.after({P0: OffsetRange(0, 60)}, Reach(0).upto, {})

    assert set(second.reaches[P0]) == {Reach(60), Reach(90, DDL)}
    assert second.holds(P0, 80, DDL)
    assert not second.holds(P0, 80, DDL + 1)
    # Once that is applied to all tables, nothing below it is missing.
    assert second.after({P0: OffsetRange(90, 95)}, DDL + 5, {}).reaches[P0] == (Reach(90), Reach(95, DDL + 5))


def test_only_what_is_beyond_the_checkpoint_counts_after_a_crash() -> None:
    """A table that is level with it is not ahead; a partition that it does not know is read from its beginning."""
    found = AppliedOffsets({P0: (Reach(7),), P1: (Reach(4),), OTHER: (Reach(1),)}, {"t": "id"})

    assert found.beyond({P0: 7, P1: 3}).reaches == {P1: (Reach(4),), OTHER: (Reach(1),)}
    assert not found.beyond({P0: 7, P1: 4, OTHER: 2})
    assert furthest([found, AppliedOffsets({P0: (Reach(9, DDL), Reach(8))})]) == {P0: 9, P1: 4, OTHER: 1}


def test_the_text_is_short_and_tells_everything() -> None:
    """A dozen characters for a partition; ids of topics that it covers alone."""
    found = AppliedOffsets(
        {P1: (Reach(41),), P0: (Reach(100), Reach(130, DDL)), OTHER: (Reach(3),)}, {"t": "x7", "v": "y8"}
    )
    text = found.to_text()

    assert text == '{"t":{"ends":"0:100,0:130@470606913410433024,1:41","id":"x7"},"u":{"ends":"0:3"}}'
    assert AppliedOffsets.from_text(text) == AppliedOffsets(found.reaches, {"t": "x7"})
    assert AppliedOffsets.from_text(AppliedOffsets().to_text()) == AppliedOffsets()
    many = AppliedOffsets({TopicPartition("t", number): (Reach(12_345_678),) for number in range(1000)})
    assert len(many.to_text()) < 13_000


@pytest.mark.parametrize("text", ["", "[]", "{", '{"t":7}', '{"t":{"ends":"0"}}', '{"t":{"ends":"a:b"}}', '{"t":{}}'])
def test_a_text_that_somebody_edited_is_refused(text: str) -> None:
    """As a ValueError, whatever is wrong with it."""
    with pytest.raises(ValueError, match=r"."):
        AppliedOffsets.from_text(text)


def test_ids_are_those_of_the_window_that_was_read_last() -> None:
    """A topic that was taken for another one under its name has the new id from then on."""
    found = AppliedOffsets({P0: (Reach(1),)}, {"t": "old", "u": "kept"}).after(
        {P0: OffsetRange(1, 2)}, DDL, {"t": "new", "w": "of no row"}
    )

    assert found.topic_ids == {"t": "new", "u": "kept"}
    assert json.loads(found.to_text())["t"]["id"] == "new"
