"""Values of Kafka's Java clients, made from Python's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from applier.changefeed.message import TopicPartition

CLOSE_MS = 1_000
"""How long a client may take to say good-bye to its brokers."""


def named(jvm: Any, name: str) -> Any:
    """A class of Java by its whole name: at each dot of `jvm.java.util` py4j looks through all jars for a class."""
    return getattr(jvm, name)


def duration(jvm: Any, milliseconds: int) -> Any:
    """A `java.time.Duration`."""
    return named(jvm, "java.time.Duration").ofMillis(milliseconds)


def properties(jvm: Any, options: Mapping[str, object]) -> Any:
    """A `java.util.Properties`, in which every value is text."""
    found = named(jvm, "java.util.Properties")()
    for key, value in options.items():
        found.setProperty(key, str(value))
    return found


def places(jvm: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
    """Kafka's `TopicPartition` of each."""
    made = named(jvm, "org.apache.kafka.common.TopicPartition")
    return {place: made(place.topic, place.partition) for place in partitions}


def consumer_properties(jvm: Any, options: Mapping[str, str]) -> Any:
    """The properties of a `KafkaConsumer` that reads only what is assigned to it, from where it is sent."""
    # A place to begin is always given: where Kafka does not have it, no other may be chosen.
    return properties(jvm, {**options, "enable.auto.commit": "false", "auto.offset.reset": "none"})


def consumer(jvm: Any, options: Mapping[str, str]) -> Any:
    """A `KafkaConsumer` of `consumer_properties`."""
    # The bytes stay where they were received: a copy of each record is garbage a moment later.
    as_received = named(jvm, "org.apache.kafka.common.serialization.ByteBufferDeserializer")
    made = named(jvm, "org.apache.kafka.clients.consumer.KafkaConsumer")
    return made(consumer_properties(jvm, options), as_received(), as_received())


def listed(jvm: Any, items: Iterable[Any]) -> Any:
    """A `java.util.ArrayList`."""
    found = named(jvm, "java.util.ArrayList")()
    for item in items:
        found.add(item)
    return found
