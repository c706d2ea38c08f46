"""A question to Kafka, which may be answered late or never."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from applier.changefeed.window import Window
from applier.config.source import SourceSection
from applier.consume.kafka.admin import KafkaAdmin
from applier.consume.kafka.client import KafkaClient
from applier.consume.spark import KafkaSource
from applier.runtime.stop_requests import StopRequested, stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_request_does_not_wait_for_an_answer(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's client waits 30 seconds for brokers that are away; a question changes nothing."""
    section = SourceSection.model_validate({"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:9092"}})
    spark = cast("Any", SimpleNamespace(_jvm=None, sparkContext=SimpleNamespace(defaultParallelism=1)))
    source = KafkaSource(spark, section, "applier-shop")

    def wait(*_: object) -> NoReturn:
        signal.raise_signal(number)
        pytest.fail("the answer is waited for")

    monkeypatch.setattr("applier.consume.spark.refuse_unreachable", lambda _: None)
    for question in ("bounds", "topic_ids", "offsets_at"):
        monkeypatch.setattr(KafkaAdmin, question, wait)
    for ask in (source.bounds, source.topic_ids, lambda: source.offsets_at(0)):
        with stop_signals(60), pytest.raises(StopRequested):
            ask()


def test_a_window_without_messages_is_not_asked_for() -> None:
    """Most looks of an idle changefeed find none."""
    client = KafkaClient(jvm=None, options={})

    assert client.read(Window({})) == {}


def test_a_fetch_size_that_is_no_number_is_left_to_kafka_to_refuse() -> None:
    """Kafka's own sentence names option and value, and a source that is being made has no way to say it."""
    kafka = {"topics": ["t"], "kafka.bootstrap.servers": "b:9092", "kafka.max.partition.fetch.bytes": "four"}
    spark = cast("Any", SimpleNamespace(_jvm=None, sparkContext=SimpleNamespace(defaultParallelism=1)))

    KafkaSource(spark, SourceSection.model_validate({"kafka": kafka}), "applier-shop")
