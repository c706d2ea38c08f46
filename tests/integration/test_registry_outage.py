"""Avro through a real Kafka broker and a real schema registry, whose door is shut in every way and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from applier.errors import RegistryDenied, RegistryError, TransientError
from tests import recordings
from tests.fake_registry import Answer, FakeRegistry, Request, fake_registry
from tests.integration.test_kafka_source import from_kafka, produce
from tests.replay import differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import Broker
    from tests.services.registry import Registry

SCENARIO, VARIANT = "pk", "avro-before-value"


class Door:
    """Stands before the real registry: passes questions on, or gives an answer of its own.

    Attributes:
        shut: The answer to everything while it is shut; None while it is open.
    """

    def __init__(self, behind: Registry) -> None:
        self.behind = behind
        self.shut: Answer | None = None

    def answer(self, request: Request) -> Answer:
        """The answer to one question."""
        if self.shut is not None:
            return self.shut
        found = requests.get(self.behind.url + request.path, timeout=30)
        return Answer(found.status_code, found.json())


@pytest.fixture
def door(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Door, str]]:
    """A door, and its address."""
    standing = Door(registry)
    monkeypatch.setattr(FakeRegistry, "answer", lambda _self, request: standing.answer(request))
    with fake_registry() as server:
        yield standing, server.url


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
    monkeypatch.setattr("applier.decode.registry_http.MAX_WAIT_SECONDS", 0.01)
    standing, url = door
    topics = produce(kafka.bootstrap, _registered(registry), topic_prefix="outage-")
    found = from_kafka(replay(SCENARIO, VARIANT, lake, tmp_path, "avro", name="outage"), kafka.bootstrap, topics)
    found.raw["registry"] = {"url": url}

    with found.running(spark) as pipeline:
        standing.shut = Answer(503, {"message": "starting"}, {"Retry-After": "0"})
        with pytest.raises(TransientError, match=r"could not be reached in 5 attempts: .* answers 503"):
            pipeline.step()

        standing.shut = Answer(401, {"error_code": 40101, "message": "Unauthorized"})
        with pytest.raises(RegistryDenied, match=r"answers 401 \(40101\): Unauthorized. Hint: check user and password"):
            pipeline.step()

        standing.shut = Answer(404, {"error_code": 40403, "message": "Schema not found"})
        step = pipeline.step()
        assert isinstance(step.error, RegistryError)
        assert "answers 404 (40403): Schema not found." in str(step.error)
        assert "the messages were written with another registry" in str(step.error)

        standing.shut = None
        ends = pipeline.ends()
        while (step := pipeline.step(ends)).moved or not step.complete:
            assert step.error is None

    assert differences(found, recordings.expected(SCENARIO)[-1]) == []
