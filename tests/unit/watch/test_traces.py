"""Spans of the steps, as OpenTelemetry makes them, and as a collector takes them."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from applier.changefeed.ts import from_unix_ms
from applier.commands.follower import Follower
from applier.commands.run import Reports, follow
from applier.config import settings
from applier.config.settings import Config
from applier.errors import ConfigError, TerminalError, TransientError
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import StatusLine, Stopwatch
from applier.watch import traces
from applier.watch.traces import Collector, traced
from applier.watch.watching import Attempt, tracing

LINE = StatusLine(
    step=4,
    resolved_ts=from_unix_ms(1_700_000_000_000),
    now_ms=1_700_000_002_500,
    messages=398,
    rows=301,
    waiting=43,
    tables=5,
    backlog=71,
    seconds={},
    notes={},
)
BASE = {
    "changefeed": {"name": "shop", "protocol": "simple"},
    "source": {"archive": "feed"},
    "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
}


def _config(**given: Any) -> Config:
    return settings.parse({**BASE, "traces": given})


class Feed:
    """A pipeline whose steps do what a test says, within the stages `read` and `apply`."""

    def __init__(self, *does: Callable[[], Step]) -> None:
        self.config = _config()
        self.source = mock.MagicMock()
        self.stopwatch = Stopwatch()
        self.state = SimpleNamespace(checkpoint=SimpleNamespace(stopped=None, next_offsets={}))
        self._does = [*does]

    def step(self) -> Step:
        """One step."""
        self.stopwatch = Stopwatch()
        with self.stopwatch.stage("read"):
            pass
        with self.stopwatch.stage("apply"):
            return self._does.pop(0)()

    @property
    def pipeline(self) -> Pipeline:
        """The same, as a pipeline."""
        return cast("Pipeline", self)

    def attempt(self, found: Attempt) -> Step:
        """One attempt at a step."""
        return found(self.pipeline, self.step)


def _moved(line: StatusLine = LINE) -> Step:
    return Step(moved=True, complete=True, status=line)


def _fails(error: Exception) -> Step:
    raise error


def _spans(config: Config, work: Callable[[Attempt], object]) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    with traced(config, exporter) as found:
        work(found)
    return list(exporter.get_finished_spans())


def test_a_step_is_a_span_with_a_span_for_each_stage() -> None:
    """With the numbers of its status line, and the times at which the stages began and ended."""
    before = time.time_ns()
    read, apply, step = _spans(_config(), Feed(_moved).attempt)

    assert [span.name for span in (read, apply, step)] == ["read", "apply", "step"]
    assert dict(step.attributes or {}) == {
        "applier.changefeed": "shop",
        "applier.step": 4,
        "applier.messages": 398,
        "applier.rows": 301,
        "applier.tables": 5,
        "applier.backlog": 71,
        "applier.lag_seconds": 2.5,
        "applier.moved": True,
    }
    assert step.status.status_code is StatusCode.UNSET
    assert step.resource.attributes["service.name"] == "applier"
    for stage in (read, apply):
        assert stage.parent is not None
        assert stage.context.trace_id == step.context.trace_id
        assert stage.parent.span_id == step.context.span_id
    times = [before, *_times(step)[:1], *_times(read), *_times(apply)]
    assert times == sorted(times)
    assert _times(step)[1] <= time.time_ns()


def _times(span: ReadableSpan) -> tuple[int, int]:
    return span.start_time or 0, span.end_time or 0


@pytest.mark.parametrize("resolved_ts", [None, 0])
def test_without_a_watermark_there_is_no_lag(resolved_ts: int | None) -> None:
    """Neither 0 nor the age of 1970, which a feed would have before its first watermark."""
    line = StatusLine(4, resolved_ts, 1_700_000_000_000, 1, 1, 0, 1, 0, {}, {})
    *_, step = _spans(_config(), Feed(lambda: _moved(line)).attempt)

    assert "applier.lag_seconds" not in (step.attributes or {})


def test_a_step_that_fails_shows_the_class_of_its_error_and_where_it_arose() -> None:
    """And nothing of the message, which may name tables; the error goes on. Numbers are not known."""
    feed = Feed(lambda: _fails(TransientError("the lake is away")))

    def work(found: Attempt) -> None:
        with pytest.raises(TransientError):
            feed.attempt(found)

    read, apply, step = _spans(_config(), work)

    assert [span.name for span in (read, apply)] == ["read", "apply"]
    assert (step.status.status_code, step.status.description) == (StatusCode.ERROR, "TransientError")
    assert dict(step.attributes or {}) == {"applier.changefeed": "shop", "error.type": "TransientError"}
    assert step.events == ()


def test_an_attempt_that_fails_before_its_first_stage_has_no_stages_of_the_last_one() -> None:
    """They would come before it."""
    feed = Feed(_moved)

    def work(found: Attempt) -> None:
        feed.attempt(found)
        with pytest.raises(TerminalError):
            found(feed.pipeline, lambda: _fails(TerminalError("held by another")))

    assert [span.name for span in _spans(_config(), work)] == ["read", "apply", "step", "step"]


def test_a_run_hands_over_every_attempt_at_a_step() -> None:
    """Also that of an error that ends it."""
    feed = Feed(_moved, lambda: _fails(TerminalError("no more")))
    no_reload = SimpleNamespace(reloaded=None)
    follower = cast("Follower", SimpleNamespace(pipeline=feed, turn=feed.step, requests=no_reload))

    def work(found: Attempt) -> None:
        with pytest.raises(TerminalError):
            follow(follower, threading.Event(), Reports(lambda status: None, attempt=found))

    steps = [span for span in _spans(_config(), work) if span.name == "step"]
    assert [step.status.status_code for step in steps] == [StatusCode.UNSET, StatusCode.ERROR]


def test_a_share_of_the_steps_is_traced() -> None:
    """0 is none; a step that is left out has no stages either."""
    assert _spans(_config(sample=0), Feed(_moved).attempt) == []


def test_stages_that_come_twice_are_two_spans_and_one_sum() -> None:
    """Row passes of one step."""
    watch = Stopwatch()
    for name in ("decode", "read", "decode"):
        with watch.stage(name):
            pass

    assert [name for name, _, _ in watch.spans] == ["decode", "read", "decode"]
    assert all(start <= end for _, start, end in watch.spans)
    assert list(watch.seconds) == ["decode", "read"]


class CollectorServer(http.server.ThreadingHTTPServer):
    """Takes spans as OTLP over HTTP; answers with the statuses that a test puts first, then with 200."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []
        self.hold: threading.Event | None = None

    @property
    def url(self) -> str:
        """Where it takes spans."""
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: CollectorServer

    def do_POST(self) -> None:
        """Take spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, body, dict(self.headers)))
        if self.server.hold is not None:
            self.server.hold.wait(30)
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[CollectorServer]:
    """A collector on this machine."""
    with CollectorServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        if server.hold is not None:
            server.hold.set()
        server.shutdown()
        thread.join()


def test_spans_arrive_at_a_collector(collector: CollectorServer) -> None:
    """As protobuf, with the headers of the section."""
    feed = Feed(_moved)
    with tracing(_config(endpoint=collector.url, headers={"X-Token": "s3cret"})) as attempt:
        attempt(feed.pipeline, feed.step)

    ((path, body, headers),) = collector.taken
    request = ExportTraceServiceRequest.FromString(body)
    spans = [span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
    assert path == "/v1/traces"
    assert headers["x-token"] == "s3cret", "the library writes names in small letters"
    assert sorted(span.name for span in spans) == ["apply", "read", "step"]
    (step,) = [span for span in spans if span.name == "step"]
    assert {item.key: item.value.int_value for item in step.attributes}["applier.rows"] == 301


def test_an_outage_of_the_collector_is_one_line(
    collector: CollectorServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """By its status, and with nothing of the library's own on standard error; a redirect is followed nowhere."""
    collector.statuses = [401, 401, 200, 302]
    found = Collector(collector.url, {"X-Token": "s3cret"})
    exporter = InMemorySpanExporter()
    with traced(_config(), exporter) as spans:
        Feed(_moved).attempt(spans)
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            found.export(exporter.get_finished_spans())

    told = {"event": "traces are not taken", "log_level": "warning"}
    assert logs == [told | {"error": "status 401"}, told | {"error": "status 302"}]
    assert len(collector.taken) == 4
    assert capfd.readouterr().err == ""
    assert caplog.text == ""


