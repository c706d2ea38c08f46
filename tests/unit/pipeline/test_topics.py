"""A topic that took the place of another one is told, by the checkpoint or by the tables alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from applier.changefeed.applied_offsets import AppliedOffsets, Reach
from applier.changefeed.checkpoint import Checkpoint, Feed, Holder, Lease
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.errors import ConfigError, SourceLost
from applier.pipeline import topics
from applier.pipeline.state import State

if TYPE_CHECKING:
    from applier.sink.control.control import Control

PLACE, TABLE = TopicPartition("feed", 0), TableName("shop", "log")


def _state(partitions: dict[TopicPartition, Reading], ids: dict[str, str]) -> State:
    checkpoint = Checkpoint(Lease(1, Holder("token", "host")), 3, 0, 0, partitions=partitions, feed=Feed(topic_ids=ids))
    return State(cast("Control", None), checkpoint)


def test_tables_tell_of_a_topic_that_no_checkpoint_knows() -> None:
    """Their offsets count messages of the topic that is gone: rows of the new one would be taken for applied."""
    state = _state({}, {})
    state.covered = {TABLE: AppliedOffsets({PLACE: (Reach(7),)}, {"feed": "old"})}

    with pytest.raises(SourceLost, match="Topic feed was recreated: its id is new, and old is the one that was read"):
        topics.meet(state, {"feed": "new"})
    topics.meet(state, {"feed": "old"})
    assert state.topic_ids == {"feed": "old"}


def test_the_checkpoint_counts_more_than_the_tables() -> None:
    """A topic that was accepted in place of another one is not refused for what tables were stamped with before."""
    state = _state({PLACE: Reading(3)}, {"feed": "accepted"})
    state.covered = {TABLE: AppliedOffsets({PLACE: (Reach(7),)}, {"feed": "old"})}

    topics.meet(state, {"feed": "accepted"})
    assert state.topic_ids == {"feed": "accepted"}


class _Control:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Checkpoint] = []

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.written.append(checkpoint)


def test_an_accepted_topic_is_kept_at_once_and_the_next_one_is_refused() -> None:
    """The acceptance is for the topics that are there: it is no licence for others."""
    control = _Control()
    state = _state({PLACE: Reading(3), TopicPartition("late", 0): Reading(0)}, {"feed": "old", "late": "of no message"})
    state.control = cast("Control", control)
    found = {"feed": "mirror", "late": "another"}

    with capture_logs() as logs:
        topics.accept(state, found)
        topics.accept(state, found)

    assert [(item["event"], item["topic"], item["was"], item["now"]) for item in logs] == [
        ("topic accepted", "feed", "old", "mirror")
    ]
    assert [item.feed.topic_ids for item in control.written] == [found]
    assert control.written[0].partitions == {PLACE: Reading(3), TopicPartition("late", 0): Reading(0)}
    topics.meet(state, found)
    with pytest.raises(SourceLost, match="--accept-remade-topics`; else load the tables again"):
        topics.meet(state, {"feed": "third"})


def test_another_protocol_is_refused_by_the_checkpoint_alone() -> None:
    """So it can be before anything is written."""
    checkpoint = replace(_state({}, {}).checkpoint, feed=Feed("open"))

    topics.refuse_protocol(None, "simple")
    topics.refuse_protocol(checkpoint, "open")
    with pytest.raises(ConfigError, match="changefeed.protocol: simple, but the messages of this changefeed"):
        topics.refuse_protocol(checkpoint, "simple")
