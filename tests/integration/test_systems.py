"""`applier check`, and what is asked before Spark starts, against a real broker and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from applier.commands.before_spark import refuse
from applier.commands.check.systems import ask
from applier.config.settings import Config
from applier.errors import SourceLost, Unreachable
from applier.runtime.figures import counted
from tests import recordings
from tests.integration.test_kafka_source import produce
from tests.services.kafka import Broker
from tests.unit.commands.check.world import World

pytestmark = pytest.mark.kafka


def configured(folder: Path, servers: str, topics: list[str], protocol: str = "canal-json") -> Config:
    """A changefeed of some topics."""
    world = World(folder)
    world.raw["changefeed"]["protocol"] = protocol
    world.raw["source"] = {"kafka": {"topics": topics, "kafka.bootstrap.servers": servers}}
    return world.config


def told(config: Config) -> Iterator[tuple[str, str, str]]:
    """What is told of Kafka; the machine may be busy, so that nothing depends on the time."""
    for item in ask(config, 240).answers:
        if item.checked in {"Kafka", "messages", "offsets"}:
            yield item.checked, item.verdict, item.result


def test_what_a_broker_shows_without_spark(kafka: Broker, tmp_path: Path) -> None:
    """Topics, partitions, protocol and watermark; a topic that is not there, and another protocol."""
    found = list(recordings.records("pk", "canal-json-ext"))
    topics = produce(kafka.bootstrap, found, topic_prefix="systems-")
    parts = max(record["partition"] for record in found) + 1

    assert list(told(configured(tmp_path, kafka.bootstrap, topics))) == [
        ("Kafka", "fits", f"It answers: {counted(parts, 'partition')} of 1 topic ({topics[0]})."),
        ("messages", "fits", f"{len(found)} messages were looked at: protocol canal-json, with a resolved ts."),
        ("offsets", "fits", "The topics are there from their first message on."),
    ]
    other = list(told(configured(tmp_path, kafka.bootstrap, topics, "simple")))[-1]
    assert other[1:] == (
        "does not fit",
        f"None of the {len(found)} messages looked at is of protocol simple. They look like canal-json.",
    )
    missing = configured(tmp_path, kafka.bootstrap, [*topics, "systems-none"])
    sentence = f"Kafka at {kafka.bootstrap} has no topic systems-none."
    assert list(told(missing)) == [("Kafka", "does not fit", sentence)]
    with pytest.raises(SourceLost, match=sentence):
        refuse(missing)
    with pytest.raises(Unreachable, match="no host nowhere.invalid is known"):
        refuse(configured(tmp_path, "nowhere.invalid:9092", topics))
    refuse(configured(tmp_path, kafka.bootstrap, topics))
