"""An S3 server with the latency of an ordinary one, which counts who asks for what: moto in a process of its own.

`python -m bench.storage` serves until its standard input ends, and prints its address first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from werkzeug.serving import WSGIRequestHandler, make_server

LATENCY_MS: Mapping[str, float] = {"HEAD": 10, "GET": 40, "PUT": 60, "POST": 60, "DELETE": 40, "LIST": 60}
"""Milliseconds that a request takes beside the work: what S3 shows within a region."""

_COUNTS = "/__counts__"

KEYS: Mapping[str, str] = {
    "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "s3.path-style-access": "true",
    "s3.access-key-id": "testing",
    "s3.secret-access-key": "testing-secret",
    "client.region": "us-east-1",
}

BUCKET = "bench"

ENDPOINT = os.environ.get("BENCH_S3", "")
"""Address of the server where this process keeps lakes; "" for folders of this machine."""


def counts(endpoint: str = ENDPOINT) -> Counter[str]:
    """Requests at a server so far, by what they are for and their kind, such as `manifests PUT`; see `_asked_by`."""
    if not endpoint:
        return Counter()
    with urlopen(f"{endpoint}{_COUNTS}") as answer:  # noqa: S310 - an address of this machine
        return Counter(json.load(answer))


def client(endpoint: str) -> Any:
    """A client of boto3 for a server."""
    import boto3  # noqa: PLC0415 - as for moto below

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEYS["s3.access-key-id"],
        aws_secret_access_key=KEYS["s3.secret-access-key"],
        region_name=KEYS["client.region"],
    )


@contextmanager
def slow_s3() -> Iterator[str]:
    """The address of a server with an empty bucket, in a process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.storage"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        endpoint = ((process.stdout and process.stdout.readline()) or "").strip()
        if not endpoint:
            msg = "the S3 server did not start"
            raise RuntimeError(msg)
        yield endpoint
    finally:
        for stream in filter(None, (process.stdin, process.stdout)):
            stream.close()
        process.wait(10)


class _Delayed:
    """Lets each request take its time, and counts it."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, query, method = environ["PATH_INFO"], environ.get("QUERY_STRING", ""), environ["REQUEST_METHOD"]
        if path == _COUNTS:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._counts).encode()]
        kind = "LIST" if method == "GET" and ("list-type" in query or path.count("/") < 2) else method
        with self._lock:
            self._counts[f"{_asked_by(path)} {kind}"] += 1
        time.sleep(LATENCY_MS.get(kind, 40) / 1000)
        return self._application(environ, start_response)


def _asked_by(path: str) -> str:
    """Control tables, files of data and deletes, or metadata of tables by its kind."""
    if "/applier_" in path:
        return "control"
    if "/metadata/" in path:
        name = path.rpartition("/")[2]
        return "metadata.json" if name.endswith(".json") else "lists" if name.startswith("snap-") else "manifests"
    return "data" if "/data/" in path else "other"


class _Quiet(WSGIRequestHandler):
    """Keeps connections open, as S3 does, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, kind: str, message: str, *args: Any) -> None:
        """See the class."""


def main() -> None:
    """Serve until the standard input ends."""
    # The processes that ask for counts do without it.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415

    application = _Delayed(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    client(endpoint).create_bucket(Bucket=BUCKET)
    print(endpoint, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
