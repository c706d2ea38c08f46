"""Alive or stuck, by the signs of progress of the process; and which outside system an outage is of."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from http import HTTPStatus
from types import SimpleNamespace
from typing import cast

import pytest

from applier import wording
from applier.consume import offsets
from applier.errors import RegistryDenied, TransientError
from applier.runtime import pulse
from applier.runtime.outages import Outages, system_of
from applier.sink.format.types import TableSchema
from applier.watch import watching
from applier.watch.board import Board
from applier.watch.report import StatusReport, Trouble
from applier.watch.server import Answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Monotonic seconds that the test sets."""
    now = [1000.0]
    monkeypatch.setattr("applier.runtime.pulse.time.monotonic", lambda: now[0])
    pulse.PULSE.beat()
    return now


def test_a_process_without_progress_is_stuck(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign of progress later it is alive again."""
    monkeypatch.setattr(watching, "finished_tasks", lambda: 0)
    health = watching.Health(600)
    clock[0] += 599
    assert health.answer().status == HTTPStatus.OK
    clock[0] += 2
    found = health.answer()
    assert (found.status, found.body) == (HTTPStatus.SERVICE_UNAVAILABLE, b"stuck: no progress for 601 s\n")
    pulse.PULSE.beat()
    assert health.answer().status == HTTPStatus.OK


def test_tasks_of_spark_are_progress(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite of a large table is one stage for hours; only if its tasks stand still, too, it is stuck."""
    tasks = [0]
    monkeypatch.setattr(watching, "finished_tasks", lambda: tasks[0])
    health = watching.Health(600)
    for _ in range(10):
        clock[0] += 300
        tasks[0] += 1
        assert health.answer().status == HTTPStatus.OK
    for passed in (300, 300):
        clock[0] += passed
        assert health.answer().status == HTTPStatus.OK
    clock[0] += 1
    assert health.answer().status == HTTPStatus.SERVICE_UNAVAILABLE


def test_the_stage_shows_whose_outage_it_is() -> None:
    """By the innermost stage that raised."""
    with pytest.raises(TypeError) as of_source:
        offsets.capped(None, None)  # type: ignore[arg-type]
    assert system_of(of_source.value) == "source"
    with pytest.raises(ValueError) as of_lake:  # noqa: PT011 - any error will do
        TableSchema.parse("no JSON")
    assert system_of(of_lake.value) == "lake"
    assert system_of(RegistryDenied("a task of Spark met it")) == "registry"
    assert system_of(TransientError("nobody raised it")) == "other"


def test_an_outage_is_counted_once_and_ends() -> None:
    """Its sentence is shown while it lasts."""
    outages = Outages()
    outages.begin(TransientError("Kafka does not answer."))
    assert (outages.current, sum(outages.counts.values())) == ("Kafka does not answer.", 1)
    outages.end()
    assert outages.current is None


def test_an_answer_that_is_late_is_said_until_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an outage that is not counted; what failed before says more."""
    monkeypatch.setattr("applier.runtime.outages.LATE_SECONDS", 0.0)
    outages, shown = Outages(), threading.Event()

    def warning(event: str, **fields: str) -> None:
        assert (event, fields["of"]) == ("no answer yet", "Kafka at b:9092")
        shown.set()

    monkeypatch.setattr("applier.runtime.outages.logger", lambda: SimpleNamespace(warning=warning))
    with outages.asking("source", "Kafka at b:9092"):
        assert shown.wait(30)
        assert outages.system == "source"
        assert re.fullmatch(r"Kafka at b:9092 has not answered since [0-9:]{8} UTC\.", outages.current or "")
    assert outages == Outages()
    outages.begin(TransientError("Kafka does not answer."))
    with outages.asking("source", "Kafka at b:9092"):
        pass
    assert outages.current == "Kafka does not answer."


def test_readiness_says_what_names_nothing_of_the_database() -> None:
    """It needs no token: a feed that stands still in the words of the page, and of tables only that they are stale."""
    still = Trouble(wording.stands_still(470614016000000000), wording.WAY_TO_A_LIVING_FEED, is_open=True)
    found = StatusReport("shop", 300.0, "", stale=(still, Trouble("Table shop.orders is parked.")))

    answer = _answered(found)

    assert (answer.status, answer.body.decode()) == (503, f"stale; {still.because} / and /status.json say more\n")
    assert _answered(replace(found, stale=found.stale[1:])).body == b"stale; / and /status.json say why\n"
    complete = _answered(replace(found, stale=(), pace="complete"))
    assert (complete.status, complete.body) == (200, b"complete\n")


def _answered(report: StatusReport) -> Answer:
    return watching._ready(cast("Board", SimpleNamespace(view=lambda: SimpleNamespace(report=report))))
