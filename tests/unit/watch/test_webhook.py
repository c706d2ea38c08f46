"""Alerts on their way: servers that fail, hang or refuse, and a secret that no log shows."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog
from pydantic import ValidationError

from applier.config import settings
from applier.config.settings import Config
from applier.config.watch import WebhookSection
from applier.errors import ConfigError
from applier.watch import webhook
from applier.watch.board import Board
from applier.watch.report import StatusReport, TableProgress, Trouble, View
from applier.watch.webhook import START_SECONDS, Bell, Mail, alerting

SECRET = "T0-s3cret"
ALERT = {"event": "verdict", "id": "1", "text": "stale"}


class Receiver(http.server.ThreadingHTTPServer):
    """Takes alerts; answers with the statuses and headers that a test puts first, then with 200."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.taken: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.hold: threading.Event | None = None
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        """Its address, with a secret in the path."""
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        """Take one."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.taken.append((self.path, body, dict(self.headers)))
        self.server.asked.set()
        if self.server.hold is not None:
            self.server.hold.wait(30)
        status, headers = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server on this machine."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        if server.hold is not None:
            server.hold.set()
        server.shutdown()
        thread.join()


def _mail(url: str, **given: Any) -> Mail:
    section = WebhookSection.model_validate({"url": url, **given})
    assert section.url is not None
    return Mail(section, section.url.get_secret_value())


def _deliver(mail: Mail, *times: float) -> list[dict[str, Any]]:
    with structlog.testing.capture_logs() as logs:
        for now in times:
            mail.deliver(now)
    assert SECRET not in str(logs)
    return [dict(entry) for entry in logs]


def test_an_alert_is_posted_as_json_with_the_headers_of_the_section(receiver: Receiver) -> None:
    """And nothing is logged."""
    mail = _mail(receiver.url, headers={"Authorization": "Bearer x"})
    mail.put(ALERT)

    assert _deliver(mail, 0.0, 5.0) == []

    ((path, body, headers),) = receiver.taken
    assert (path, body) == (f"/{SECRET}", ALERT)
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer x")


def test_a_server_that_fails_is_asked_again_after_growing_pauses(receiver: Receiver) -> None:
    """One line of the log for an outage, and all alerts in their order, each once."""
    receiver.answers = [(503, {}), (500, {}), (502, {})]
    mail = _mail(receiver.url)
    mail.put(ALERT)

    logs = _deliver(mail, 0.0, 4.9, 5.0, 14.9, 15.0)
    mail.put({**ALERT, "id": "2"})
    logs += _deliver(mail, 34.9)
    assert len(receiver.taken) == 3
    logs += _deliver(mail, 35.0, 36.0)

    assert [body["id"] for _, body, _ in receiver.taken] == ["1", "1", "1", "1", "2"]
    assert logs == [
        {
            "event": "webhook does not answer",
            "log_level": "warning",
            "error": "status 503",
            "waiting": 1,
            "next_try_seconds": 5.0,
        }
    ]


def test_retry_after_is_respected_up_to_a_bound(receiver: Receiver) -> None:
    """A server that asks for a day gets five minutes."""
    receiver.answers = [(429, {"Retry-After": "42"}), (429, {"Retry-After": "86400"}), (429, {"Retry-After": "soon"})]
    mail = _mail(receiver.url)
    mail.put(ALERT)

    _deliver(mail, 0.0, 41.9)
    assert len(receiver.taken) == 1
    _deliver(mail, 42.0, 341.9)
    assert len(receiver.taken) == 2
    _deliver(mail, 342.0, 361.9)
    assert len(receiver.taken) == 3, "a header that cannot be read leaves the pause of its own"
    _deliver(mail, 362.0)
    assert len(receiver.taken) == 4


def test_a_server_that_asks_for_no_pause_is_not_asked_all_the_time(receiver: Receiver) -> None:
    """Neither with 0 nor with a date that has passed."""
    receiver.answers = [(503, {"Retry-After": "0"}), (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})]
    mail = _mail(receiver.url)
    mail.put(ALERT)

    _deliver(mail, 0.0, 4.9)
    assert len(receiver.taken) == 1
    _deliver(mail, 5.0, 9.9)
    assert len(receiver.taken) == 2


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (404, "check url and headers under [webhook]."),
        (302, "set webhook.url to the address that it leads to under [webhook]."),
    ],
)
def test_a_refusal_is_logged_once_and_the_alert_is_gone(receiver: Receiver, status: int, hint: str) -> None:
    """The same request would be refused again; a redirect is followed nowhere, as the alert is for one server."""
    elsewhere = {"Location": f"http://localhost:{receiver.server_port}/other"}
    receiver.answers = [(status, elsewhere), (status, elsewhere), (200, {}), (status, elsewhere)]
    mail, logs = _mail(receiver.url), []
    for turn in range(4):
        mail.put({**ALERT, "id": str(turn)})
        logs += _deliver(mail, float(turn))

    assert [path for path, _, _ in receiver.taken] == [f"/{SECRET}"] * 4
    told = {"event": "webhook refuses alerts", "log_level": "warning", "status": status, "hint": hint}
    assert logs == [told, told], "once, and again after a success"


def test_a_server_that_is_not_there_is_an_outage() -> None:
    """A wrong host or port: what went wrong is logged, and not where."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/{SECRET}", f"http://{SECRET}.invalid/{SECRET}"):
        mail = _mail(url)
        mail.put(ALERT)
        (told,) = _deliver(mail, 0.0, 5.0, 15.0)
        assert (told["event"], told["error"]) == ("webhook does not answer", "ConnectionError")


