"""The numbers of a changefeed, as Prometheus reads them."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from applier.changefeed.ts import unix_ms
from applier.runtime.logs import StatusLine


class Metrics:
    """The numbers of one changefeed, whose name is their label; `docs/output.md` explains each."""

    def __init__(self, changefeed: str) -> None:
        self.registry = CollectorRegistry()
        self._changefeed = changefeed
        self._resolved = self._gauge("resolved_timestamp_seconds", "Wall clock of the resolved ts of all tables.")
        self._lag = self._gauge("lag_seconds", "Age of the resolved ts, now.")
        self._backlog = self._gauge("backlog_messages", "Messages that the source has beyond the newest step.")
        self._waiting = self._gauge("waiting_rows", "Row changes above the watermark or without a schema.")
        self._parked = self._gauge("parked_tables", "Tables whose rows and DDL are not applied.")
        self._told = self._gauge("last_step_timestamp_seconds", "When the newest step was finished.")
        self._messages = self._counter("messages", "Messages read.")
        self._rows = self._counter("rows", "Row changes applied.")
        self._commits = self._counter("commits", "Commits of rows.")
        self._dead_letters = self._counter("dead_letters", "Messages that were set aside.")
        self._not_found = self._counter("not_found", "Rows to update or delete that the table did not hold.")
        labels = ("changefeed", "stage")
        self._seconds = Counter("stage_seconds", "Time per stage.", labels, namespace="applier", registry=self.registry)
        self._gauge("up", "1 while the process runs.").labels(changefeed).set(1)

    def text(self) -> bytes:
        """All of them, in the format of Prometheus."""
        return generate_latest(self.registry)

    def begin(self, resolved_ts: int | None) -> None:
        """Take the resolved ts of the checkpoint from which the process goes on; None if there is none."""
        if resolved_ts is not None:
            resolved = unix_ms(resolved_ts) / 1000
            self._resolved.labels(self._changefeed).set(resolved)
            # The age grows while nothing comes, so it is taken when it is asked for.
            self._lag.labels(self._changefeed).set_function(lambda: max(0.0, time.time() - resolved))

    def take(self, status: StatusLine) -> None:
        """Take the numbers of a step."""
        own = self._changefeed
        self.begin(status.resolved_ts)
        self._backlog.labels(own).set(status.backlog)
        self._waiting.labels(own).set(status.waiting)
        self._parked.labels(own).set(status.notes.get("parked", 0))
        self._told.labels(own).set(status.now_ms / 1000)
        self._messages.inc(status.messages)
        self._rows.inc(status.rows)
        self._commits.inc(status.tables)
        self._dead_letters.inc(status.notes.get("dead_letters", 0))
        self._not_found.inc(status.notes.get("not_found", 0))
        for stage, spent in status.seconds.items():
            self._seconds.labels(own, stage).inc(spent)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(name, what, ("changefeed",), namespace="applier", registry=self.registry)

    def _counter(self, name: str, what: str) -> Counter:
        counter = Counter(name, what, ("changefeed",), namespace="applier", registry=self.registry)
        # A sample that appears with the first step hides that step from rates.
        return counter.labels(self._changefeed)
