"""Looks at the topics that a first configuration names: partitions, offsets, and some messages of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.changefeed.message import TopicPartition, rows_of
from applier.changefeed.window import OffsetRange, Window
from applier.commands.init.detect import Findings, decoders, detect
from applier.config.registry import RegistrySection
from applier.config.settings import parse
from applier.consume.source import Source
from applier.consume.spark import KafkaTopics, topics_alone
from applier.consume.window_size import WindowTooLargeError

_EACH = 200
"""Messages at either end of a partition that are looked at."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What the topics show: the offsets that each partition holds, and what their messages are."""

    bounds: Mapping[TopicPartition, OffsetRange]
    findings: Findings


def look(kafka: Mapping[str, Any], registry: str | None, protocol: str | None) -> Sight:
    """Look at topics; reads some messages, and changes nothing.

    Args:
        kafka: The section `[source.kafka]`, with `${NAME}` where it is not to be shown.
        registry: Address of the schema registry.
        protocol: The protocol, where the user names it.

    Raises:
        ConfigError: The section is not right, or there is no Java.
        SourceLost: There is no such topic.
        OutsideRefused: The topic may not be read.
        TransientError: The source or the registry does not answer.
    """
    raw: dict[str, Any] = {
        # The name of a consumer group, and what else a configuration needs; none of it has an effect here.
        "changefeed": {"name": "init", "protocol": "simple"},
        "source": {"kafka": dict(kafka)},
        "catalog": {"name": "lake", "type": "hadoop"},
    }
    config = parse(raw | ({"registry": {"url": registry}} if registry else {}))
    with topics_alone(config) as source:
        bounds = source.bounds()
        return Sight(bounds, shown(source, bounds, config.registry, protocol))


def shown(
    source: Source | KafkaTopics,
    bounds: Mapping[TopicPartition, OffsetRange],
    registry: RegistrySection | None,
    protocol: str | None,
) -> Findings:
    """What the messages at both ends of each partition are; those of a protocol that is named, if it reads any.

    Raises:
        TransientError: The source or the registry does not answer.
        OutsideRefused: The messages may not be read.
    """
    messages: list[Mapping[str, Any]] = []
    for place, span in bounds.items():
        middle = min(span.end, span.start + _EACH)
        for part in (OffsetRange(span.start, middle), OffsetRange(max(middle, span.end - _EACH), span.end)):
            if part.end > part.start:
                messages += _messages(source, place, part)
    found = detect(messages, decoders(registry, protocol))
    # What the messages are instead is worth a second reading of them.
    return detect(messages, decoders(registry)) if protocol and protocol not in found.protocols else found


def _messages(source: Source | KafkaTopics, place: TopicPartition, part: OffsetRange) -> Sequence[Mapping[str, Any]]:
    """Messages of a part of a partition, from its end; fewer where they are too large for memory."""
    while True:
        try:
            return rows_of(source.collect(Window({place: part})))
        except WindowTooLargeError:
            if part.end - part.start == 1:
                return []
            part = OffsetRange((part.start + part.end) // 2, part.end)