def test_a_server_that_hangs_is_left_after_the_timeout(receiver: Receiver) -> None:
    """And asked again later."""
    receiver.hold = threading.Event()
    mail = _mail(receiver.url, timeout_seconds=0.05)
    mail.put(ALERT)

    (told,) = _deliver(mail, 0.0)

    assert told["error"] == "ReadTimeout"


def test_what_waits_is_bounded_and_the_oldest_goes_first(receiver: Receiver) -> None:
    """A server that is away for days costs no memory."""
    receiver.answers = [(503, {})]
    mail = _mail(receiver.url)
    with structlog.testing.capture_logs() as logs:
        for number in range(102):
            mail.put({**ALERT, "id": str(number)})
            mail.deliver(0.0)
    mail.deliver(60.0)

    assert [body["id"] for _, body, _ in receiver.taken][1:] == [str(number) for number in range(2, 102)]
    assert [entry["event"] for entry in logs] == ["webhook does not answer", "alert lost", "alert lost"]


class Shown:
    """A board of which a test says what is known."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.found: View | None = None
        self.error: Exception | None = None
        self.report = StatusReport("shop", 300.0, "")

    def view(self) -> View:
        """What is known now."""
        if self.error is not None:
            raise self.error
        return View(self.report, [], "running", None, 1_700_000_000.0)

    @property
    def board(self) -> Board:
        """The same, as a board."""
        return cast("Board", self)


def _config(url: str | None) -> Config:
    return settings.parse(
        {
            "changefeed": {"name": "shop", "protocol": "simple"},
            "source": {"archive": "feed"},
            "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
            "webhook": {"url": url} if url else {},
        }
    )


def _parked(name: str) -> StatusReport:
    return StatusReport("shop", 300.0, "", tables=(TableProgress(name, name, "parked", because="Parked."),))


def test_nothing_rings_before_the_changefeed_is_taken(receiver: Receiver) -> None:
    """Until then nothing is known, and it must not look like `stale`; from then on the first minute counts."""
    shown = Shown(_config(receiver.url))
    shown.report = StatusReport("shop", 300.0, "", stale=(Trouble("No checkpoint."),))
    bell = Bell(shown.board, _mail(receiver.url))

    bell.turn(500.0)
    shown.found = shown.view()
    bell.turn(1000.0)
    bell.turn(1000.0 + START_SECONDS - 1)
    assert receiver.taken == []
    bell.turn(1000.0 + START_SECONDS)

    assert [body["event"] for _, body, _ in receiver.taken] == ["verdict"]


def test_a_failure_within_is_logged_once_and_the_next_turn_goes_on(receiver: Receiver) -> None:
    """By its kind alone, as its text may hold anything."""
    shown = Shown(_config(receiver.url))
    shown.found, shown.report = shown.view(), _parked("shop.orders")
    shown.error = RuntimeError(SECRET)
    bell = Bell(shown.board, _mail(receiver.url))
    with structlog.testing.capture_logs() as logs:
        bell.turn(0.0)
        bell.turn(5.0)
        shown.error = None
        bell.turn(10.0)

    assert logs == [{"event": "alerts are not sent", "log_level": "warning", "error": "RuntimeError"}]
    assert len(receiver.taken) == 1


def test_what_a_short_run_parks_is_sent_at_its_end(receiver: Receiver) -> None:
    """`run --once` may end before the first look."""
    shown = Shown(_config(receiver.url))
    with alerting(shown.config, shown.board):
        shown.found, shown.report = shown.view(), _parked("shop.orders")

    assert [body["table"] for _, body, _ in receiver.taken] == ["shop.orders"]
    assert not any(thread.name == "webhook" for thread in threading.enumerate())


def test_a_server_that_hangs_does_not_hold_the_end_of_the_process(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is left behind, and ends with the process."""
    monkeypatch.setattr(webhook, "_END_SECONDS", 0.05)
    monkeypatch.setattr(webhook, "_LOOK_SECONDS", 0.01)
    receiver.hold = threading.Event()
    shown = Shown(_config(receiver.url))
    start = time.monotonic()
    with alerting(shown.config, shown.board):
        shown.found, shown.report = shown.view(), StatusReport("shop", 300.0, "")
        shown.report = _parked("shop.orders")
        assert receiver.asked.wait(20)
    spent = time.monotonic() - start

    (thread,) = [thread for thread in threading.enumerate() if thread.name == "webhook"]
    assert thread.daemon
    assert spent < WebhookSection().timeout_seconds, "the process did not wait for the answer"
    receiver.hold.set()
    thread.join()


