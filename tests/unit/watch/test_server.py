"""The server of the page: who may read what, and that clients hold nothing up."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from applier.config.watch import HttpSection
from applier.errors import ConfigError
from applier.watch.server import Answer, Resource, serving


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


RESOURCES = {
    "/": Resource(lambda: Answer(b"page " * 100, "text/html")),
    "/healthz": Resource(lambda: Answer(b"alive\n"), is_open=True),
}


def _ask(
    port: int, path: str = "/", headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, dict[str, str]]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request(method, path, headers=dict(headers or {}))
    answer = client.getresponse()
    body = answer.read()
    client.close()
    return answer.status, body, dict(answer.headers)


def test_pages_are_served_and_the_port_is_given_back() -> None:
    """Twice on one port; what is unknown is named, and HEAD has no body."""
    port = _free()
    for _ in range(2):
        with serving(HttpSection(port=port), RESOURCES) as address:
            assert address == f"http://127.0.0.1:{port}/"
            status, body, headers = _ask(port)
            assert (status, body[:5], headers["Content-Type"]) == (200, b"page ", "text/html")
            assert headers["Cache-Control"] == "no-store"
            assert _ask(port, method="HEAD")[:2] == (200, b"")
            assert _ask(port, "/nothing")[0] == 404
            assert _ask(port, method="POST")[0] == 501


def test_without_a_port_nothing_is_served() -> None:
    """The default."""
    with serving(HttpSection(), RESOURCES) as address:
        assert address is None


def test_a_port_that_is_taken_is_named() -> None:
    """With the key that says it, and the ways out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = rf"http\.port: cannot listen on 127\.0\.0\.1:{port}: another .* `applier run` .*Choose another"
        with (
            pytest.raises(ConfigError, match=said),
            serving(HttpSection(port=port), RESOURCES),
        ):
            pytest.fail("it was served")


def test_a_token_guards_all_but_the_health() -> None:
    """As bearer, or as the password that a browser asks for; the user name is free."""
    port = _free()
    with serving(HttpSection(port=port, token="s3cret"), RESOURCES):  # type: ignore[arg-type]
        status, _, headers = _ask(port)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="applier", charset="UTF-8"')
        assert _ask(port, "/healthz")[0] == 200
        assert _ask(port, headers={"Authorization": "Bearer s3cret"})[0] == 200
        basic = base64.b64encode(b"anyone:s3cret").decode()
        assert _ask(port, headers={"Authorization": f"Basic {basic}"})[0] == 200
        for wrong in ("Bearer other", "Bearer", "Basic !!", "Basic " + base64.b64encode(b"s3cret").decode(), "s3cret"):
            assert _ask(port, headers={"Authorization": wrong})[0] == 401
        assert _ask(port, "/nothing")[0] == 401, "whoever may not read learns no paths"


def test_another_name_for_this_machine_is_refused() -> None:
    """A page of another site, whose name is made to lead to 127.0.0.1, must not read ours."""
    port = _free()
    with serving(HttpSection(port=port), RESOURCES):
        assert _ask(port, headers={"Host": f"evil.example:{port}"})[0] == 421
        for name in (f"localhost:{port}", "localhost", f"127.0.0.1:{port}", f"[::1]:{port}", "[::1]"):
            assert _ask(port, headers={"Host": name})[0] == 200


def test_an_answer_is_made_once_for_many_clients() -> None:
    """A hundred browsers cost one page a second."""
    made = []

    def answer() -> Answer:
        made.append(1)
        return Answer(b"page")

    port = _free()
    with serving(HttpSection(port=port), {"/": Resource(answer)}):
        start = time.monotonic()
        for _ in range(100):
            assert _ask(port)[1] == b"page"
        assert len(made) <= 1 + (time.monotonic() - start)


def test_slow_clients_hold_nobody_up() -> None:
    """Connections that send nothing take places of their own; when all are taken, others are turned away, not kept."""
    port = _free()
    with serving(HttpSection(port=port), RESOURCES):
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        assert _ask(port)[0] == 200
        for client in slow:
            client.close()


