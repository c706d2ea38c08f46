"""A topic that changes under a running applier: partitions and topics come, offsets go, a topic is made anew."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from applier.changefeed.message import TopicPartition
from applier.errors import SourceLost, TransientError
from applier.pipeline.step import Pipeline, Step
from tests import recordings
from tests.integration.test_kafka_source import from_kafka, produce
from tests.recovery.process import once
from tests.replay import Replay, differences, replay
from tests.services.kafka import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker


class Half(NamedTuple):
    """A topic that has the first half of a recording.

    Attributes:
        first: That half.
        rest: The other one.
        topic: The topic.
        found: Where it goes.
        admin: Of the broker.
    """

    first: list[dict[str, Any]]
    rest: list[dict[str, Any]]
    topic: str
    found: Replay
    admin: AdminClient


def half_sent(name: str, kafka: Broker, lake: dict[str, str], folder: Path) -> Half:
    """Send the first half of a recording to a topic of its own."""
    records = list(recordings.records("pk", "simple-json"))
    first, rest = records[: len(records) // 2], records[len(records) // 2 :]
    (topic,) = produce(kafka.bootstrap, first, topic_prefix=f"{name}-")
    found = replay("pk", "simple-json", lake, folder, "simple", name=f"kafka-{name}")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    return Half(first, rest, topic, from_kafka(found, kafka.bootstrap, [topic]), admin)


def finish(pipeline: Pipeline) -> Step:
    """Step to the ends that are there now; the last step."""
    ends = pipeline.ends()
    while True:
        step = pipeline.step(ends)
        if step.complete and not step.moved:
            return step


def until(is_so: Callable[[], bool]) -> None:
    """Wait until the broker tells what it was told; a minute at the most."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_watermark(record: Mapping[str, Any]) -> bool:
    """Whether a message of the Simple protocol is a resolved ts."""
    return bool(json.loads(record["value"]).get("type") == "WATERMARK")


def test_a_partition_added_while_running_counts_from_its_first_watermark(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """It is read from its first offset; until TiCDC uses it, nothing is applied, and the partition is named."""
    records = list(recordings.records("pk", "simple-json"))
    middle = len(records) // 2
    topics = produce(kafka.bootstrap, records[:middle], topic_prefix="grows-")
    used = max(record["partition"] for record in records) + 1
    found = from_kafka(
        replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-grows"), kafka.bootstrap, topics
    )
    with found.running(spark) as pipeline:
        finish(pipeline)
        before = pipeline.state.resolved_ts
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topics[0], used + 1)])[topics[0]].result()
        place = TopicPartition(topics[0], used)
        until(lambda: place in pipeline.ends())
        send(kafka.bootstrap, records[middle:], "grows-")

        assert finish(pipeline).silent == [place]
        assert pipeline.state.resolved_ts == before

        late = [{**record, "partition": used} for record in records[middle:] if is_watermark(record)]
        send(kafka.bootstrap, late, "grows-")
        finish(pipeline)

    assert differences(found, recordings.expected("pk")[-1]) == []


