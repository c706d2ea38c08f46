"""Kafka's admin client, in the JVM that Spark runs in: topics, their ids, partitions and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.consume.kafka import java

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How Kafka writes the id of a topic that has none."""


@dataclass(slots=True)
class KafkaAdmin:
    """Asks one cluster about its topics, with the options of Kafka's clients, in py4j's view of the JVM.

    Every method raises Py4JJavaError with what Kafka's client raised.
    """

    jvm: Any
    options: Mapping[str, str]
    timeout_ms: int = 30_000
    _client: Any = field(default=None, init=False)

    def matching(self, pattern: str) -> list[str]:
        """Topics whose whole name matches a Java regular expression."""
        return sorted(self._asked().matching(pattern).split())

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic; brokers before 2.8 give none."""
        found = map(str.split, self._asked().ids(java.listed(self.jvm, topics)).splitlines())
        return {topic: topic_id for topic, topic_id in found if topic_id != _NO_ID}

    def bounds(self, topics: Iterable[str]) -> dict[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of all partitions of some topics, sorted."""
        found = _offsets(self._asked().bounds(java.listed(self.jvm, topics)))
        return {place: OffsetRange(start, end) for place, (start, end) in found.items()}

    def offsets_at(self, topics: Iterable[str], milliseconds: int) -> dict[TopicPartition, int]:
        """First offset of each partition whose record is of a time or later; where there is none, the end."""
        found = _offsets(self._asked().since(java.listed(self.jvm, topics), milliseconds))
        return {place: offset if offset >= 0 else end for place, (offset, end) in found.items()}

    def show_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Make these the offsets of a consumer group, without waiting: the next call raises what this one meets."""
        lines = "".join(f"{place.topic} {place.partition} {offset}\n" for place, offset in offsets.items())
        self._asked().show(group, lines)

    def close(self) -> None:
        """End the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close(java.CLOSE_MS)

    def _asked(self) -> Any:
        if self._client is None:
            limits = {"default.api.timeout.ms": self.timeout_ms, "request.timeout.ms": self.timeout_ms // 2}
            self._client = self.jvm.applier.TopicAdmin(java.properties(self.jvm, {**self.options, **limits}))
        return self._client


def _offsets(lines: str) -> dict[TopicPartition, tuple[int, int]]:
    """Two offsets of each partition, sorted; see `TopicAdmin.java`."""
    found = map(str.split, lines.splitlines())
    return dict(
        sorted((TopicPartition(topic, int(number)), (int(first), int(end))) for topic, number, first, end in found)
    )
