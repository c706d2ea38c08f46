"""A stream of messages in, a Kafka topic that holds them out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from bench.topic.stream import Block

_SETTINGS = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256_000,
    "acks": "1",
}


@dataclass(frozen=True, slots=True)
class Produced:
    """What was sent.

    Attributes:
        messages: All messages, watermarks included.
        size: Bytes of their values.
        seconds: Generating and sending.
    """

    messages: int
    size: int
    seconds: float


def produce(bootstrap: str, topic: str, blocks: Iterable[Block]) -> Produced:
    """Send all messages, in order within each partition, and wait until the broker has them.

    Raises:
        RuntimeError: The broker did not take them all.
    """
    producer = Producer({"bootstrap.servers": bootstrap, **_SETTINGS})
    start = time.monotonic()
    count = size = 0
    for block in blocks:
        for partition, messages in enumerate(block):
            count += len(messages)
            size += sum(len(message["value"]) for message in messages)
            _send(producer, topic, partition, messages)
    if left := producer.flush(120):
        msg = f"the broker did not take {left} messages of topic {topic}"
        raise RuntimeError(msg)
    return Produced(count, size, time.monotonic() - start)


def _send(producer: Producer, topic: str, partition: int, messages: list[dict[str, Any]]) -> None:
    """Send one partition's messages; what the full queue refuses is sent again, still in order."""
    while messages:
        producer.produce_batch(topic, messages, partition=partition)
        refused = [message for message in messages if message.pop("_error", None) is not None]
        messages = refused
        producer.poll(0.05 if refused else 0)