def test_without_an_address_there_is_no_thread() -> None:
    """The default."""
    shown = Shown(_config(None))
    with alerting(shown.config, shown.board):
        assert not any(thread.name == "webhook" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "url", ["", "hooks.example.org/s3cret", "ftp://h/s3cret", "https:///s3cret", "http://h:x/s3cret"]
)
def test_an_address_that_takes_no_post_is_refused_without_showing_it(url: str) -> None:
    """It may hold a token."""
    with pytest.raises(ConfigError) as refused:
        settings.parse({"webhook": {"url": url}})
    assert "webhook.url: must look like https://host/path." in refused.value.problems
    assert "s3cret" not in str(refused.value)


def test_a_header_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    """A line break would begin a header of its own."""
    for name, value in (("X-Token", "s3cret\n"), ("X Token", "s3cret"), ("X-Token", "s3cr\u00e9t")):
        with pytest.raises(ValidationError, match="cannot be sent: names and values are ASCII") as refused:
            WebhookSection.model_validate({"headers": {name: value}})
        assert "s3cr" not in str(refused.value)


def test_address_and_headers_are_shown_nowhere() -> None:
    """Not in what is logged of a configuration either."""
    section = WebhookSection.model_validate({"url": f"https://h/{SECRET}", "headers": {"Authorization": SECRET}})

    assert SECRET not in repr(section) + str(section.model_dump()) + json.dumps(section.model_dump(mode="json"))
