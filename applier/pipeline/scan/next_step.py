"""What the next step of a changefeed would apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.pipeline.scan.known import Known
from applier.pipeline.scan.window_scan import WindowScan


@dataclass(frozen=True, slots=True)
class NextStep:
    """What the next step would apply; nothing is touched yet.

    Attributes:
        scan: What its window holds.
        known: What was known before it.
        bounds: What the source has, up to the ends that were asked for.
        empty: How many offsets of the window hold no message, by partition.
    """

    scan: WindowScan
    known: Known
    bounds: Mapping[TopicPartition, OffsetRange]
    empty: Mapping[TopicPartition, int]

    def is_complete(self, next_offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the window ends where the source does, or all before its ends was read earlier."""
        read = {**next_offsets, **{place: span.end for place, span in self.scan.window.ranges.items()}}
        return all(read.get(place, span.start) >= span.end for place, span in self.bounds.items())

    def backlog(self, next_offsets: Mapping[TopicPartition, int]) -> int:
        """How many offsets of the source lie at or above those to read next."""
        return sum(max(0, span.end - next_offsets.get(place, span.start)) for place, span in self.bounds.items())
