"""Lets others watch a running process: the page, its health, its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeAlias

from applier.config.settings import Config
from applier.errors import ConfigError
from applier.pipeline.step import Pipeline, Step
from applier.runtime.jvm.spark_session import finished_tasks
from applier.runtime.logs import logger
from applier.runtime.pulse import PULSE
from applier.watch.board import Board
from applier.watch.page import document
from applier.watch.server import Answer, Resource, serving
from applier.watch.webhook import alerting

Attempt: TypeAlias = Callable[[Pipeline, Callable[[], Step]], Step]
"""Makes an attempt at a step, by the function that it is given."""

_SUSPECT_SECONDS = 60.0
"""Time without a sign of progress after which Spark is asked for one."""


@contextmanager
def watching(config: Config) -> Iterator[Board]:
    """A board that takes what the steps did; `[http]` and `[webhook]` show it to others until the block ends.

    It raises what `serving` does.
    """
    board, health = Board(config), Health(config.http.stuck_seconds)
    started = time.time()
    resources = {
        "/": Resource(document.answer),
        "/history.json": Resource(lambda: document.history(board.view(), config.path, started)),
        "/metrics": Resource(lambda: _metrics(board, health)),
        "/status.json": Resource(lambda: Answer(board.view().report.to_json().encode(), "application/json")),
        "/healthz": Resource(health.answer, is_open=True),
        "/readyz": Resource(lambda: _ready(board), is_open=True),
    }
    with serving(config.http, resources) as address, alerting(config, board):
        if address is not None:
            logger().info("page", address=address)
        yield board


@contextmanager
def tracing(config: Config) -> Iterator[Attempt]:
    """A function that makes steps, and traces them as `[traces]` says until the block ends.

    It raises ConfigError where OpenTelemetry is not installed.
    """
    settings = config.traces
    if settings.endpoint is None:
        yield lambda pipeline, make: make()
        return
    try:
        from applier.watch.traces import Collector, traced  # noqa: PLC0415 - an optional package
    except ImportError as error:
        what = "traces.endpoint needs OpenTelemetry, which is not installed."
        raise ConfigError([f"{what} Run `pip install 'applier[otel]'`, or leave [traces] out."]) from error
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    with traced(config, Collector(settings.endpoint, headers)) as attempt:
        yield attempt


class Health:
    """Tells a process that works from one that is stuck: without any progress for `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._tasks = 0

    def answer(self) -> Answer:
        """200 while there is progress, or 503."""
        self.look()
        age = PULSE.age
        if age <= self._limit:
            return Answer(b"alive\n")
        return Answer(f"stuck: no progress for {age:.0f} s\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)

    def look(self) -> None:
        """Take what Spark has done for a sign of progress, where there was no other for long."""
        if PULSE.age > _SUSPECT_SECONDS and (tasks := finished_tasks()) != self._tasks:
            # A job of Spark may run for hours within one stage.
            self._tasks = tasks
            PULSE.beat()


def _metrics(board: Board, health: Health) -> Answer:
    health.look()
    return Answer(board.metrics.text(), "text/plain; version=0.0.4; charset=utf-8")


def _ready(board: Board) -> Answer:
    report = board.view().report
    if report.exit_code == 0:
        return Answer(f"{report.verdict}\n".encode())
    # The other reasons name tables, and this answer needs no token.
    why = "".join(f"{said.because} " for said in (*report.stale, *report.notes) if said.is_open)
    said = f"{report.verdict}; {why}/ and /status.json say {'more' if why else 'why'}\n"
    return Answer(said.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
