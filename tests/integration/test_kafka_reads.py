"""Messages as the driver reads them: the same bytes, places and times as Spark's own reader gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from applier.changefeed.message import (
    MESSAGE_ORDER,
    MESSAGE_SCHEMA,
    Messages,
    PartitionMessages,
    TopicPartition,
    by_place,
    rows_of,
)
from applier.changefeed.window import OffsetRange, Window
from applier.config.source import SourceSection
from applier.consume.kafka import client as kafka_client
from applier.consume.spark import KafkaSource
from applier.consume.tasks import plan
from applier.consume.tasks.plan import TaskReading
from applier.errors import SourceLost, TransientError
from applier.pipeline.scan.tails import TAIL_MESSAGES
from tests.integration.test_kafka_changes import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

PAYLOADS = (b"", None, b"\x00\xff" * 50, b"text", bytes(range(256)) * 40)


def _source(spark: SparkSession, broker: Broker, *topics: str, engine: str = "auto") -> KafkaSource:
    kafka = {"topics": topics, "kafka.bootstrap.servers": broker.bootstrap}
    return KafkaSource(spark, SourceSection.model_validate({"engine": engine, "kafka": kafka}), "reads")


@pytest.fixture(scope="module")
def source(spark: SparkSession, kafka: Broker) -> Iterator[KafkaSource]:
    """Two topics whose messages have every kind of key and value, and times of their own; one of them is compressed."""
    for topic, compression in (("reads-b", "none"), ("reads-a", "zstd")):
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "compression.type": compression}
        )
        kafka.create_topic(topic, 3)
        for number in range(600):
            key, value = PAYLOADS[number % 3], PAYLOADS[number % 5]
            producer.produce(topic, key=key, value=value, partition=number % 2, timestamp=1_000_000 + number)
        producer.flush()
    found = _source(spark, kafka, "reads-b", "reads-a")
    yield found
    found.close()


def test_the_driver_reads_what_spark_reads(source: KafkaSource) -> None:
    """Some messages of some partitions, twice over: a place that was read to its end can be read again."""
    window = Window(
        {
            TopicPartition("reads-b", 1): OffsetRange(10, 300),
            TopicPartition("reads-a", 1): OffsetRange(0, 7),
            TopicPartition("reads-a", 0): OffsetRange(250, 260),
        }
    )
    expected = dict(by_place(source._frame(TaskReading(window)).toArrow().cast(MESSAGE_SCHEMA).sort_by(MESSAGE_ORDER)))

    assert len(rows_of(expected)) == 307
    assert source.read(window) == expected
    assert source.read(window) == expected
    assert source.collect(window) == expected


@dataclass(frozen=True)
class _Seen:
    """Which offsets a task was given, in their order."""

    at_once: int
    whole: frozenset[str]
    here: int = 0

    def __call__(self, parts: Iterable[PartitionMessages]) -> list[tuple[str, int]]:
        return [
            (str(place), int(str(offset))) for place, messages in parts for offset in messages["offset"].to_pylist()
        ]

    def apart(self, found: list[tuple[str, int]], task: int) -> list[list[pa.Table]]:
        del found, task
        return []


def test_tasks_read_thin_partitions_together_and_parts_of_thick_ones(
    spark: SparkSession, kafka: Broker, source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message in one task, and what they find in the order of offsets; what must stay whole is in one task."""
    del source  # It has made the topics.
    monkeypatch.setattr(plan, "_LEAST", 1)
    spans = {("reads-a", 0): (0, 300), ("reads-a", 1): (3, 10), ("reads-b", 0): (0, 300), ("reads-b", 1): (10, 40)}
    window = Window({TopicPartition(*place): OffsetRange(*span) for place, span in spans.items()})
    tasks = _source(spark, kafka, "reads-b", "reads-a", engine="spark")
    try:
        found = tasks.map(window, _Seen(100, frozenset({"reads-b"})))
    finally:
        tasks.close()

    every = [item for task in found for item in task]
    assert sorted(map(len, found)) == [37, 100, 100, 100, 300]
    for place, span in window.ranges.items():
        assert [offset for name, offset in every if name == str(place)] == list(range(*span))


def test_chunks_are_the_whole_in_its_order(source: KafkaSource) -> None:
    """Each partition in the order of its offsets, however little is read at a time."""
    window = Window({TopicPartition("reads-a", number): OffsetRange(0, 300) for number in (0, 1)})

    chunks = list(source._client.chunks(window, 1))

    for place in window.ranges:
        offsets = [row["offset"] for chunk in chunks if place in chunk for row in chunk[place].to_pylist()]
        assert offsets == list(range(300))


