"""Messages as the driver and tasks read them: the same bytes, places and times as another client of Kafka gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as kafka_place  # noqa: N813 - it is made as by a function

from applier.changefeed.message import (
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
from applier.consume.kafka.spark import in_blocks, topic_blocks
from applier.consume.runner import Runner
from applier.consume.spark import KafkaSource
from applier.consume.tasks import plan
from applier.consume.tasks.spark import TaskRows
from applier.consume.window_size import Limits
from applier.errors import SourceLost, TransientError
from applier.pipeline.scan.watermarks import TAIL_MESSAGES
from applier.runtime.places import Places, Where
from tests.integration.test_kafka_changes import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

PAYLOADS = (b"", None, b"\x00\xff" * 50, b"text", bytes(range(256)) * 40)


def _source(spark: SparkSession, broker: Broker, *topics: str) -> KafkaSource:
    kafka = {"topics": topics, "kafka.bootstrap.servers": broker.bootstrap}
    return KafkaSource(spark, SourceSection.model_validate({"kafka": kafka}), "reads")


@contextmanager
def _runner(spark: SparkSession, broker: Broker, *topics: str) -> Iterator[Runner]:
    with closing(_source(spark, broker, *topics)) as source:
        tasks = TaskRows(spark, source.reading)
        with closing(Runner(source, tasks, Places())) as runner:
            yield runner


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


def _expected(broker: Broker, window: Window) -> Messages:
    """The messages of a window by another client."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "expected", "enable.auto.commit": False})
    rows = []
    for place, span in sorted(window.ranges.items()):
        consumer.assign([kafka_place(place.topic, place.partition, span.start)])
        while (message := consumer.poll(30)) is not None and (message.offset() or 0) < span.end:
            assert message.error() is None
            sent = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
            rows.append([*place, message.offset(), sent, message.key(), message.value()])
            if message.offset() == span.end - 1:
                break
    consumer.close()
    columns = zip(*rows, strict=True)
    return dict(by_place(pa.table(dict(zip(MESSAGE_SCHEMA.names, columns, strict=True)), schema=MESSAGE_SCHEMA)))


def _blocks(
    spark: SparkSession, broker: Broker, windows: Sequence[Window], at_once: int = plan.TASK_MESSAGES
) -> Iterator[PartitionMessages]:
    """What a task for each of some windows reads."""
    return in_blocks(topic_blocks(spark, windows, {"bootstrap.servers": broker.bootstrap}, at_once).collect())


def _in_tasks(spark: SparkSession, broker: Broker, *windows: Window) -> Messages:
    """The messages of some windows, by a task each."""
    found: dict[TopicPartition, list[pa.Table]] = {}
    for place, messages in _blocks(spark, broker, windows):
        found.setdefault(place, []).append(messages)
    return {place: pa.concat_tables(found[place]) for place in sorted(found)}


def test_all_read_what_another_client_reads(spark: SparkSession, kafka: Broker, source: KafkaSource) -> None:
    """Some messages of some partitions, twice over: a place that was read to its end can be read again."""
    window = Window(
        {
            TopicPartition("reads-a", 0): OffsetRange(250, 260),
            TopicPartition("reads-a", 1): OffsetRange(0, 7),
            TopicPartition("reads-b", 1): OffsetRange(10, 300),
        }
    )
    expected = _expected(kafka, window)

    assert len(rows_of(expected)) == 307
    assert source.read(window) == expected
    assert source.read(window) == expected
    assert source.collect(window) == expected
    assert _in_tasks(spark, kafka, window) == expected
    apart = (Window({place: span}) for place, span in window.ranges.items())
    assert _in_tasks(spark, kafka, *apart) == expected


def test_messages_of_any_size_make_blocks(spark: SparkSession, kafka: Broker) -> None:
    """Many small ones, some larger than a block, one between them, in the order of their offsets."""
    kafka.create_topic("reads-sizes")
    sizes = [*[10] * 500, 700_000, 5_000_000, 0, 4_194_303, *[900_000] * 12, 6_000_000, 1]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 8_000_000, "linger.ms": 50})
    for number, size in enumerate(sizes):
        producer.produce("reads-sizes", bytes([number % 251]) * size, key=b"%d" % number)
    assert not producer.flush(60)
    window = Window({TopicPartition("reads-sizes", 0): OffsetRange(0, len(sizes))})

    assert _in_tasks(spark, kafka, window) == _expected(kafka, window)


