"""The recorded feed through a real Kafka broker gives the same tables as through the archive."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from applier.changefeed.message import TopicPartition
from applier.commands.follower import Follower
from applier.commands.run import Reports, run_once
from applier.consume.kafka.admin import KafkaAdmin
from applier.errors import SourceLost, TransientError, WatermarkStalled
from applier.pipeline.stall import refuse_stall
from tests import recordings
from tests.placing import place_by
from tests.replay import Replay, differences, replay
from tests.services.kafka import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from applier.pipeline.step import Pipeline
    from tests.services.kafka import Broker


def produce(
    address: str, records: Iterable[Mapping[str, Any]], *, topic_prefix: str, extra_partitions: int = 0
) -> list[str]:
    """Write records to topics of a broker, each to its own partition; topics get a prefix.

    Returns:
        The topics.
    """
    found = list(records)
    sizes: dict[str, int] = {}
    for record in found:
        topic = topic_prefix + record["topic"]
        sizes[topic] = max(sizes.get(topic, 0), record["partition"] + 1)
    # A temporary client would be collected while its futures are waited for.
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(topic, size + extra_partitions, 1) for topic, size in sizes.items()])
    for future in made.values():
        future.result()
    send(address, found, topic_prefix)
    return sorted(sizes)


def from_kafka(found: Replay, address: str, topics: list[str]) -> Replay:
    """The same replay, read from a broker."""
    found.raw["source"] = {"kafka": {"topics": topics, "kafka.bootstrap.servers": address}}
    return found


def run_to_end(found: Replay, spark: SparkSession) -> int:
    """Apply all that is there; the resolved ts that was reached."""
    with found.running(spark) as pipeline:
        return step_to_end(pipeline)


def step_to_end(pipeline: Pipeline) -> int:
    """Let a pipeline apply all that is there; the resolved ts that was reached."""
    ends = pipeline.ends()
    while True:
        step = pipeline.step(ends)
        if not step.moved and step.complete:
            return pipeline.state.resolved_ts


SCENARIOS = [
    ("txns", "simple-json"),
    ("ddl", "simple-json-topic-per-table"),
    ("types", "simple-avro"),
    ("partition", "simple-json"),
    ("pk", "simple-json"),
    ("workload", "simple-json"),
]
"""All scenarios whose feed begins with its tables."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is down is waited for four seconds, not thirty."""
    monkeypatch.setattr("applier.consume.spark.KafkaAdmin", partial(KafkaAdmin, timeout_ms=4_000))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "scenarios", [SCENARIOS[:3], pytest.param(SCENARIOS[3:], marks=pytest.mark.soak)], ids=["first", "others"]
)
def test_broker_gives_the_same_tables_as_the_archive_although_it_is_restarted(
    scenarios: Sequence[tuple[str, str]], spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """Half way the broker is gone: two steps fail so that they may be tried again, and all appliers go on to the end.

    Every cell of every table is what SQL showed there.
    """
    with ExitStack() as stack:
        running = []
        for scenario, variant in scenarios:
            records = list(recordings.records(scenario, variant))
            topics = produce(kafka.bootstrap, records, topic_prefix=f"{scenario}-{variant}-")
            found = replay(scenario, variant, lake, tmp_path, "simple", name=f"kafka-{scenario}-{variant}")
            found = from_kafka(found, kafka.bootstrap, topics)
            found.raw["source"]["messages_per_step"] = len(records) // 4
            pipeline = stack.enter_context(found.running(spark))
            while not pipeline.step().moved:
                pass
            running.append((found, pipeline))

        ends = [recordings.expected(found.scenario)[-1]["resolved_ts"] for found, _ in running]
        under_way = [p.state.resolved_ts < end for (_, p), end in zip(running, ends, strict=True)]
        assert sum(under_way) > len(running) / 2, "most feeds came to their end before the broker stops"
        kafka.stop()
        try:
            # Each attempt waits for its answer; the others meet a broker that has come back.
            for _, pipeline in running[:2]:
                with pytest.raises(TransientError, match="does not answer"):
                    pipeline.step()
        finally:
            kafka.start()

        for found, pipeline in running:
            state = recordings.expected(found.scenario)[-1]
            assert step_to_end(pipeline) >= state["resolved_ts"]
            assert differences(found, state) == []


@pytest.fixture
def large_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window counts as too large to be held."""
    place_by(monkeypatch, window_bytes=0)
    monkeypatch.setattr("applier.consume.spark._CHUNK_BYTES", 4_000)


@pytest.mark.usefixtures("large_windows")
@pytest.mark.parametrize(("engine", "many"), [("driver", 1_000_000), ("driver", 0), ("spark", 0)])
def test_tasks_of_spark_give_the_same_tables_as_the_driver(
    spark: SparkSession,
    kafka: Broker,
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    many: int,
) -> None:
    """Large windows are decoded while they are read, by one process or by several, or in Spark's tasks."""
    place_by(monkeypatch, window_bytes=0, process_messages=many)
    name = f"{engine}-{many}"
    topics = produce(kafka.bootstrap, recordings.records("txns", "simple-json"), topic_prefix=f"{name}-")
    found = from_kafka(
        replay("txns", "simple-json", lake, tmp_path, "simple", name=f"kafka-{name}"), kafka.bootstrap, topics
    )
    found.raw["source"]["engine"] = engine

    run_to_end(found, spark)

    assert differences(found, recordings.expected("txns")[-1]) == []


@pytest.mark.usefixtures("large_windows")
def test_a_decoding_process_that_is_killed_costs_a_step(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is tried again, by new processes, and every cell is right in the end."""
    place_by(monkeypatch, window_bytes=0, process_messages=0)
    records = list(recordings.records("txns", "simple-json"))
    topics = produce(kafka.bootstrap, records, topic_prefix="killed-")
    found = from_kafka(
        replay("txns", "simple-json", lake, tmp_path, "simple", name="kafka-killed"), kafka.bootstrap, topics
    )
    found.raw["source"] |= {"engine": "driver", "messages_per_step": len(records) // 3}

    with found.running(spark) as pipeline:
        while not pipeline.step().moved:
            pass
        decoding = children("applier.consume.workers.main")
        for process in decoding:
            os.kill(process, signal.SIGKILL)
        with pytest.raises(TransientError, match="ended before its work did, by signal 9"):
            pipeline.step()
        step_to_end(pipeline)

    assert decoding
    assert not children("applier.consume.workers.main")
    assert differences(found, recordings.expected("txns")[-1]) == []


def children(program: str) -> list[int]:
    """Processes that this one started and that run a program."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _is_child(folder) and program.encode() in (folder / "cmdline").read_bytes()
    ]


def _is_child(folder: Path) -> bool:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


def test_partitions_that_ticdc_does_not_use_are_named(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """A partition above `partition-num` never gets a watermark: the stall says so, and the setting ends it."""
    records = list(recordings.records("pk", "simple-json"))
    topics = produce(kafka.bootstrap, records, topic_prefix="unused-", extra_partitions=1)
    used = max(record["partition"] for record in records) + 1
    found = from_kafka(
        replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-unused"), kafka.bootstrap, topics
    )

    with found.running(spark) as pipeline:
        step = pipeline.step()
        assert step.silent == [TopicPartition(topics[0], used)]
        with pytest.raises(WatermarkStalled, match=r"No watermark has ever come from .*changefeed.partitions"):
            refuse_stall(step)
    found.raw["changefeed"]["partitions"] = used
    run_to_end(found, spark)

    assert differences(found, recordings.expected("pk")[-1]) == []


def test_missing_topic_is_named(spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path) -> None:
    """The sentence has the topic and the address."""
    found = from_kafka(
        replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-none"), kafka.bootstrap, ["no-such-topic"]
    )

    with pytest.raises(SourceLost, match="has no topic no-such-topic"), found.running(spark):
        pytest.fail("the changefeed was taken")
    assert ("applier_kafka-none",) not in found.catalog.list_namespaces()


@pytest.mark.usefixtures("impatient")
def test_broker_that_is_down_is_transient(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not answer is tried again, not given up; the hint names what looks the same."""
    monkeypatch.setattr("applier.runtime.retry.OUTAGE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        found = from_kafka(replay("pk", "simple-json", lake, tmp_path, "simple", name="kafka-down"), at, ["t"])
        found.raw["source"]["kafka"]["kafka.request.timeout.ms"] = "1000"

        with pytest.raises(TransientError, match=f"{at} does not answer: Timed out") as raised, found.running(spark):
            pytest.fail("the changefeed was taken")
    assert "a listener that is secured otherwise" in raised.value.hint


def test_a_consumer_group_shows_the_offsets_of_the_checkpoint(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's own tools see them. Where the group is another consumer's, the run goes on, and warns once."""
    topics = produce(kafka.bootstrap, list(recordings.records("txns", "simple-json")), topic_prefix="shown-")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    busy = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "busy"})
    busy.subscribe(topics)
    while not busy.assignment():
        busy.poll(1)
    for group in ("shown", "busy"):
        found = replay("txns", "simple-json", lake, tmp_path, "simple", name=f"kafka-{group}")
        found = from_kafka(found, kafka.bootstrap, topics)
        found.raw["source"]["kafka"]["consumer_group"] = group
        with found.running(spark) as pipeline:
            run_once(Follower(pipeline), threading.Event(), Reports(lambda _: None))
            offsets = pipeline.state.checkpoint.next_offsets
            pipeline.source.show_offsets(offsets)
            while not pipeline.source._admin._client.isShown():  # type: ignore[attr-defined]
                busy.poll(0.1)
            pipeline.source.show_offsets(offsets)
        assert sum(offsets.values()) > 0
        (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        shown = {TopicPartition(it.topic, it.partition): it.offset for it in asked.result().topic_partitions}
        assert shown == (offsets if group == "shown" else {})
        assert ("offsets not shown to Kafka" in capsys.readouterr().out) == (group == "busy")
    busy.close()
