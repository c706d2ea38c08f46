"""Traces the steps: a span for each attempt at one, and in it one for each stage, sent by OpenTelemetry's library."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from applier.config.settings import Config
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import logger

_END_SECONDS = 3.0
"""Longest time for which the end of the process waits for spans that are still to be sent."""


@contextmanager
def traced(config: Config, exporter: SpanExporter) -> Iterator[Callable[[Pipeline, Callable[[], Step]], Step]]:
    """A function that makes a step, and a span of it that an exporter takes, until the block ends.

    Spans hold numbers, and names of stages and errors: no data, and no table. An error of a step goes on to the caller.
    """
    resource = Resource.create({"service.name": "applier"})
    provider = TracerProvider(TraceIdRatioBased(config.traces.sample), resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("applier")

    def attempt(pipeline: Pipeline, make: Callable[[], Step]) -> Step:
        start = time.time_ns()
        try:
            step = make()
        except Exception as error:
            _tell(tracer, pipeline, start, {}, failure=type(error).__name__)
            raise
        status = step.status
        found = {name: getattr(status, name) for name in ("step", "messages", "rows", "tables", "backlog")}
        if status.lag_seconds is not None:
            found["lag_seconds"] = status.lag_seconds
        _tell(tracer, pipeline, start, {**found, "moved": step.moved})
        return step

    try:
        yield attempt
    finally:
        # The library waits for half a minute, and a request under way even longer.
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(_END_SECONDS)


def _tell(
    tracer: Tracer, pipeline: Pipeline, start: int, found: Mapping[str, int | float | bool], failure: str | None = None
) -> None:
    attributes = {f"applier.{name}": value for name, value in found.items()}
    own = {"applier.changefeed": pipeline.config.changefeed.name}
    span = tracer.start_span("step", attributes={**own, **attributes}, start_time=start)
    inside = set_span_in_context(span)
    # An attempt that fails before its first stage leaves the stages of the last one.
    for name, begin, end in (stage for stage in pipeline.stopwatch.spans if stage[1] >= start):
        tracer.start_span(name, inside, start_time=begin).end(end)
    if failure is not None:
        span.set_attribute("error.type", failure)
        span.set_status(Status(StatusCode.ERROR, failure))
    span.end()


class Collector(SpanExporter):
    """Sends spans to the collector; an outage is one line of the log, and spans of that time are lost."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        # The library would write several lines for each batch, on standard error and not as JSON.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        session = requests.Session()
        # Spans, and a token in a header, are for this server and no other.
        session.max_redirects = 0
        session.hooks["response"].append(self._answered)
        self._exporter = OTLPSpanExporter(endpoint, headers=dict(headers), session=session)
        self._answers: deque[int] = deque(maxlen=1)
        self._is_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; see OpenTelemetry."""
        self._answers.clear()
        result = self._exporter.export(spans)
        # The library takes a redirect for success.
        is_taken = result is SpanExportResult.SUCCESS and all(status < 300 for status in self._answers)
        if not is_taken and not self._is_down:
            error = f"status {self._answers[0]}" if self._answers else "no answer"
            logger().warning("traces are not taken", error=error)
        self._is_down = not is_taken
        return result

    def shutdown(self) -> None:
        """End; see OpenTelemetry."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # published without

    def _answered(self, response: requests.Response, **_: object) -> None:
        self._answers.append(response.status_code)
