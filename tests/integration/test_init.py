"""`applier init` looks at topics of a real broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.message import TopicPartition
from applier.commands.check.command import check
from applier.commands.init import look as init_look
from applier.commands.init.command import init
from applier.commands.init.look import look
from applier.commands.init.write import Answers
from applier.config.settings import load
from applier.consume.spark import KafkaSource
from applier.errors import ConfigError, SourceLost
from applier.runtime.figures import counted
from tests import recordings
from tests.integration.test_kafka_source import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("topics_in_spark")]


@pytest.fixture
def topics_in_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM of the tests asks the broker: one more would cost a second a test."""
    monkeypatch.setattr(init_look, "topics_alone", lambda config: closing(KafkaSource(spark, config.source, "init")))


def test_a_first_configuration_comes_from_a_look_at_the_broker(kafka: Broker, tmp_path: Path) -> None:
    """Protocol, watermark and partitions are seen; what is written passes the check."""
    records = list(recordings.records("pk", "canal-json-ext"))
    topics = produce(kafka.bootstrap, records, topic_prefix="init-", extra_partitions=1)
    section = {"topics": topics, "kafka.bootstrap.servers": kafka.bootstrap}
    file, said = tmp_path / "applier.toml", list[str]()
    answers = Answers(
        section,
        name="shop",
        catalog={"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": f"{tmp_path}/lake"},
    )

    init(file, answers, say=said.append)

    config = load(file)
    assert config.changefeed.protocol == "canal-json"
    assert check(config).exit_code == 0
    assert said[1].endswith(" messages looked at: protocol canal-json, with a resolved ts.")
    parts = max(record["partition"] for record in records) + 2
    assert f"# Topic {topics[0]}: {counted(parts, 'partition')}, {len(records)} offsets." in file.read_text()
    assert f"# Partitions {parts - 1} hold no message." in file.read_text()

    with pytest.raises(SourceLost, match="has no topic init-none"):
        look(section | {"topics": ["init-none"]}, None, None)


def test_a_pattern_that_java_alone_refuses_is_wrong_configuration(kafka: Broker) -> None:
    """Its reason is in the sentence, and nothing is tried again."""
    section = {"topic_pattern": r"shop_\p{Nothing}", "kafka.bootstrap.servers": kafka.bootstrap}

    with pytest.raises(ConfigError, match=r"source\.kafka\.topic_pattern: is no regular expression of Java: Unknown"):
        look(section, None, None)


def test_an_empty_pattern_shows_no_protocol(kafka: Broker) -> None:
    """Topics that do not exist yet are none to guess from."""
    section = {"topic_pattern": "no-such-topic-.*", "kafka.bootstrap.servers": kafka.bootstrap}

    sight = look(section, None, None)

    assert (sight.bounds, sight.findings.protocols) == (dict[TopicPartition, object](), ())