def test_one_address_cannot_take_all_places() -> None:
    """What comes from elsewhere, such as a probe, is answered still."""
    port = _free()
    with serving(HttpSection(port=port), RESOURCES):
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(24)]
        time.sleep(0.2)
        with pytest.raises((http.client.HTTPException, OSError)):
            _ask(port)
        own = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=("127.0.0.2", 0))
        own.request("GET", "/healthz")
        assert own.getresponse().status == 200
        own.close()
        for client in slow:
            client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_put_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is from the connection to the answer, however often it says something."""
    monkeypatch.setattr("applier.watch.server._PATIENCE_SECONDS", 1.0)
    port = _free()
    with serving(HttpSection(port=port), RESOURCES), socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(0.1)
        is_open = True
        for _ in range(100):
            try:
                client.sendall(b"G")
                is_open = client.recv(1) != b""
            except TimeoutError:
                continue
            except OSError:
                is_open = False
            if not is_open:
                break
        assert not is_open


def test_a_long_request_is_not_read() -> None:
    """Before the token is known, nobody may fill the memory."""
    port = _free()
    with serving(HttpSection(port=port, token="s3cret"), RESOURCES):  # type: ignore[arg-type]
        with pytest.raises((http.client.HTTPException, OSError)):
            _ask(port, headers={f"X-{number}": "x" * 1000 for number in range(90)})
        assert _ask(port, headers={"Authorization": "Bearer s3cret"})[0] == 200


def test_an_answer_that_fails_is_an_answer() -> None:
    """It is made no more often than others, and the next one may be right."""
    made: list[int] = []

    def answer() -> Answer:
        made.append(1)
        raise KeyError("a defect")

    port = _free()
    with serving(HttpSection(port=port), {"/": Resource(answer)}):
        start = time.monotonic()
        for _ in range(20):
            assert _ask(port)[:2] == (500, b"This cannot be shown; the log says why.\n")
        assert len(made) <= 1 + (time.monotonic() - start)


def test_a_page_is_compressed_where_the_client_takes_that() -> None:
    """The page of a thousand tables is long."""
    port = _free()
    with serving(HttpSection(port=port), RESOURCES):
        _, body, headers = _ask(port, headers={"Accept-Encoding": "gzip"})
        assert headers["Content-Encoding"] == "gzip"
        assert len(body) < 100


def test_over_tls(tmp_path: Path) -> None:
    """A client that speaks no TLS gets nothing, and does not disturb the next one."""
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    port = _free()
    with serving(HttpSection(port=port, certificate=str(certificate), key=str(key)), RESOURCES) as address:
        assert address == f"https://127.0.0.1:{port}/"
        with pytest.raises((http.client.HTTPException, OSError)):
            _ask(port)
        trust = ssl.create_default_context(cafile=str(certificate))
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)
        client.request("GET", "/")
        assert client.getresponse().status == 200
        client.close()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Before anything is served."""
    missing = tmp_path / "none.pem"
    with (
        pytest.raises(ConfigError, match=r"http\.certificate: .*none\.pem.*PEM files"),
        serving(HttpSection(port=_free(), certificate=str(missing), key=str(missing)), RESOURCES),
    ):
        pytest.fail("it was served")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"address": "0.0.0.0"}, "lets others in"),  # noqa: S104 - refused
        ({"address": "example.org"}, "lets others in"),
        ({"token": ""}, "printable ASCII"),
        ({"token": " \n"}, "printable ASCII"),
        ({"token": "schlüssel"}, "printable ASCII"),
        ({"certificate": "x.pem"}, "certificate and key are needed together"),
    ],
)
def test_what_lets_strangers_in_is_refused(given: dict[str, str], sentence: str) -> None:
    """An open address needs a token."""
    with pytest.raises(ValidationError, match=sentence):
        HttpSection.model_validate({"port": 9180, **given})


def test_the_token_is_shown_nowhere() -> None:
    """Not in what is logged of a configuration either."""
    section = HttpSection(token="s3cret")  # type: ignore[arg-type]
    assert "s3cret" not in repr(section) + str(section.model_dump())
    assert "s3cret" not in json.dumps(section.model_dump(mode="json"))


def test_threads_end_with_the_server() -> None:
    """Nothing is left behind."""
    with serving(HttpSection(port=_free()), RESOURCES):
        assert any(thread.name == "http" for thread in threading.enumerate())
    assert not any(thread.name == "http" for thread in threading.enumerate())
