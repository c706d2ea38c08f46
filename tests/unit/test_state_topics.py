"""A topic that took the place of another one is told, by the checkpoint or by the tables alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Reading
from applier.changefeed.coverage import Coverage, Reach
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.errors import SourceLost
from applier.state import State

if TYPE_CHECKING:
    from applier.sink.control import Control

PLACE, TABLE = TopicPartition("feed", 0), TableName("shop", "log")


def _state(partitions: dict[TopicPartition, Reading], ids: dict[str, str]) -> State:
    checkpoint = Checkpoint(1, 3, 0, 0, Holder("token", "host"), partitions=partitions, topic_ids=ids)
    return State(cast("Control", None), checkpoint)


def test_tables_tell_of_a_topic_that_no_checkpoint_knows() -> None:
    """Their offsets count messages of the topic that is gone: rows of the new one would be taken for applied."""
    state = _state({}, {})
    state.covered = {TABLE: Coverage({PLACE: (Reach(7),)}, {"feed": "old"})}

    with pytest.raises(SourceLost, match="Topic feed was made anew: its id is new, and old is the one that was read"):
        state.meet({"feed": "new"})
    state.meet({"feed": "old"})
    assert state.topic_ids == {"feed": "old"}


def test_the_checkpoint_counts_more_than_the_tables() -> None:
    """A topic that was accepted in place of another one is not refused for what tables were stamped with before."""
    state = _state({PLACE: Reading(3)}, {"feed": "accepted"})
    state.covered = {TABLE: Coverage({PLACE: (Reach(7),)}, {"feed": "old"})}

    state.meet({"feed": "accepted"})
    assert state.topic_ids == {"feed": "accepted"}
