"""Windows: the half-open offset ranges that one step reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from applier.changefeed.message import Messages, TopicPartition


class OffsetRange(NamedTuple):
    """Offsets from `start` up to but not including `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Window:
    """Offset ranges per partition; partitions with nothing to read are not in it."""

    ranges: Mapping[TopicPartition, OffsetRange]

    @property
    def messages(self) -> int:
        """Offsets in it: the messages, and the gaps that transactions and compaction leave."""
        return sum(len(span) for span in self.ranges.values())

    def until(self, partition: TopicPartition, end: int) -> Window:
        """The window with one partition ending at `end`; without the partition if it starts there."""
        ranges = dict(self.ranges)
        span = ranges.pop(partition)
        if end > span.start:
            ranges[partition] = OffsetRange(span.start, end)
        return Window(ranges)

    def head(self, messages: int) -> Window:
        """The first `messages` offsets of each partition."""
        return Window(
            {p: OffsetRange(span.start, min(span.start + messages, span.end)) for p, span in self.ranges.items()}
        )

    def tail(self, messages: int) -> Window:
        """The last `messages` offsets of each partition."""
        return Window(
            {p: OffsetRange(max(span.start, span.end - messages), span.end) for p, span in self.ranges.items()}
        )

    def among(self, messages: Messages) -> Messages:
        """Its messages among others that were read already."""
        found = {}
        for place in self.ranges.keys() & messages.keys():
            start, end = np.searchsorted(messages[place]["offset"].to_numpy(), self.ranges[place]).tolist()
            found[place] = messages[place].slice(start, end - start)
        return found
