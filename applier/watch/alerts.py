"""Finds out what of a changefeed deserves an alert, and sends each change once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from applier import wording
from applier.config.settings import Config
from applier.config.watch import AlertKind
from applier.runtime.escaping import escaped
from applier.sink.control.rows import SchemaDecision
from applier.watch.report import StatusReport, TableProgress, View, iso

HOLD_SECONDS = 15.0
"""Time for which a verdict must hold before it is sent: a lag that swings around its limit must not ring each time."""

START_SECONDS = 60.0
"""Time that a process has to catch up before it tells that it found the tables stale."""

_SENTENCE, _STATEMENT = 500, 2000
"""Characters of a sentence and of a statement: chat tools refuse long messages, and a DDL may have megabytes."""

_REASONS = 10

Alert: TypeAlias = Mapping[str, Any]
"""An alert as it is sent; `docs/watching.md` explains the keys, and none is ever left out."""


@dataclass(slots=True)
class Alerts:
    """Compares what is known with what was known before.

    Of `found`, what was known when the changefeed was taken, only a verdict other than fresh is sent; `began` is the
    time of that in monotonic seconds.
    """

    config: Config
    found: View
    began: float
    _verdict: str = field(init=False)
    _is_owed: bool = field(init=False)
    _is_new: bool = field(init=False)
    _changing: float | None = field(default=None, init=False)
    _parked: frozenset[str] = field(init=False)
    _since: datetime = field(init=False)
    _told: set[tuple[int, str, str, datetime]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        report = self.found.report
        self._verdict, self._is_owed = _rung(report), bool(report.stale)
        # Nothing was applied yet when it was taken, so that its tables never were fresh.
        self._is_new = report.holder is not None and report.lag_seconds is None
        self._parked = frozenset(table.table for table in _parked(report))
        self._since = datetime.fromtimestamp(self.found.now, tz=UTC)

    def look(self, view: View, now: float) -> Iterator[Alert]:
        """What has changed since the last look; `now` is monotonic seconds."""
        for alert in [*self._of_ddl(view), *self._of_tables(view), *self._of_verdict(view, now)]:
            if alert["event"] in self.config.webhook.events:
                yield alert

    def _of_verdict(self, view: View, now: float) -> Iterator[Alert]:
        report, verdict = view.report, _rung(view.report)
        if verdict == "catching up":
            self._changing = None
            return
        if verdict == self._verdict:
            self._changing = None
            if not self._is_owed or now - self.began < START_SECONDS:
                return
        else:
            self._changing = now if self._changing is None else self._changing
            if now - self._changing < HOLD_SECONDS:
                return
        self._verdict, self._changing, self._is_owed = verdict, None, False
        if verdict == "fresh":
            again = "" if self._is_new else " again"
            self._is_new = False
            yield self._alert(
                "verdict", view, f"The tables of changefeed {report.changefeed} are {report.verdict}{again}."
            )
            return
        first, *others = report.stale
        more = f" {len(others)} more reason{'s' * (len(others) > 1)}." if others else ""
        because, way_out = first.because, first.way_out
        if others or not way_out:
            way_out = f"run `applier status -c {self.config.path}`, which shows each reason with its way out."
        yield self._alert("verdict", view, f"{_cut(because, _SENTENCE - 20)}{more}", way_out=way_out)

    def _of_tables(self, view: View) -> Iterator[Alert]:
        parked = list(_parked(view.report))
        for table in parked:
            if table.table not in self._parked:
                because = table.because or f"Table {table.table} is parked."
                yield self._alert("table-parked", view, because, way_out=table.way_out, table=table.table)
        self._parked = frozenset(table.table for table in parked)

    def _of_ddl(self, view: View) -> Iterator[Alert]:
        for item in view.decisions:
            key = (item.commit_ts, str(item.table), item.sql, item.decided_at)
            if item.decision != "refused" or item.decided_at < self._since or key in self._told:
                continue
            self._told.add(key)
            sentence = f"A DDL{item.subject and f' of {item.subject}'} was refused: {item.reason.rstrip('.')}."
            way_out = self._way_past(item, view.report)
            yield self._alert("ddl-refused", view, sentence, way_out=way_out, table=str(item.table), ddl=item)

    def _way_past(self, item: SchemaDecision, report: StatusReport) -> str:
        for table in _parked(report):
            if table.table == str(item.table) and table.way_out:
                return table.way_out
        return wording.way_past_ddl(item.commit_ts, self.config.path)

    def _alert(
        self,
        event: AlertKind,
        view: View,
        sentence: str,
        *,
        way_out: str | None = None,
        table: str | None = None,
        ddl: SchemaDecision | None = None,
    ) -> Alert:
        report, short = view.report, _cut(sentence)
        subject = f"applier {report.changefeed}" + (" is stale" if event == "verdict" and report.stale else "")
        return {
            "event": event,
            "id": uuid.uuid4().hex,
            "changefeed": report.changefeed,
            "at": iso(int(view.now * 1000)),
            "verdict": report.verdict,
            "sentence": short,
            "way_out": way_out,
            "table": table,
            "reasons": [_cut(str(reason)) for reason in report.stale[:_REASONS]],
            "ddl": ddl and {"commit_ts": ddl.commit_ts, "sql": _cut(ddl.sql, _STATEMENT)},
            "text": _harmless(f"{subject}: {short}" + (f" Way out: {way_out}" if way_out else "")),
        }


def _rung(report: StatusReport) -> str:
    """The verdict, as far as it rings: nobody needs to know whether tables are fresh or complete."""
    return "fresh" if report.exit_code == 0 else report.verdict


def _parked(report: StatusReport) -> Iterator[TableProgress]:
    return (table for table in report.tables if table.state == "parked")


def _cut(text: str, most: int = _SENTENCE) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _harmless(text: str) -> str:
    """A text that a chat tool shows as it is: a name from upstream must not call everybody, or hide behind a link."""
    plain = escaped(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # No tool takes an @ for a mention, or brackets for a link, where a space of no width follows.
    return plain.replace("@", "@\u200b").replace("](", "]\u200b(")
