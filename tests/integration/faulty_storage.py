"""A proxy before an S3 server that lets chosen requests fail, as networks and storages do."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

CODES = {
    "403": (403, "AccessDenied"),
    "500": (500, "InternalError"),
    "503": (503, "SlowDown"),
    "expired": (400, "ExpiredToken"),
    "unknown key": (403, "InvalidAccessKeyId"),
}
"""Answers of a storage that refuses: the status, and the code in the body."""

SLOW_SECONDS = 2.0

HANGING_SECONDS = 40.0
"""Longer than any client waits for an answer."""

_DRAWN = (*("500", "503", "slow", "cut", "lost") * 6, "hanging")
"""Faults of a storage on a bad day. A client that hangs stands still for long, so that is rare."""


class FaultyStorage(ThreadingHTTPServer):
    """Hands requests on, unless `fault` names what happens to one instead.

    That is one of `CODES`, `cut` (the connection ends before the storage has the request), `lost` (it ends before the
    answer), `slow` (the answer takes `SLOW_SECONDS`) or `hanging` (it does not come); "" for nothing.

    Attributes:
        refused: Keys of clients that the storage does not know, with what it answers.
    """

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(behind).netloc
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.fault: Callable[[str, str], str] = lambda _method, _path: ""
        self.refused: dict[str, str] = {}
        self._lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client leaves whenever it likes."""

    def decide(self, method: str, path: str, authorization: str = "") -> str:
        """What happens to a request; one is decided at a time."""
        with self._lock:
            key = authorization.partition("Credential=")[2].partition("/")[0]
            return self.refused.get(key) or self.fault(method, path.partition("?")[0])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyStorage

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the library
        """Nothing."""

    def _serve(self) -> None:
        body = self._body()
        fault = self.server.decide(self.command, self.path, self.headers.get("Authorization", ""))
        if fault in CODES:
            status, code = CODES[fault]
            self._answer(status, [], f"<Error><Code>{code}</Code></Error>".encode())
            return
        if fault in ("slow", "hanging"):
            time.sleep(SLOW_SECONDS if fault == "slow" else HANGING_SECONDS)
        if fault in ("cut", "hanging"):
            self._end()
            return
        behind = http.client.HTTPConnection(self.server.behind)
        ours = ("expect", "transfer-encoding", "connection", "content-length")
        headers = {key: value for key, value in self.headers.items() if key.lower() not in ours}
        behind.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
        answer = behind.getresponse()
        found = answer.read()
        behind.close()
        if fault == "lost":
            self._end()
            return
        self._answer(answer.status, answer.getheaders(), found)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - the names of the library

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        size = str(len(body))
        for key, value in headers:
            if key.lower() == "content-length" and self.command == "HEAD":
                size = value
            if key.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(key, value)
        self.send_header("Content-Length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _end(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty(behind: str) -> Iterator[FaultyStorage]:
    """A proxy before the server of an address, until the block ends."""
    server = FaultyStorage(behind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def drawn(chance: random.Random, share: float) -> Callable[[str, str], str]:
    """Faults of a bad day, at a share of the requests."""
    return lambda _method, _path: chance.choice(_DRAWN) if chance.random() < share else ""
