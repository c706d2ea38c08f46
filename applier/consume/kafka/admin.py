"""Kafka's admin client, in the JVM that Spark runs in: topics, their ids, partitions and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.consume.kafka import java

_TIMEOUT_MS = 30_000

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How Kafka writes the id of a topic that has none."""


@dataclass(slots=True)
class KafkaAdmin:
    """What one cluster says of its topics, asked with the options of Kafka's clients in py4j's view of the JVM.

    Every method raises Py4JJavaError with what Kafka's client raised.
    """

    jvm: Any
    options: Mapping[str, str]
    _client: Any = field(default=None, init=False)

    def matching(self, pattern: str) -> list[str]:
        """Topics whose whole name matches a Java regular expression."""
        compiled = self.jvm.java.util.regex.Pattern.compile(pattern)
        return sorted(
            name for name in self._asked().listTopics().names().get().toArray() if compiled.matcher(name).matches()
        )

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of some topics, sorted."""
        return sorted(
            TopicPartition(entry.getKey(), info.partition())
            for entry in self._described(topics)
            for info in entry.getValue().partitions()
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic; brokers before 2.8 give none."""
        ids = {entry.getKey(): str(entry.getValue().topicId().toString()) for entry in self._described(topics)}
        return {topic: found for topic, found in ids.items() if found != _NO_ID}

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """First offset kept and end offset (exclusive) of partitions."""
        places, spec = java.places(self.jvm, partitions), self._spec()
        starts, ends = self._offsets(places, spec.earliest()), self._offsets(places, spec.latest())
        return {place: OffsetRange(starts[place], ends[place]) for place in places}

    def offsets_at(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """First offset whose record is of a time or later; where there is none, the end."""
        places, spec = java.places(self.jvm, partitions), self._spec()
        found, ends = self._offsets(places, spec.forTimestamp(milliseconds)), self._offsets(places, spec.latest())
        # Kafka answers -1 where every record is older.
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}

    def close(self) -> None:
        """End the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close(java.duration(self.jvm, java.CLOSE_MS))

    def _asked(self) -> Any:
        if self._client is None:
            limits = {"default.api.timeout.ms": _TIMEOUT_MS, "request.timeout.ms": _TIMEOUT_MS // 2}
            self._client = self.jvm.org.apache.kafka.clients.admin.AdminClient.create(
                java.properties(self.jvm, {**self.options, **limits})
            )
        return self._client

    def _described(self, topics: Iterable[str]) -> Any:
        return self._asked().describeTopics(java.listed(self.jvm, topics)).allTopicNames().get().entrySet().toArray()

    def _spec(self) -> Any:
        return self.jvm.org.apache.kafka.clients.admin.OffsetSpec

    def _offsets(self, places: Mapping[TopicPartition, Any], which: Any) -> dict[TopicPartition, int]:
        wanted = self.jvm.java.util.HashMap()
        for java_place in places.values():
            wanted.put(java_place, which)
        found = self._asked().listOffsets(wanted)
        return {place: int(found.partitionResult(java_place).get().offset()) for place, java_place in places.items()}