def test_a_collector_that_hangs_does_not_hold_the_end_of_the_process(
    collector: CollectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spans of the end are lost then."""
    monkeypatch.setattr(traces, "_END_SECONDS", 0.05)
    collector.hold = threading.Event()
    feed = Feed(_moved)
    start = time.monotonic()
    with tracing(_config(endpoint=collector.url)) as attempt:
        attempt(feed.pipeline, feed.step)

    assert time.monotonic() - start < 5, "the library itself waits for half a minute"
    left = [thread for thread in threading.enumerate() if thread.name == "traces"]
    assert all(thread.daemon for thread in left)
    collector.hold.set()
    for thread in left:
        thread.join()


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded() -> None:
    """The default: the package is optional."""
    script = f"""
import sys
from applier.commands import run
from applier.config import settings
from applier.watch.watching import Attempt, tracing, watching
config = settings.parse({BASE!r})
with watching(config), tracing(config) as attempt:
    assert attempt(None, lambda: "made") == "made"
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Spark starts."""
    monkeypatch.delitem(sys.modules, "applier.watch.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with (
        pytest.raises(ConfigError, match=r"needs OpenTelemetry, .* Run `pip install 'applier\[otel\]'`"),
        tracing(_config(endpoint="http://collector:4318/v1/traces")),
    ):
        pytest.fail("it was traced")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"endpoint": "collector:4317"}, "traces.endpoint: must look like http://collector:4318/v1/traces."),
        (
            {"endpoint": "http://user:s3cret@collector:4318/v1/traces"},
            "traces.endpoint: must hold no password: give it in traces.headers.",
        ),
        ({"sample": 1.5}, "traces.sample: must be less than or equal to 1."),
        ({"headers": {"a b": "c"}}, "traces.headers: the header 'a b' cannot be sent: names and values are ASCII, "),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], sentence: str) -> None:
    """Each by its key."""
    with pytest.raises(ConfigError) as refused:
        _config(**given)
    assert refused.value.problems[0].startswith(sentence)
    assert "s3cret" not in str(refused.value)
