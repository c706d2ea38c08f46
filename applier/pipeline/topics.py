"""The protocol and the topics of a changefeed, held against what the checkpoint knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.message import TopicPartition
from applier.consume.offsets import refuse_remade, remade
from applier.errors import ConfigError
from applier.pipeline.state import State
from applier.runtime.logs import logger


def refuse_protocol(checkpoint: Checkpoint | None, protocol: str) -> None:
    """Raise ConfigError if the messages up to a checkpoint were of another protocol than the configuration says."""
    known = checkpoint.feed.protocol if checkpoint else ""
    if known and known != protocol:
        what = (
            f"changefeed.protocol: {protocol}, but the messages of this changefeed so far were of {known}: "
            "give a feed of another protocol a changefeed.name and tables of its own."
        )
        raise ConfigError([what])


def meet(state: State, topic_ids: Mapping[str, str]) -> None:
    """Take note of the topics as they are now; the next checkpoint keeps it.

    Raises:
        SourceLost: One was made anew since it was read.
    """
    known, read = _topics_read(state)
    refuse_remade(known, topic_ids, read)
    state.topic_ids = topic_ids


def accept(state: State, topic_ids: Mapping[str, str]) -> None:
    """Take topics that were made anew for those that were read, whose offsets count the same messages.

    The checkpoint keeps that at once, so one run accepts them for all later ones; the log shows each.
    """
    known, read = _topics_read(state)
    topics = remade(known, topic_ids, read)
    for topic in topics:
        logger().warning("topic accepted", topic=topic, was=known[topic], now=topic_ids[topic])
    if topics:
        state.write(lambda last: replace(last, feed=replace(last.feed, topic_ids={**last.feed.topic_ids, **topic_ids})))


def _topics_read(state: State) -> tuple[dict[str, str], dict[TopicPartition, int]]:
    """Ids of the topics when they were read, and how far; without a checkpoint the tables alone show."""
    known, read = dict(state.checkpoint.feed.topic_ids), state.next_offsets
    for item in state.covered.values():
        known, read = {**item.topic_ids, **known}, {**read, **item.ends()}
    return known, read
