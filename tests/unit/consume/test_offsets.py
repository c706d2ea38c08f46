"""The next window starts at the checkpoint and ends at explicit offsets."""

from __future__ import annotations

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.offsets import missing, next_window, refuse_gaps, refuse_missing, refuse_remade
from applier.errors import SourceLost

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_window_reaches_the_ends() -> None:
    """Without a backlog everything new is read; a new partition from its first offset."""
    window = next_window({P0: 5}, {P0: OffsetRange(0, 9), P1: OffsetRange(2, 4)}, 100)

    assert window.ranges == {P0: OffsetRange(5, 9), P1: OffsetRange(2, 4)}


def test_partitions_without_news_are_left_out() -> None:
    """A partition with nothing to read costs no task."""
    assert next_window({P0: 9}, {P0: OffsetRange(0, 9)}, 100).ranges == {}


def test_backlog_is_cut_in_proportion() -> None:
    """All partitions advance through about the same time."""
    window = next_window({}, {P0: OffsetRange(0, 900), P1: OffsetRange(0, 100)}, 100)

    assert window.ranges == {P0: OffsetRange(0, 90), P1: OffsetRange(0, 10)}


def test_every_partition_with_a_backlog_advances() -> None:
    """A partition that got nothing would hold the watermark for ever."""
    window = next_window({}, {P0: OffsetRange(0, 10_000), P1: OffsetRange(0, 3)}, 100)

    assert len(window.ranges[P1]) == 1


def test_a_window_reaches_what_tables_have_already() -> None:
    """A step that failed is repeated with all that it read, as far as the source goes; others get their share."""
    bounds = {P0: OffsetRange(0, 900), P1: OffsetRange(0, 100)}
    window = next_window({}, bounds, 100, least={P0: 40, P1: 200, TopicPartition("gone", 0): 7})

    assert window.ranges == {P0: OffsetRange(0, 90), P1: OffsetRange(0, 100)}


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({P0: OffsetRange(7, 9)}, "Offsets 5 to 6 of t/0 are needed next, but were deleted"),
        ({P0: OffsetRange(0, 3)}, "Offset 5 of t/0 is needed next, but it ends at 3: the topic is another"),
        ({P1: OffsetRange(0, 3)}, "The source no longer has partition t/0"),
    ],
)
def test_lost_offsets_are_refused(bounds: dict[TopicPartition, OffsetRange], sentence: str) -> None:
    """Rows that can no longer be read are named, never passed."""
    with pytest.raises(SourceLost, match=sentence):
        next_window({P0: 5}, bounds, 100)


def test_a_topic_of_another_id_is_refused() -> None:
    """Whatever its offsets are; both ids are named."""
    with pytest.raises(SourceLost, match=r"Topic t was recreated: its id is new, and old is the one that was read"):
        refuse_remade({"t": "old"}, {"t": "new"}, {P0: 5})


@pytest.mark.parametrize(
    ("known", "found", "next_offsets"),
    [
        ({}, {"t": "new"}, {P0: 5}),
        ({"t": "old"}, {}, {P0: 5}),
        ({"t": "old"}, {"t": "old", "u": "new"}, {P0: 5}),
        ({"t": "old"}, {"t": "new"}, {P0: 0, P1: 0}),
    ],
    ids=["an old checkpoint", "an archive", "the same", "nothing was read"],
)
def test_topics_that_may_be_the_same_are_taken(
    known: dict[str, str], found: dict[str, str], next_offsets: dict[TopicPartition, int]
) -> None:
    """An id is compared where both are known and something depends on it."""
    refuse_remade(known, found, next_offsets)


def test_offsets_without_a_message_are_counted_by_partition() -> None:
    """Whole partitions are left out; the refusal names the first that is not, with its offsets."""
    window = Window({P1: OffsetRange(7, 12), P0: OffsetRange(0, 2)})

    assert missing(window, {P0: 2, P1: 3}) == {P1: 2}
    assert missing(window, {P0: 2, P1: 5}) == {}
    with pytest.raises(SourceLost, match="2 of the offsets 7 to 11 of t/1 hold no message: rows may be lost"):
        refuse_missing(window, missing(window, {P0: 2, P1: 3}))
    refuse_missing(window, missing(window, {P0: 2, P1: 5}))


def test_window_ends_before_a_message() -> None:
    """A bad message ends its partition's range; at the very start nothing of it is left."""
    window = Window({P0: OffsetRange(5, 9), P1: OffsetRange(0, 2)})

    assert window.until(P0, 7).ranges[P0] == OffsetRange(5, 7)
    assert P0 not in window.until(P0, 5).ranges


def test_tail_is_the_end_of_each_range() -> None:
    """The last offsets hold the newest resolved ts."""
    assert Window({P0: OffsetRange(5, 900)}).tail(100).ranges == {P0: OffsetRange(800, 900)}


def test_without_a_checkpoint_the_whole_feed_must_be_there() -> None:
    """A topic that lost its first messages may lack rows that the tables lack, too; one that has them all is read."""
    refuse_gaps("shop", "lake", {P0: OffsetRange(0, 9), P1: OffsetRange(0, 0)})

    with pytest.raises(SourceLost) as caught:
        refuse_gaps("shop", "lake", {P0: OffsetRange(0, 9), P1: OffsetRange(7, 9)})

    assert caught.value.what == (
        "The control table applier_shop.checkpoints is lost, and messages that the tables may lack are gone: "
        "t/1 begins at offset 7."
    )
    assert (
        "`CALL lake.system.register_table(table => 'applier_shop.checkpoints', metadata_file => 'FILE')`, where FILE"
    ) in caught.value.hint


def test_a_partition_that_one_task_reads_has_no_more_than_a_share() -> None:
    """All advance in proportion nevertheless; where none is read whole, the window is as large as it may be."""
    bounds = {P0: OffsetRange(0, 900), TopicPartition("u", 0): OffsetRange(0, 100)}

    whole = next_window({}, bounds, 500, whole={"t"}, share=90)
    assert whole.ranges == {P0: OffsetRange(0, 90), TopicPartition("u", 0): OffsetRange(0, 10)}
    assert next_window({}, bounds, 500, whole={"u"}, share=90).messages == 500
    assert next_window({}, bounds, 500, share=90).messages == 500
