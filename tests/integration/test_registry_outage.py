"""Avro through a real Kafka broker and a real schema registry, whose door is shut or slow in every way, then opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import requests

from applier.commands.follower import Follower
from applier.commands.run import Reports, run_once
from applier.decode.registry.client import RegistryHttp
from applier.errors import RegistryDenied, SchemaUnknown, TransientError
from applier.runtime.retry import LATE_SECONDS, Deadline
from tests import recordings
from tests.fake_registry import Answer, FakeRegistry, Request, fake_registry
from tests.integration.test_kafka_source import from_kafka, produce
from tests.replay import Replay, differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from applier.changefeed.message import TopicPartition
    from applier.config.registry import RegistrySection
    from applier.pipeline.step import Pipeline
    from tests.services.kafka import Broker
    from tests.services.registry import Registry

SCENARIO, VARIANT = "pk", "avro-before-value"


class Door:
    """Stands before the real registry: passes questions on, or gives an answer of its own.

    Attributes:
        shut: The answer to everything while it is shut; None while it is open.
        slow: So many questions get their answer only when one more has come.
        asked: Questions so far.
    """

    def __init__(self, behind: Registry) -> None:
        self.behind = behind
        self.shut: Answer | None = None
        self.slow = 0
        self.asked = 0
        self.opened = threading.Event()
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """The answer to one question."""
        with self._lock:
            self.asked += 1
            is_late = self.asked <= self.slow
        if self.shut is not None:
            return self.shut
        if is_late:
            self.opened.wait()
        else:
            self.opened.set()
        found = requests.get(self.behind.url + request.path, timeout=30)
        return Answer(found.status_code, found.json())


@pytest.fixture
def door(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Door, str]]:
    """A door, and its address."""
    standing = Door(registry)
    monkeypatch.setattr(FakeRegistry, "answer", lambda _self, request: standing.answer(request))
    with fake_registry() as server:
        yield standing, server.url
        standing.opened.set()


def _registered(registry: Registry) -> list[dict[str, Any]]:
    """The recorded messages under the ids that the real registry gives their schemas."""
    ids = {
        entry["id"]: registry.register(f"outage_{entry['subject']}", entry["schema"])
        for entry in recordings.registry(SCENARIO, VARIANT)
    }

    def framed(data: bytes | None) -> bytes | None:
        if not data or data[0] != 0:
            return data
        return b"\0" + ids[int.from_bytes(data[1:5], "big")].to_bytes(4, "big") + data[5:]

    records = list(recordings.records(SCENARIO, VARIANT))
    return [{**record, "key": framed(record["key"]), "value": framed(record["value"])} for record in records]


def _fed(kafka: Broker, registry: Registry, url: str, found: Replay) -> Replay:
    """The replay, read from a broker that has its messages; the registry is asked through the door."""
    topics = produce(kafka.bootstrap, _registered(registry), topic_prefix=f"{found.raw['changefeed']['name']}-")
    found.raw["registry"] = {"url": url}
    return from_kafka(found, kafka.bootstrap, topics)


def test_rows_are_equal_once_the_registry_answers(
    spark: SparkSession,
    kafka: Broker,
    registry: Registry,
    door: tuple[Door, str],
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Down, shut and without the schema it has its sentence each time; then the same pipeline goes on to the end."""
    monkeypatch.setattr("applier.decode.registry.client.MAX_WAIT_SECONDS", 0.01)
    now = 0.0
    standing, url = door
    found = _fed(kafka, registry, url, replay(SCENARIO, VARIANT, lake, tmp_path, "avro", name="outage"))

    with found.running(spark) as running:
        pipeline = replace(running, scanner=replace(running.scanner, schema_deadline=Deadline(lambda: now)))
        standing.shut = Answer(503, {"message": "starting"}, {"Retry-After": "0"})
        with pytest.raises(TransientError, match=r"could not be reached in 5 attempts: .* answers 503"):
            pipeline.step()

        standing.shut = Answer(401, {"error_code": 40101, "message": "Unauthorized"})
        with pytest.raises(RegistryDenied, match=r"answers 401 \(40101\): Unauthorized. Hint: check user and password"):
            pipeline.step()

        standing.shut = Answer(404, {"error_code": 40403, "message": "Schema not found"})
        sentence = r"answers 404 \(40403\): Schema not found. Hint: the registry may be behind the messages; else they"
        with pytest.raises(TransientError, match=sentence):
            _step_on(pipeline, pipeline.ends())
        now += LATE_SECONDS
        step = pipeline.step()
        assert isinstance(step.error, SchemaUnknown)
        assert not step.moved
        assert str(step.error).startswith("Cannot decode avro message at outage-")

        standing.shut = None
        ends = pipeline.ends()
        while (step := pipeline.step(ends)).moved or not step.complete:
            assert step.error is None

    assert differences(found, recordings.expected(SCENARIO)[-1]) == []


def _impatient(settings: RegistrySection, sleep: Callable[[float], None]) -> RegistryHttp:
    """A client that gives an answer half a second, three times in one step."""
    return RegistryHttp(settings.model_copy(update={"timeout_seconds": 0.5, "attempts": 3}), sleep)


def _step_on(pipeline: Pipeline, ends: Mapping[TopicPartition, int]) -> NoReturn:
    while True:
        pipeline.step(ends)


def test_a_slow_registry_costs_no_restart_and_no_row(
    spark: SparkSession,
    kafka: Broker,
    registry: Registry,
    door: tuple[Door, str],
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More answers in a row come too late than one step has attempts: the same run goes on to the end."""
    monkeypatch.setattr("applier.decode.registry.client.MAX_WAIT_SECONDS", 0.01)
    standing, url = door
    found = _fed(kafka, registry, url, replay(SCENARIO, VARIANT, lake, tmp_path, "avro", name="slow"))
    monkeypatch.setattr("applier.decode.registry.client.RegistryHttp", _impatient)
    standing.slow = 5

    with found.running(spark) as pipeline:
        run_once(Follower(pipeline), threading.Event(), Reports(lambda status: None))

    assert standing.asked > standing.slow
    assert differences(found, recordings.expected(SCENARIO)[-1]) == []


def test_messages_of_a_schema_that_never_comes_are_set_aside_in_the_end(
    spark: SparkSession,
    kafka: Broker,
    registry: Registry,
    door: tuple[Door, str],
    lake: dict[str, str],
    tmp_path: Path,
) -> None:
    """With `on_bad_message = "dead_letter"` they are waited for all the same; then each is kept whole."""
    now = 0.0
    standing, url = door
    records = [record for record in _registered(registry) if record["topic"] in ("golden-pk", "golden_keys_k_uk")]
    topics = produce(kafka.bootstrap, records, topic_prefix="never-")
    found = from_kafka(
        replay(SCENARIO, VARIANT, lake, tmp_path, "avro", name="never", on_bad_message="dead_letter"),
        kafka.bootstrap,
        topics,
    )
    found.raw["registry"] = {"url": url}
    standing.shut = Answer(404, {"error_code": 40403, "message": "Schema not found"})

    with found.running(spark) as running:
        pipeline = replace(running, scanner=replace(running.scanner, schema_deadline=Deadline(lambda: now)))
        ends = pipeline.ends()
        with pytest.raises(TransientError, match="Schema not found"):
            _step_on(pipeline, ends)
        now += LATE_SECONDS
        while (step := pipeline.step(ends)).moved or not step.complete:
            assert step.error is None

        letters = pipeline.state.control.letters()
    assert len(letters) == sum(record["value"][:1] == b"\0" for record in records)
