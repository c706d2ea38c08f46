"""A schema registry by script: answers in, requests out, on a free port of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the server; bytes go out as they are, anything else as JSON."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came in."""

    method: str
    path: str
    authorization: str | None
    body: Any


class FakeRegistry:
    """Answers each path with its script, the last answer for ever; 404 with code 40401 where there is none.

    Attributes:
        scripts: Answers by path, query left out.
        requests: What came in, in order.
        url: Address.
    """

    def __init__(self, port: int) -> None:
        self.scripts: dict[str, list[Answer]] = {}
        self.requests: list[Request] = []
        self.url = f"http://127.0.0.1:{port}"

    def on(self, path: str, *answers: Answer) -> FakeRegistry:
        """Script the answers of a path."""
        self.scripts[path] = list(answers)
        return self

    def register(self, text: str) -> int:
        """The id of a schema: a new one where it is new."""
        path = "/schemas/ids/{}".format
        number = next(number for number in count(1) if self.scripts.get(path(number), [])[:1] in ([], [_schema(text)]))
        self.on(path(number), _schema(text))
        return number

    def answer(self, request: Request) -> Answer:
        """The next answer of a path."""
        self.requests.append(request)
        script = self.scripts.get(request.path.partition("?")[0], [])
        if not script:
            return Answer(404, {"error_code": 40401, "message": "Subject not found."})
        return script.pop(0) if len(script) > 1 else script[0]


def _schema(text: str) -> Answer:
    return Answer(200, {"schema": text})


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """A running server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    registry = FakeRegistry(server.server_address[1])
    server.registry = registry  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        request = Request(self.command, self.path, self.headers.get("Authorization"), body)
        answer = self.server.registry.answer(request)  # type: ignore[attr-defined]
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Stay quiet."""