def test_tables_and_topics_that_appear_while_running_are_followed(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """With a topic for each table, a new table brings a topic that the pattern finds."""
    variant = "simple-json-topic-per-table"
    records = list(recordings.records("ddl", variant))
    middle = len(records) // 3
    first = produce(kafka.bootstrap, records[:middle], topic_prefix="appear-")
    found = from_kafka(replay("ddl", variant, lake, tmp_path, "simple", name="kafka-appear"), kafka.bootstrap, first)
    kafka_section = found.raw["source"]["kafka"]
    del kafka_section["topics"]
    kafka_section["topic_pattern"] = "appear-.*"
    sizes: dict[str, int] = {}
    for record in records:
        sizes[record["topic"]] = max(sizes.get(record["topic"], 0), record["partition"] + 1)
    with found.running(spark) as pipeline:
        finish(pipeline)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        new = [NewTopic(f"appear-{topic}", size, 1) for topic, size in sizes.items() if f"appear-{topic}" not in first]
        assert new
        for future in admin.create_topics(new).values():
            future.result()
        until(lambda: {place.topic for place in pipeline.ends()} >= {topic.topic for topic in new})
        send(kafka.bootstrap, records[middle:], "appear-")
        finish(pipeline)

    assert differences(found, recordings.expected("ddl")[-1]) == []


def test_offsets_that_aged_out_and_a_topic_made_anew_are_named(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """What is needed next and was deleted is named by its offsets; a topic that ends below them is another one."""
    _, rest, topic, found, admin = half_sent("lost", kafka, lake, tmp_path)
    with found.running(spark) as pipeline:
        finish(pipeline)
        send(kafka.bootstrap, rest, "lost-")
        ends = pipeline.ends()
        for future in admin.delete_records([Place(topic, p.partition, end) for p, end in ends.items()]).values():
            future.result()
        with pytest.raises(SourceLost, match=rf"Offsets \d+ to \d+ of {topic}/\d+ are needed next, but were deleted"):
            pipeline.step()

        admin.delete_topics([topic])[topic].result()
        until(lambda: _made(admin, topic, len(ends)))
        until(lambda: _ends(pipeline).keys() == ends.keys())
        with pytest.raises(SourceLost, match=rf"of {topic}/\d+ is needed next, but it ends at 0: the topic is another"):
            pipeline.step()


def test_a_topic_made_anew_with_more_messages_is_named(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """Its offsets go on where the old one ended, and still nothing of it is applied; a restart sees it, too."""
    first, rest, topic, found, admin = half_sent("anew", kafka, lake, tmp_path)
    with found.running(spark) as pipeline:
        finish(pipeline)
        reached, ends = pipeline.state.resolved_ts, pipeline.ends()
        (old,) = pipeline.state.checkpoint.feed.topic_ids.values()
        admin.delete_topics([topic])[topic].result()
        until(lambda: _made(admin, topic, len(ends)))
        send(kafka.bootstrap, [*first, *rest, *rest], "anew-")
        until(lambda: all(_ends(pipeline).get(place, 0) > end for place, end in ends.items()))

        with pytest.raises(SourceLost, match=rf"Topic {topic} was recreated: its id is \S+, and {old} is the one"):
            pipeline.step()
        assert pipeline.state.resolved_ts == reached

    with found.running(spark) as pipeline:
        with pytest.raises(SourceLost, match="load the tables again and start a changefeed under a new name"):
            pipeline.step()
        assert pipeline.state.resolved_ts == reached


@pytest.mark.soak
def test_a_mirror_that_keeps_the_offsets_is_accepted_once(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """By an option of one start, which the log tells; from then on the new topic is the one that counts."""
    first, rest, topic, found, admin = half_sent("mirror", kafka, lake, tmp_path)
    with found.running(spark) as pipeline:
        finish(pipeline)
        ends = pipeline.ends()
        (old,) = pipeline.state.checkpoint.feed.topic_ids.values()
        admin.delete_topics([topic])[topic].result()
        until(lambda: _made(admin, topic, len(ends)))
        send(kafka.bootstrap, [*first, *rest], "mirror-")
        until(lambda: sum(_ends(pipeline).values()) == len(first) + len(rest))
        with pytest.raises(SourceLost, match="start once with `applier run -c FILE --accept-remade-topics`"):
            pipeline.step()

    accepted = once(found.raw, tmp_path, "--accept-remade-topics")

    assert accepted.code == 0, accepted.said
    (event,) = [event for event in accepted.events if event["event"] == "topic accepted"]
    assert (event["topic"], event["was"]) == (topic, old)
    assert differences(found, recordings.expected("pk")[-1]) == []
    with found.running(spark) as pipeline:
        finish(pipeline)
        assert pipeline.state.checkpoint.feed.topic_ids == {topic: event["now"]}
        admin.delete_topics([topic])[topic].result()
        until(lambda: _made(admin, topic, len(ends)))
        send(kafka.bootstrap, [*first, *rest, *rest], "mirror-")
        until(lambda: sum(_ends(pipeline).values()) > len(first) + len(rest))
        with pytest.raises(SourceLost, match=rf"Topic {topic} was recreated: its id is \S+, and {event['now']} is"):
            pipeline.step()


def test_a_checkpoint_without_ids_takes_the_topic_as_it_is(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """One that an older applier wrote, or that a replay from an archive left: the next one has the id."""
    records = list(recordings.records("txns", "simple-json"))
    middle = len(records) // 2
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="kafka-ids")
    topics = produce(kafka.bootstrap, records, topic_prefix="")
    ends = {}
    for record in records[:middle]:
        ends[TopicPartition(record["topic"], record["partition"])] = record["offset"] + 1
    with found.running(spark) as pipeline:
        while not (step := pipeline.step(ends)).complete or step.moved:
            pass
        assert pipeline.state.checkpoint.feed.topic_ids == {}

    with from_kafka(found, kafka.bootstrap, topics).running(spark) as pipeline:
        finish(pipeline)
        assert pipeline.state.checkpoint.feed.topic_ids.keys() == set(topics)
    assert differences(found, recordings.expected("txns")[-1]) == []


def test_a_compacted_topic_is_refused(spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path) -> None:
    """Kafka removed messages whose key came again: the offsets that have none are named, and nothing is applied."""
    records = [record for record in recordings.records("pk", "simple-json") if record["partition"] == 0]
    (source,) = {record["topic"] for record in records}
    topic = f"compacted-{source}"
    settings = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result()
    for start in range(0, len(records), len(records) // 5):
        # Each lot begins a segment, and only whole segments are compacted.
        send(
            kafka.bootstrap,
            [{**record, "key": b"k"} for record in records[start : start + len(records) // 5]],
            "compacted-",
        )
    until(lambda: _messages(kafka.bootstrap, topic) < len(records))
    found = from_kafka(
        replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-compacted"), kafka.bootstrap, [topic]
    )

    with found.running(spark) as pipeline:
        with pytest.raises(SourceLost, match=rf"\d+ of the offsets 0 to \d+ of {topic}/0 hold no message") as refused:
            pipeline.step()
        assert pipeline.state.resolved_ts == 0

    assert "if the topic is compacted" in str(refused.value)
    assert found.tables() == set()


def _messages(address: str, topic: str) -> int:
    """Messages that a topic of one partition still has."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False})
    try:
        start, end = consumer.get_watermark_offsets(Place(topic, 0), timeout=30)
        consumer.assign([Place(topic, 0, start)])
        count, position = 0, start
        while position < end:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None, message.error()
            count, position = count + 1, (message.offset() or 0) + 1
        return count
    finally:
        consumer.close()


def _ends(pipeline: Pipeline) -> Mapping[TopicPartition, int]:
    """Ends of the source; none while the broker does not know a topic that was just made."""
    try:
        return pipeline.ends()
    except (SourceLost, TransientError):
        return {}


def _made(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Make a topic; False while the broker still removes one of that name."""
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    except KafkaException:
        return False
    return True