def _offsets(read: Messages) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows_of(read):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_windows_one_after_another_are_the_whole(source: KafkaSource) -> None:
    """However small they are, whichever partition takes part, and although what one leaves is kept for the next."""
    places = [TopicPartition("reads-a", number) for number in (0, 1)]
    ends = dict.fromkeys(places, 0)
    found: dict[int, list[int]] = {0: [], 1: []}
    for number in range(60):
        here = [place for place in places if (number + place.partition) % 3]
        window = Window({place: OffsetRange(ends[place], min(300, ends[place] + 7 + number % 5)) for place in here})
        window = Window({place: span for place, span in window.ranges.items() if len(span)})
        read = source.read(window)
        assert list(read) == sorted(read)
        for partition, offsets in _offsets(read).items():
            found[partition] += offsets
        ends |= {place: span.end for place, span in window.ranges.items()}

    assert found == {0: list(range(300)), 1: list(range(300))}


def test_what_was_read_beyond_a_window_is_not_read_again(source: KafkaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next window is given without asking Kafka; one that begins elsewhere is read."""
    first, second, other = (
        Window({TopicPartition("reads-a", 0): OffsetRange(*span)}) for span in ((0, 5), (5, 9), (7, 12))
    )
    expected = dict(by_place(source._frame(TaskReading(second)).toArrow().cast(MESSAGE_SCHEMA).sort_by(MESSAGE_ORDER)))
    source.read(first)

    with monkeypatch.context() as patch:
        patch.setattr(kafka_client.KafkaClient, "_poll", None)
        assert source.read(second) == expected

    assert _offsets(source.read(other)) == {0: list(range(7, 12))}
    assert source.read(second) == expected


def test_a_read_that_failed_begins_again(source: KafkaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one partition gave beyond the window does not stand for the window itself."""
    window = Window({TopicPartition("reads-a", 0): OffsetRange(0, 5), TopicPartition("reads-a", 2): OffsetRange(0, 5)})
    with monkeypatch.context() as patch:
        patch.setattr(kafka_client, "_SILENT_SECONDS", 0.1)
        with pytest.raises(TransientError, match="no message came"):
            source.read(window)

    assert _offsets(source.read(Window({TopicPartition("reads-a", 0): OffsetRange(0, 5)}))) == {0: list(range(5))}


def _received(client: kafka_client.KafkaClient) -> int:
    """Bytes that brokers sent to a client."""
    metrics = client._consumer.java.metrics().entrySet().toArray()
    found = {(entry.getKey().group(), entry.getKey().name()): entry.getValue() for entry in metrics}
    return int(found["consumer-metrics", "incoming-byte-total"].metricValue())


def test_each_byte_comes_once_whatever_is_looked_up_before_a_window(spark: SparkSession, kafka: Broker) -> None:
    """What the consumer fetched ahead is read in the windows to come, also of a partition that is not in the next."""
    kafka.create_topic("reads-once", 8)
    options = {"linger.ms": 1_000, "batch.size": 32_000, "queue.buffering.max.messages": 200_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, **options})
    for number in range(8 * 16_000):
        producer.produce("reads-once", b"%0700d" % number, partition=number % 8)
    assert not producer.flush(60)
    source = _source(spark, kafka, "reads-once")
    places, size = [TopicPartition("reads-once", number) for number in range(8)], 0

    for start in range(0, 16_000, 4_000):
        for some in (places[:-1], places[-1:]):
            window = Window(dict.fromkeys(some, OffsetRange(start, start + 4_000)))
            source.collect(window.tail(TAIL_MESSAGES))
            size += sum(
                chunk[place]["value"].nbytes for chunk in source._client.chunks(window, 2**24) for place in chunk
            )

    assert size > 8 * 16_000 * 700
    assert _received(source._client) < 1.05 * size
    assert _received(source._client) + _received(source._look_ups) < 1.1 * size
    source.close()


def test_nothing_of_nothing(source: KafkaSource) -> None:
    """A window without partitions needs no broker."""
    assert source.read(Window({})) == {}


def test_offsets_without_a_message_end_a_read(spark: SparkSession, kafka: Broker) -> None:
    """The mark that ends a transaction takes an offset, and no message ever comes for it."""
    kafka.create_topic("reads-marked")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "reads"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("reads-marked", b"one")
    producer.commit_transaction()
    source = _source(spark, kafka, "reads-marked")
    place = TopicPartition("reads-marked", 0)
    until(lambda: source.bounds() == {place: OffsetRange(0, 2)})  # The broker writes the mark after it has answered.

    assert source.read(Window({place: OffsetRange(0, 2)}))[place]["value"].to_pylist() == [b"one"]
    source.close()


def test_a_broker_that_sends_nothing_is_named(source: KafkaSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and not waited for without end."""
    monkeypatch.setattr(kafka_client, "_SILENT_SECONDS", 0.1)
    window = Window({TopicPartition("reads-a", 0): OffsetRange(0, 1_000)})

    with pytest.raises(
        TransientError, match=r"no message came for a minute, though the topic has more\. Hint: .*again"
    ):
        source.read(window)


def test_offsets_that_kafka_never_had_are_named(source: KafkaSource) -> None:
    """Nobody begins somewhere else instead."""
    window = Window({TopicPartition("reads-a", 0): OffsetRange(5_000, 6_000)})

    with pytest.raises(SourceLost, match="Kafka no longer has the offsets to read"):
        source.read(window)
