"""Sends alerts to the address of `[webhook]`; whoever does not answer holds no step up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import requests

from applier.config.settings import Config
from applier.config.watch import WebhookSection
from applier.runtime.logs import logger
from applier.runtime.retry import asked_pause
from applier.runtime.threads import beside
from applier.watch.alerts import Alert, Alerts
from applier.watch.board import Board

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
        self._is_broken = False

    def turn(self, now: float) -> None:
        """Look, and send; `now` is monotonic seconds. No failure leaves it: alerts come second to the tables."""
        try:
            if self._alerts is None and self._board.found is not None:
                self._alerts = Alerts(self._board.config, self._board.found, now)
            if self._alerts is not None:
                for alert in self._alerts.look(self._board.view(), now):
                    self._mail.put(alert)
            self._mail.deliver(now)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may hold the address
            if not self._is_broken:
                logger().warning("alerts are not sent", error=type(error).__name__)
            self._is_broken = True
        else:
            self._is_broken = False


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
