"""Messages that are too large for the configuration, or for the memory of the driver, from a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from applier.commands import dead_letters
from applier.config import settings
from tests import recordings
from tests.integration.test_kafka_source import from_kafka, produce, run_to_end
from tests.placing import place_by
from tests.recovery.process import Applier, once
from tests.replay import Replay, differences, replay
from tests.services.kafka import send
from tests.spark.test_backfill import run as backfill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker

DEAD_LETTER = {"on_bad_message": "dead_letter"}


def feed(broker: Broker, folder: Path, prefix: str, value: bytes, replaced: int | None = None) -> tuple[Replay, str]:
    """A recorded feed with another message in its middle, or in place of one; and the place of that message."""
    records = list(recordings.records("pk", "simple-json"))
    half = len(records) // 2 if replaced is None else replaced
    topics = produce(broker.bootstrap, records[:half], topic_prefix=prefix)
    offset = sum(record["partition"] == 0 for record in records[:half])
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1_000_000_000, "compression.type": "zstd"}
    )
    producer.produce(topics[0], value=value, partition=0)
    assert not producer.flush(120)
    send(broker.bootstrap, records[half + (replaced is not None) :], prefix)
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    found = from_kafka(replay("pk", "simple-json", lake, folder, "simple"), broker.bootstrap, topics)
    return found, f"{topics[0]}/0:{offset}"


def letters(found: Replay) -> list[tuple[str, str]]:
    """Place and reason of each dead letter."""
    return [(dead_letters.place_of(letter), letter.error) for letter in dead_letters.found(settings.parse(found.raw))]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_message_that_does_not_fit_into_memory_is_named_by_its_place(
    engine: str, kafka: Broker, tmp_path: Path
) -> None:
    """700 MB in a few kilobytes: the run stops before it, or sets it aside and every other row arrives.

    The driver reads it, or a task of Spark; an executor of a cluster would not live to say so, if the task did.
    """
    found, place = feed(kafka, tmp_path, f"bomb-{engine}-", b"\0" * 700_000_000)
    found.raw["source"]["engine"] = engine
    if engine == "spark":
        as_on_a_cluster = {"spark.executor.killOnFatalError.depth": "5"}
        found.raw["spark"] = {"spark.master": "local[1]", "spark.driver.memory": "1g", **as_on_a_cluster}

    stopped = once(found.raw, tmp_path)

    topic, _, offset = place.rpartition(":")
    assert stopped.code == 3
    assert f"Cannot decode simple message at {topic}:{offset}: It does not fit into the memory of the driver" in (
        stopped.said
    )

    found.raw["changefeed"] |= DEAD_LETTER
    passed = once(found.raw, tmp_path)

    assert passed.code == 0
    assert not passed.said or engine == "spark"  # Spark reports the task that failed.
    assert differences(found, recordings.expected("pk")[-1]) == []
    assert [where for where, _ in letters(found)] == [place]

    left = Applier(found.raw, tmp_path, "--dead-letters", command="backfill").wait()

    assert left.code == 1
    assert "It does not fit into the memory of the driver" in " ".join(left.everything.split())


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_row_that_did_not_fit_into_memory_is_made_up_for_once_there_is_more(kafka: Broker, tmp_path: Path) -> None:
    """What the error says helps: with more memory and a higher limit the row is read from the topic again."""
    records = list(recordings.records("pk", "simple-json"))
    chosen = next(
        number
        for number, record in enumerate(records)
        if number > len(records) // 2 and record["partition"] == 0 and b'"type":"INSERT"' in record["value"]
    )
    row = records[chosen]["value"]
    found, place = feed(kafka, tmp_path, "heal-", row[:-1] + b" " * 250_000_000 + row[-1:], replaced=chosen)
    found.raw["changefeed"] |= DEAD_LETTER

    passed = once(found.raw, tmp_path)

    assert passed.code == 0
    assert [where for where, _ in letters(found)] == [place]
    assert differences(found, recordings.expected("pk")[-1])

    found.raw["source"]["max_message_bytes"] = 300_000_000
    found.raw["spark"] = {"spark.master": "local[1]", "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    made_up = Applier(found.raw, tmp_path, "--dead-letters", command="backfill").wait()

    assert made_up.code == 0, made_up.said
    assert letters(found) == []
    assert differences(found, recordings.expected("pk")[-1]) == []


def limited(broker: Broker, folder: Path, lake: dict[str, str], name: str) -> tuple[Replay, int]:
    """A recorded feed some of whose messages are above the limit of its configuration, and how many."""
    records = list(recordings.records("txns", "simple-json"))
    limit = 3_500
    large = [record for record in records if len(record["value"]) > limit]
    assert 0 < len(large) < 100
    topics = produce(broker.bootstrap, records, topic_prefix=f"{name}-")
    found = from_kafka(replay("txns", "simple-json", lake, folder, "simple", name=name), broker.bootstrap, topics)
    found.raw["source"]["max_message_bytes"] = limit
    found.raw["changefeed"] |= DEAD_LETTER
    return found, len(large)


def test_rows_above_the_limit_are_set_aside_and_made_up_for(
    spark: SparkSession, kafka: Broker, lake: dict[str, str], tmp_path: Path
) -> None:
    """Nothing is made up for below the limit, and every cell is right once it is raised."""
    found, large = limited(kafka, tmp_path, lake, "limit-here")
    run_to_end(found, spark)
    assert differences(found, recordings.expected("txns")[-1])
    assert len(letters(found)) == large

    backfill(found, None, dead_letters=True)
    assert len(letters(found)) == large
    found.raw["source"]["max_message_bytes"] = 10_000
    backfill(found, None, dead_letters=True)

    assert differences(found, recordings.expected("txns")[-1]) == []
    assert letters(found) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_rows_above_the_limit_are_set_aside_and_made_up_for_once_it_is_raised(kafka: Broker, tmp_path: Path) -> None:
    """Exit 1 while a dead letter is left, and 0 once all of them are applied; then every cell is right."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found, large = limited(kafka, tmp_path, lake, "limit")

    passed = once(found.raw, tmp_path)

    assert (passed.code, passed.said) == (0, "")
    assert differences(found, recordings.expected("txns")[-1])
    shown = letters(found)
    assert len(shown) == large
    assert all("source.max_message_bytes is 3,500" in why for _, why in shown)

    left = Applier(found.raw, tmp_path, "--dead-letters", command="backfill").wait()

    assert left.code == 1

    found.raw["source"]["max_message_bytes"] = 10_000
    made_up = Applier(found.raw, tmp_path, "--dead-letters", command="backfill").wait()

    assert made_up.code == 0, made_up.said
    assert differences(found, recordings.expected("txns")[-1]) == []
    assert letters(found) == []


