"""Finds what of a changefeed deserves an alert, and sends it to `[webhook]`; a silent server holds no step up."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import requests

from applier import wording
from applier.config.settings import Config
from applier.config.watch import AlertKind, WebhookSection
from applier.runtime.escaping import escaped
from applier.runtime.logs import Guard, logger
from applier.runtime.retry import asked_pause
from applier.runtime.threads import beside
from applier.sink.control.rows import SchemaDecision
from applier.watch.board import Board
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


class Alerts:
    """Compares what is known with what was known before.

    Of `found`, what was known when the changefeed was taken, only a verdict other than fresh is sent; `began` is the
    time of that in monotonic seconds.
    """

    def __init__(self, config: Config, found: View, began: float) -> None:
        report = found.report
        self._config, self._began = config, began
        self._verdict, self._is_owed = _rung(report), bool(report.stale)
        # Nothing was applied yet when it was taken, so that its tables never were fresh.
        self._is_new = report.holder is not None and report.lag_seconds is None
        self._changing: float | None = None
        self._parked = frozenset(table.table for table in _parked(report))
        self._since = datetime.fromtimestamp(found.now, tz=UTC)
        self._told: set[tuple[int, str, str, datetime]] = set()

    def look(self, view: View, now: float) -> Iterator[Alert]:
        """What has changed since the last look; `now` is monotonic seconds."""
        for alert in [*self._of_ddl(view), *self._of_tables(view), *self._of_verdict(view, now)]:
            if alert["event"] in self._config.webhook.events:
                yield alert

    def _of_verdict(self, view: View, now: float) -> Iterator[Alert]:
        report, verdict = view.report, _rung(view.report)
        if verdict == "catching up":
            self._changing = None
            return
        if verdict == self._verdict:
            self._changing = None
            if not self._is_owed or now - self._began < START_SECONDS:
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
            way_out = f"run `applier status -c {self._config.path}`, which shows each reason with its way out."
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
        own = (table.way_out for table in _parked(report) if table.table == str(item.table) and table.way_out)
        return next(own, wording.way_past_ddl(item.commit_ts, self._config.path))

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
            "ddl": ddl and {"commit_ts": str(ddl.commit_ts), "sql": _cut(ddl.sql, _STATEMENT)},
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


_LOOK_SECONDS = 5.0
"""Time between two looks at what has changed."""

_WAITING = 100
"""Alerts that wait for a server that does not answer; the oldest goes first."""

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds between two attempts: doubled each time, or what the server asks for, within these."""

_END_SECONDS = 3.0
"""Longest time for which the end of the process waits for what is still to be sent."""


@contextmanager
def alerting(config: Config, board: Board) -> Iterator[None]:
    """Send what deserves an alert until the block ends; without `[webhook]` nothing."""
    url = config.webhook.url
    if url is None:
        yield
        return
    bell = Bell(board, Mail(config.webhook, url.get_secret_value()))

    def watch(over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            bell.turn(time.monotonic())
        bell.turn(time.monotonic())

    with beside("webhook", watch, _END_SECONDS):
        yield


class Bell:
    """Rings for what has changed on a board since its last turn."""

    def __init__(self, board: Board, mail: Mail) -> None:
        self._board = board
        self._mail = mail
        self._alerts: Alerts | None = None
        self._guard = Guard("alerts are not sent")

    def turn(self, now: float) -> None:
        """Look, and send; `now` is monotonic seconds. No failure leaves it: alerts come second to the tables."""
        with self._guard.block():
            if self._alerts is None and self._board.found is not None:
                self._alerts = Alerts(self._board.config, self._board.found, now)
            if self._alerts is not None:
                for alert in self._alerts.look(self._board.view(), now):
                    self._mail.put(alert)
            self._mail.deliver(now)


class Mail:
    """Alerts on their way to the address of `[webhook]`, the oldest first. One thread uses it."""

    def __init__(self, settings: WebhookSection, url: str) -> None:
        self._settings = settings
        self._url = url
        self._headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        # Else requests would look into ~/.netrc, and put what it finds there above the headers that are given.
        self._auth = None if urlsplit(url).username else lambda request: request
        self._waiting: deque[Alert] = deque(maxlen=_WAITING)
        self._next_try = float("-inf")
        self._failures = 0
        self._refused: int | None = None

    def put(self, alert: Alert) -> None:
        """Take an alert to send; of too many that wait the oldest is lost."""
        if len(self._waiting) == _WAITING:
            logger().warning("alert lost", alert=self._waiting[0]["event"], because=f"{_WAITING} others wait")
        self._waiting.append(alert)

    def deliver(self, now: float) -> None:
        """Send what waits, unless the server is to be left alone until later; `now` is monotonic seconds."""
        while self._waiting and now >= self._next_try:
            problem, asked = self._post(self._waiting[0])
            if problem is None:
                self._waiting.popleft()
                self._failures = 0
                continue
            wanted = asked if asked is not None else _FIRST_PAUSE * 2 ** min(self._failures, 10)
            pause = min(max(wanted, _FIRST_PAUSE), _LONGEST_PAUSE)
            if self._failures == 0:
                waiting = len(self._waiting)
                logger().warning("webhook does not answer", error=problem, waiting=waiting, next_try_seconds=pause)
            self._failures += 1
            self._next_try = now + pause

    def _post(self, alert: Alert) -> tuple[str | None, float | None]:
        """Send one. What hinders it, if it is to be sent again, and the seconds that the server asks for."""
        try:
            response = requests.post(
                self._url,
                json=alert,
                headers=self._headers,
                auth=self._auth,
                timeout=self._settings.timeout_seconds,
                # The alert, and a token in a header, are for this server and no other.
                allow_redirects=False,
                stream=True,
            )
        except (requests.RequestException, OSError) as error:
            # Its text would show the address.
            return type(error).__name__, None
        response.close()
        status = response.status_code
        if status in (408, 429) or status >= 500:
            return f"status {status}", asked_pause(response.headers.get("Retry-After"))
        if status < 300:
            self._refused = None
        elif status != self._refused:
            hint = "set webhook.url to the address that it leads to" if status < 400 else "check url and headers"
            logger().warning("webhook refuses alerts", status=status, hint=f"{hint} under [webhook].")
            self._refused = status
        return None, None
