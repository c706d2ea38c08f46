"""Serves what a process shows over HTTP; a slow client, or a hundred, hold no step up."""

from __future__ import annotations

import base64
import errno
import gzip
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from applier.config.watch import HttpSection, is_loopback
from applier.errors import ConfigError
from applier.runtime.logs import Guard
from applier.runtime.threads import beside

KEPT_SECONDS = 1.0
"""Time for which an answer is given again, however many ask."""

_CLIENTS, _OF_ONE_ADDRESS = 64, 24
"""Connections at once, in all and from one address; further ones are closed, and their clients try again."""

_PATIENCE_SECONDS = 10.0
"""Time from the connection of a client to the end of its answer."""

_HEAD_BYTES = 16_384
"""Longest request: it has to be read before the token is known."""

_REST = 10
"""An answer is kept as many times longer than it took to make: ten thousand tables take a while."""

_TAKEN = "another process listens there, perhaps an `applier run` that has just begun, or one of another changefeed"

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PortTaken(ConfigError):
    """Another process listens on the port."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request: its body, media type, code, and further headers."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


_UNMADE = Answer(b"This cannot be shown; the log says why.\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)


class Resource:
    """What answers the requests for a path; one that is open needs no token.

    An answer is made at most once in `KEPT_SECONDS`, also compressed; one that is slow to make is kept longer. One that
    cannot be made is an answer, too.
    """

    def __init__(self, make: Callable[[], Answer], *, is_open: bool = False) -> None:
        self.is_open = is_open
        self._make = make
        self._until = 0.0
        self._answer = Answer(b"")
        self._packed: Answer | None = None
        self._guard = Guard("page cannot be made")
        self._lock = threading.Lock()

    def get(self, *, packed: bool) -> Answer:
        """The answer as it is sent."""
        with self._lock:
            if (start := time.monotonic()) >= self._until:
                # The next request must not meet the same failure again.
                self._answer, self._packed = _UNMADE, None
                with self._guard.block():
                    self._answer = self._make()
                now = time.monotonic()
                self._until = now + max(KEPT_SECONDS, _REST * (now - start))
            if not packed:
                return self._answer
            if self._packed is None:
                body, headers = gzip.compress(self._answer.body, 1), self._answer.headers
                self._packed = replace(self._answer, body=body, headers={"Content-Encoding": "gzip", **headers})
            return self._packed


@contextmanager
def serving(settings: HttpSection, resources: Mapping[str, Resource]) -> Iterator[str | None]:
    """Answer requests until the block ends; gives the address of the page, None where no port is set.

    Raises:
        ConfigError: The address cannot be listened on, or the certificate cannot be used.
    """
    if settings.port is None:
        yield None
        return
    server = _listening(settings, resources)
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    with beside("http", lambda _: server.serve_forever()):
        try:
            yield f"{'http' if server.tls is None else 'https'}://{host}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            server.server_close()


def _listening(settings: HttpSection, resources: Mapping[str, Resource]) -> _Server:
    tls = _tls(settings)
    try:
        return _Server(settings, resources, tls)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        reason = _TAKEN if is_taken else error.strerror or error
        sentence = f"http.port: cannot listen on {settings.address}:{settings.port}: {reason}."
        refusal = PortTaken if is_taken else ConfigError
        raise refusal([f"{sentence} Choose another port or address, or leave http.port out."]) from error


def _tls(settings: HttpSection) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:
        what = f"http.certificate: {settings.certificate} and {settings.key} cannot be used: {error.strerror or error}."
        raise ConfigError([f"{what} Both must be PEM files that this user may read, and belong together."]) from error
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _CLIENTS

    def __init__(self, settings: HttpSection, resources: Mapping[str, Resource], tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.token = None if settings.token is None else settings.token.get_secret_value()
        self.resources = resources
        self._clients: dict[socket.socket, tuple[str, float]] = {}
        self._lock = threading.Lock()
        if ":" in settings.address:
            self.address_family = socket.AF_INET6
        super().__init__((settings.address, settings.port or 0), _Handler)

    def server_bind(self) -> None:
        # The library's own asks a name server for the name of the address.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            host = str(client_address[0])
            is_full = len(self._clients) >= _CLIENTS
            if is_full or sum(host == other for other, _ in self._clients.values()) >= _OF_ONE_ADDRESS:
                self.shutdown_request(request)
                return
            self._clients[request] = (host, time.monotonic() + _PATIENCE_SECONDS)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        current = request
        try:
            request.settimeout(_PATIENCE_SECONDS)
            # The handshake is the client's matter, too: it must not hold up those who come after it.
            with suppress(OSError):
                if self.tls is not None:
                    current = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    with self._lock:
                        # The deadline is for the socket that is open now.
                        self._clients[current] = self._clients.pop(request)
                    current.do_handshake()
                super().process_request_thread(current, client_address)
        finally:
            self._forget(current)
            self.shutdown_request(current)

    def service_actions(self) -> None:
        """Close connections whose time is over: one that sends a byte now and then would stay for ever."""
        now = time.monotonic()
        with self._lock:
            late = [client for client, (_, until) in self._clients.items() if now > until]
        for client in late:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that leaves is no event of this process."""

    def _forget(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.pop(client, None)


class _Head:
    """The request of a client; at most `_HEAD_BYTES` of it are read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = _HEAD_BYTES

    def readline(self, size: int) -> bytes:
        """The next line; raises ConnectionError beyond the limit, which ends the connection."""
        line: bytes = self._stream.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionError
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "applier"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"
    rfile: Any

    def setup(self) -> None:
        """Read no more than a request may have."""
        super().setup()
        self.rfile = _Head(self.rfile)

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        resource = self.server.resources.get(path)
        if not self._is_of_this_host():
            self._send(Answer(b"This address is not served here.\n", status=HTTPStatus.MISDIRECTED_REQUEST))
        elif not (resource and resource.is_open) and not self._is_allowed():
            self._send(
                Answer(
                    b"Show the token of [http].\n",
                    status=HTTPStatus.UNAUTHORIZED,
                    headers={"WWW-Authenticate": 'Basic realm="applier", charset="UTF-8"'},
                )
            )
        elif resource is None:
            known = "\n".join(self.server.resources)
            self._send(Answer(f"There is no such page. Known are:\n{known}\n".encode(), status=HTTPStatus.NOT_FOUND))
        else:
            self._send(resource.get(packed="gzip" in self.headers.get("Accept-Encoding", "")))

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing: requests are no events of the changefeed."""

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        own = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), "Connection": "close"}
        for name, value in {**own, **_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _is_of_this_host(self) -> bool:
        """A page of another site, whose name leads to this machine, must not read what needs no token."""
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return self.server.token is not None or is_loopback(name.strip("[]"))

    def _is_allowed(self) -> bool:
        token = self.server.token
        if token is None:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):
                shown = base64.b64decode(given.strip(), validate=True).partition(b":")[2]
                return hmac.compare_digest(shown, token.encode())
            return False
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "replace"), token.encode()
        )