@pytest.mark.parametrize(
    "local_bytes", [pytest.param(1 << 40, id="collected", marks=pytest.mark.soak), pytest.param(0, id="streamed")]
)
def test_windows_of_large_messages_are_shorter_and_lose_nothing(
    spark: SparkSession,
    kafka: Broker,
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local_bytes: int,
) -> None:
    """A burst of larger messages is read again in shorter windows; the tables are right at the end."""
    place_by(monkeypatch, window_bytes=local_bytes)
    name = f"bytes-{min(local_bytes, 1)}"
    records = list(recordings.records("txns", "simple-json"))
    topics = produce(kafka.bootstrap, records, topic_prefix=f"{name}-")
    found = from_kafka(replay("txns", "simple-json", lake, tmp_path, "simple", name=name), kafka.bootstrap, topics)
    most = 100_000
    assert sum(len(record["value"]) for record in records) > 4 * most
    found.raw["source"]["bytes_per_step"] = most
    sizes: list[int] = []
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        while True:
            step = pipeline.step(ends)
            sizes.append(pipeline.state.checkpoint.counts["bytes"])
            if not step.moved and step.complete:
                break

    assert differences(found, recordings.expected("txns")[-1]) == []
    assert len(sizes) > 4
    # A window without a new watermark is doubled until it has one.
    assert sorted(sizes)[len(sizes) // 2] <= most
    assert max(sizes) <= 4 * most
