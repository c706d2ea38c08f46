"""The offsets that a table has reached, which its stamp holds in offset order, and their text form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange

ALL = 2**63 - 1
"""Upper bound of commit ts: rows with any commit ts count."""


class Reach(NamedTuple):
    """How far a table has the rows of a partition.

    Attributes:
        end: The table has all rows below this offset that are
        upto: at or below this commit ts. A step with a DDL commits the rows before it and those after it separately.
    """

    end: int
    upto: int = ALL


@dataclass(frozen=True, slots=True)
class AppliedOffsets:
    """Rows that a table has.

    Attributes:
        reaches: Of each partition where rows of the table may have been: a row is in the table if one of them holds it.
        topic_ids: What distinguishes each topic from another of its name, where the source showed it.
        newest: Commit ts of the newest row that was applied and shows the columns; 0 where no row showed one.
    """

    reaches: Mapping[TopicPartition, tuple[Reach, ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    newest: int = 0

    def __bool__(self) -> bool:
        return bool(self.reaches)

    def holds(self, place: TopicPartition, offset: int, commit_ts: int) -> bool:
        """Whether a row is in the table."""
        return any(offset < end and commit_ts <= upto for end, upto in self.reaches.get(place, ()))

    def after(
        self, window: Mapping[TopicPartition, OffsetRange], upto: int, topic_ids: Mapping[str, str], newest: int = 0
    ) -> AppliedOffsets:
        """The offsets that the table reaches with the rows of a window at or below the commit ts `upto`.

        Everything before the window has been applied. `newest` is the commit ts of the newest of these rows.
        """
        reaches = dict(self.reaches)
        for place, span in window.items():
            known = [Reach(end, ALL if end <= span.start else ts) for end, ts in reaches.get(place, ())]
            reaches[place] = _needed([*known, Reach(span.end, upto)])
        named = {place.topic for place in window} & topic_ids.keys()
        ids = {**self.topic_ids, **{topic: topic_ids[topic] for topic in named}}
        return AppliedOffsets(reaches, ids, max(self.newest, newest))

    def beyond(self, next_offsets: Mapping[TopicPartition, int]) -> AppliedOffsets:
        """The partitions in which the table is further than the checkpoint."""
        ends = self.ends()
        further = {place: self.reaches[place] for place, end in ends.items() if end > next_offsets.get(place, 0)}
        return AppliedOffsets(further, self.topic_ids)

    def whole(self, place: TopicPartition) -> int:
        """The offset of a partition below which the table has all rows, whatever their commit ts."""
        return max((end for end, upto in self.reaches.get(place, ()) if upto == ALL), default=0)

    def ends(self) -> dict[TopicPartition, int]:
        """The furthest end in each partition."""
        return {place: max(reach.end for reach in reaches) for place, reaches in self.reaches.items()}

    def to_text(self) -> str:
        """Compact JSON: by topic `ends`, as `partition:end`, or `partition:end@ts` up to a ts; its `id`; `newest`."""
        ends: dict[str, list[str]] = {}
        for place in sorted(self.reaches):
            for end, upto in self.reaches[place]:
                limit = "" if upto == ALL else f"@{upto}"
                ends.setdefault(place.topic, []).append(f"{place.partition}:{end}{limit}")
        ids = {topic: {"id": self.topic_ids[topic]} for topic in ends.keys() & self.topic_ids.keys()}
        newest = {"newest": self.newest} if self.newest else {}
        said = {topic: {"ends": ",".join(items), **ids.get(topic, {}), **newest} for topic, items in ends.items()}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_text(text: str) -> AppliedOffsets:
        """Read what `to_text` wrote.

        Raises:
            ValueError: It is no such text.
        """
        reaches: dict[TopicPartition, tuple[Reach, ...]] = {}
        topics = json.loads(text)
        try:
            for topic, said in topics.items():
                for item in said["ends"].split(","):
                    partition, _, reach = item.partition(":")
                    end, _, upto = reach.partition("@")
                    place = TopicPartition(topic, int(partition))
                    reaches[place] = (*reaches.get(place, ()), Reach(int(end), int(upto or ALL)))
            newest = max((int(said.get("newest", 0)) for said in topics.values()), default=0)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(text) from error
        return AppliedOffsets(reaches, {topic: said["id"] for topic, said in topics.items() if "id" in said}, newest)


def furthest(coverages: Iterable[AppliedOffsets]) -> dict[TopicPartition, int]:
    """The furthest end in each partition over several tables."""
    found: dict[TopicPartition, int] = {}
    for coverage in coverages:
        for place, end in coverage.ends().items():
            found[place] = max(end, found.get(place, 0))
    return found


def _needed(reaches: Iterable[Reach]) -> tuple[Reach, ...]:
    """The reaches that hold rows which no other one holds."""
    kept: list[Reach] = []
    for reach in sorted(reaches, key=lambda reach: (-reach.upto, -reach.end)):
        if not kept or reach.end > kept[-1].end:
            kept.append(reach)
    return tuple(kept)
