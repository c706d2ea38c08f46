"""The schema registry client against servers on real sockets that others run, over TLS and without, some hostile."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from applier.config.registry import RegistrySection
from applier.decode.registry.client import RegistrySchema, SchemaRegistry
from applier.decode.registry.wire_format import parse_registered
from applier.errors import RegistryDenied, RegistryError, TerminalError, TransientError

SCHEMA = '{"type":"int"}'
TOKEN = "right"


@dataclass(frozen=True, slots=True)
class Papers:
    """PEM files of an authority, and of a server and a client that it signed: certificate and key in one file."""

    ca: Path
    server: Path
    client: Path


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """An authority that no machine trusts."""
    folder = tmp_path_factory.mktemp("papers")
    ca = folder / "ca.pem"
    _openssl("req", "-x509", "-subj", "/CN=authority", "-keyout", ca, "-out", ca)
    return Papers(ca, _signed(ca, folder / "server.pem"), _signed(ca, folder / "client.pem"))


def _signed(ca: Path, file: Path) -> Path:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:false"]
    _openssl("req", "-x509", "-CA", ca, "-CAkey", ca, *names, "-keyout", file, "-out", file)
    return file


def _openssl(command: str, *options: str | Path) -> None:
    key = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make = ["openssl", command, *key, *options]
    subprocess.run(make, check=True, capture_output=True)


@dataclass(slots=True)
class Server:
    """Answers each connection with bytes; `heads` has what clients sent."""

    url: str
    heads: list[str] = field(default_factory=list)


Talk = Callable[[str, Any], None]
"""Answers one request: its head, and the connection."""


@contextmanager
def _server(talk: Talk, papers: Papers | None = None, *, asks_for_certificate: bool = False) -> Iterator[Server]:
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)
    scheme = "http" if papers is None else "https"
    server = Server(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}")

    def serve() -> None:
        while not over.is_set():
            with suppress(OSError):
                plain, _ = listening.accept()
                plain.settimeout(5)
                with plain, _wrapped(plain, papers, asks_for_certificate=asks_for_certificate) as connection:
                    head = b""
                    while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
                        head += more
                    if head:
                        server.heads.append(head.decode())
                        talk(head.decode(), connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        over.set()
        thread.join()
        listening.close()


def _wrapped(plain: socket.socket, papers: Papers | None, *, asks_for_certificate: bool) -> socket.socket:
    if papers is None:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.server)
    if asks_for_certificate:
        # In TLS 1.3 the refusal may be lost, as the client sends its request before it reads it.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(papers.ca)
    return context.wrap_socket(plain, server_side=True)


def _sent(connection: Any, status: int, body: bytes, **headers: str) -> None:
    lines = {"Content-Length": str(len(body)), "Connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    connection.sendall(f"HTTP/1.1 {status} Answer\r\n{head}\r\n".encode() + body)


def _good(_head: str, connection: Any) -> None:
    _sent(connection, 200, json.dumps({"schema": SCHEMA}).encode())


def _locked(head: str, connection: Any) -> None:
    if f"Authorization: Bearer {TOKEN}\r\n" in head or "Authorization: Basic dTpw\r\n" in head:
        _good(head, connection)
    else:
        _sent(connection, 401, b'{"error_code": 40101, "message": "Unauthorized"}')


def _ask(server: Server, seconds: float = 10, **keys: Any) -> str:
    settings = RegistrySection(url=server.url, attempts=1, timeout_seconds=seconds, **keys)
    return SchemaRegistry(settings, sleep=lambda _: None).schema(1).text


def test_a_private_authority_is_trusted_where_it_is_named(papers: Papers) -> None:
    """Without its file the certificate is refused at once, and nothing is sent."""
    with _server(_good, papers) as server:
        with pytest.raises(RegistryError, match=r"The certificate of schema registry https://127.*set \[registry\] ca"):
            _ask(server)
        assert server.heads == []

        assert _ask(server, ca=str(papers.ca)) == SCHEMA


def test_a_client_certificate_is_shown_where_it_is_asked_for(papers: Papers) -> None:
    """Without one the sentence names the keys to set."""
    with _server(_good, papers, asks_for_certificate=True) as server:
        with pytest.raises(RegistryError, match=r"or it does not accept ours. Hint: .* client_cert and client_key"):
            _ask(server, ca=str(papers.ca))

        assert _ask(server, ca=str(papers.ca), client_cert=str(papers.client)) == SCHEMA


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize("keys", [{"bearer_token": TOKEN}, {"username": "u", "password": "p"}])
def test_a_right_log_in_is_taken(papers: Papers, keys: dict[str, Any], *, is_tls: bool) -> None:
    """A token, or user and password."""
    with _server(_locked, papers if is_tls else None) as server:
        assert _ask(server, ca=str(papers.ca), **keys) == SCHEMA


@pytest.mark.parametrize("keys", [{"bearer_token": "wrong"}, {"username": "u", "password": "wrong"}, {}])
def test_a_wrong_or_missing_log_in_is_named(papers: Papers, keys: dict[str, Any]) -> None:
    """One sentence that does not repeat it."""
    with (
        _server(_locked, papers) as server,
        pytest.raises(RegistryDenied, match=r"answers 401 \(40101\): Unauthorized. Hint: .* bearer token") as caught,
    ):
        _ask(server, ca=str(papers.ca), **keys)

    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("is_tls", [True, False])
@pytest.mark.parametrize("start", ["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"])
def test_an_answer_that_drips_is_left(papers: Papers, start: str, *, is_tls: bool) -> None:
    """A byte now and then renews the wait neither in the head of an answer nor in its body."""
    is_left = threading.Event()

    def drip(_head: str, connection: Any) -> None:
        connection.sendall(start.encode())
        try:
            while True:
                connection.sendall(b" ")
                is_left.wait(0.02)
        except OSError:
            is_left.set()

    with _server(drip, papers if is_tls else None) as server:
        with pytest.raises(TransientError, match="could not be reached in 1 attempts"):
            _ask(server, 0.3, ca=str(papers.ca))
        assert is_left.wait(20)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("is_tls", [True, False])
def test_a_redirect_is_not_followed(papers: Papers, status: int, *, is_tls: bool) -> None:
    """The server that it leads to gets no request, so that it sees no log-in, and none goes from HTTPS to HTTP."""
    with _server(_good) as other:

        def lead_on(_head: str, connection: Any) -> None:
            _sent(connection, status, b"", Location=f"{other.url}/schemas/ids/1")

        with (
            _server(lead_on, papers if is_tls else None) as server,
            pytest.raises(RegistryError, match=rf"answers {status}, which leads to another address. Hint: set "),
        ):
            _ask(server, ca=str(papers.ca), bearer_token=TOKEN)

        assert other.heads == []


def test_a_compressed_answer_is_not_unpacked() -> None:
    """The client asks for none, so one that comes is an attempt to fill the memory: it is read as it is."""
    bomb = gzip.compress(gzip.compress(bytes(50_000_000)))

    def throw(_head: str, connection: Any) -> None:
        _sent(connection, 200, bomb, Content_Encoding="gzip, gzip")

    with _server(throw) as server, pytest.raises(RegistryError, match="with something that is not JSON"):
        _ask(server)

    assert "Accept-Encoding: identity\r\n" in server.heads[0]


def test_a_schema_of_300000_fields_is_too_large() -> None:
    """TiDB's tables have 4096 columns at the most; reading ends at 16 MiB, whatever is still to come."""
    fields = [{"name": f"c{number}", "type": ["null", "long"], "default": None} for number in range(300_000)]
    schema = json.dumps({"type": "record", "name": "t", "fields": fields})

    def throw(_head: str, connection: Any) -> None:
        with suppress(OSError):
            _sent(connection, 200, json.dumps({"schema": schema}).encode())

    with _server(throw) as server, pytest.raises(RegistryError, match=r"answers with more than 16777216 bytes\. Hint"):
        _ask(server)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [('{"type":"array","items":', "}"), ("[", "]"), ('{"type":', "}"), ('{"type":"map","values":["null",', "]}")],
)
def test_nesting_beyond_measure_is_refused(opening: str, closing: str) -> None:
    """At each depth a schema is read, or refused in one sentence; no depth ends the process."""
    refused = []
    for depth in [*range(1, 1100, 3), 100_000]:
        try:
            parse_registered(1, RegistrySchema(opening * depth + '"long"' + closing * depth))
        except RegistryError as error:
            refused.append(error.what)

    assert len(refused) > 100
    assert all(what.startswith("Schema id 1 is not a valid Avro schema (") for what in refused)


def test_no_such_answer_is_a_defect() -> None:
    """All end the process with exit code 3, and none with that of a defect."""
    assert issubclass(RegistryError, TerminalError)