def test_an_executor_decompresses_few_large_messages_at_once(
    spark: SparkSession, kafka: Broker, source: KafkaSource
) -> None:
    """Kafka gives as many as it may, also beyond the end of a task, and none of its limits counts their bytes."""
    del source  # It has made the topics.
    window = Window({TopicPartition("reads-a", 0): OffsetRange(0, 40)})

    rows = [messages.num_rows for _, messages in _blocks(spark, kafka, [window], at_once=80)]

    assert sum(rows) == 40
    assert max(rows) <= 10


@dataclass(frozen=True)
class _Seen:
    """Which offsets a task was given, in their order."""

    limits: Limits

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
    seen = _Seen(Limits(at_once=100, here=0, unsplit=frozenset({"reads-b"})))
    with _runner(spark, kafka, "reads-b", "reads-a") as runner:
        found = runner.run(window, seen, Where.TASKS).results

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


def test_what_was_read_beyond_a_window_is_not_read_again(
    kafka: Broker, source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next window is given without asking Kafka; one that begins elsewhere is read."""
    first, second, other = (
        Window({TopicPartition("reads-a", 0): OffsetRange(*span)}) for span in ((0, 5), (5, 9), (7, 12))
    )
    expected = _expected(kafka, second)
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
        patch.setattr(kafka_client, "SILENT_SECONDS", 0.1)
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


@pytest.mark.parametrize("partitions", [17, *(pytest.param(number, marks=pytest.mark.soak) for number in (1, 300))])
def test_partitions_are_read_one_at_a_time(spark: SparkSession, kafka: Broker, partitions: int) -> None:
    """However many there are: a consumer that is made anew for more of them does not wait for those of before."""
    topic = f"reads-{partitions}"
    kafka.create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition in range(partitions):
        producer.produce(topic, b"%d" % partition, partition=partition)
    assert not producer.flush(60)

    with closing(_source(spark, kafka, topic)) as source:
        for places in (range(partitions), [0, partitions - 1]):
            for partition in places:
                window = Window({TopicPartition(topic, partition): OffsetRange(0, 1)})
                assert [row["value"] for row in rows_of(source.collect(window))] == [b"%d" % partition]


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

    window = Window({place: OffsetRange(0, 2)})
    assert source.read(window)[place]["value"].to_pylist() == [b"one"]
    assert _in_tasks(spark, kafka, window)[place]["value"].to_pylist() == [b"one"]
    source.close()


@pytest.mark.parametrize("where", [Where.IN_CHUNKS, Where.TASKS])
def test_a_broker_that_sends_nothing_is_named(
    where: Where, spark: SparkSession, kafka: Broker, source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, and not waited for without end."""
    del source  # It has made the topics.
    monkeypatch.setattr(kafka_client, "SILENT_SECONDS", 0.1)
    window = Window({TopicPartition("reads-a", 0): OffsetRange(0, 1_000)})
    said = r"no message came for a minute, though the topic has more\..* Hint: .*again"

    with _runner(spark, kafka, "reads-a") as runner, pytest.raises(TransientError, match=said):
        runner.run(window, _Seen(Limits(at_once=1_000, here=0, unsplit=frozenset())), where)


@pytest.mark.parametrize("where", [Where.IN_CHUNKS, Where.TASKS])
def test_offsets_that_kafka_never_had_are_named(
    where: Where, spark: SparkSession, kafka: Broker, source: KafkaSource
) -> None:
    """Nobody begins somewhere else instead."""
    del source  # It has made the topics.
    window = Window({TopicPartition("reads-a", 0): OffsetRange(5_000, 6_000)})
    said = "Kafka no longer has the offsets to read"

    with _runner(spark, kafka, "reads-a") as runner, pytest.raises(SourceLost, match=said):
        runner.run(window, _Seen(Limits(at_once=1_000, here=0, unsplit=frozenset())), where)
