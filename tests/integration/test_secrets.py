"""A run on every hop that takes a secret shows none of them to others, in whole and where a hop fails."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from applier.runtime.jvm import java_home
from tests import recordings
from tests.fake_registry import Answer, FakeRegistry, fake_registry
from tests.integration.test_kafka_source import produce
from tests.recovery.process import Applier, Ended
from tests.secret_watch import SecretWatch
from tests.services.kafka import broker
from tests.services.process import free_ports
from tests.services.s3 import ObjectStore, s3_server

pytestmark = [pytest.mark.s3, pytest.mark.kafka, pytest.mark.timeout(600)]

SCENARIO, VARIANT = "pk", "avro-before-value"

SECRETS = {
    name: f"sEcReT-{name}-5f1c9e"
    for name in (
        "kafka",
        "keystore",
        "registry",
        "catalog-token",
        "catalog-credential",
        "s3-key",
        "s3-secret",
        "spark",
        "http",
        "webhook-url",
        "webhook-header",
        "traces",
        "upstream",
    )
}


_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

_LISTENER = """\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config={module} required user_reader="{password}";
ssl.keystore.location={store}
ssl.keystore.password={store_password}
"""


class Hops:
    """What a changefeed with all secrets talks to.

    Attributes:
        config: The configuration, whose secrets lie in files.
    """

    def __init__(self, kafka: str, registry: FakeRegistry, s3: ObjectStore, sink: Sink, folder: Path) -> None:
        self.kafka, self.registry, self.s3, self.sink, self.folder = kafka, registry, s3, sink, folder
        self.page = free_ports(1)[0]
        # What earlier servers of this process hold, this one shows as well.
        self.bucket = f"secrets-{uuid4().hex}"
        s3.create_bucket(self.bucket)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        given = folder / "given"
        given.mkdir()
        for name, secret in SECRETS.items():
            (given / name).write_text(f"{secret}\n", encoding="utf-8")
        self.config = self._config(sorted({record["topic"] for record in recordings.records(SCENARIO, VARIANT)}))

    def _config(self, topics: list[str]) -> dict[str, Any]:
        secret = {name: f"${{file:given/{name}}}" for name in SECRETS}
        store = {
            f"kafka.ssl.{kind}.{key}": value
            for kind in ("keystore", "truststore")
            for key, value in {"location": str(self.folder / "store.p12"), "password": secret["keystore"]}.items()
        }
        kafka = {
            "topics": topics,
            "kafka.bootstrap.servers": self.kafka,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{_PLAIN} required username="reader" password="{secret["kafka"]}";',
            **store,
        }
        keys = {"s3.access-key-id": secret["s3-key"], "s3.secret-access-key": secret["s3-secret"]}
        few = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "1", "s3.retry.max-wait-ms": "5"}
        lake = {"name": "lake", "type": "jdbc", "uri": f"jdbc:sqlite:{self.folder}/catalog.db"}
        lake |= {"warehouse": f"s3://{self.bucket}/lake", **self.s3.catalog_properties, **keys, **few}
        lake |= {"token": secret["catalog-token"], "credential": secret["catalog-credential"]}
        return {
            "changefeed": {"name": "secrets", "protocol": "avro"},
            "source": {"kafka": kafka},
            "registry": {"url": self.registry.url, "bearer_token": secret["registry"]},
            "upstream": {"url": f"mysql://reader:{secret['upstream']}@127.0.0.1:1"},
            "catalog": lake,
            "http": {"port": self.page, "token": secret["http"]},
            "webhook": {
                "url": f"{self.sink.url}/hook/{secret['webhook-url']}",
                "headers": {"Authorization": f"Bearer {secret['webhook-header']}"},
            },
            "traces": {
                "endpoint": f"{self.sink.url}/v1/traces",
                "headers": {"Authorization": f"Bearer {secret['traces']}"},
            },
            "spark": {
                "spark.master": "local[1]",
                "spark.driver.memory": "512m",
                "spark.local.dir": str(self.temporary),
                "spark.authenticate.secret": secret["spark"],
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.temporary}",
            },
        }

    def look_at_files(self, watch: SecretWatch) -> list[str]:
        """Look into what the run left behind; returns the names."""
        names = []
        for name, content in self._files():
            watch.look_into(content, f"the file {name}")
            names.append(name)
        return names

    def plant(self, secret: str) -> None:
        """Leave a secret in the lake and in a file of the run."""
        self.s3.client().put_object(Bucket=self.bucket, Key="lake/planted", Body=secret.encode())
        (self.temporary / "planted").write_text(secret, encoding="utf-8")

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """What the run left behind: objects of the lake, and files but for those that were given."""
        client = self.s3.client()
        for key in self.s3.keys(self.bucket):
            yield key, client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        for file in self.folder.rglob("*"):
            if file.is_file() and file.parent.name not in ("given", "kafka") and "data" not in file.parts:
                yield file.name, file.read_bytes()


@dataclass
class Sink:
    """Takes what the webhook and the collector of traces are sent."""

    url: str
    taken: list[str]


@contextmanager
def _sink() -> Iterator[Sink]:
    taken: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(f"{self.path} {self.headers.get('Authorization')}")
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Sink(f"http://127.0.0.1:{server.server_address[1]}", taken)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hops]:
    """Everything that the changefeed talks to, with the recorded feed in it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    store, password = tmp_path / "store.p12", SECRETS["keystore"]
    _make_key(store, password)
    (tmp_path / "kafka").mkdir()
    (port,) = free_ports(1)
    listener = _LISTENER.format(module=_PLAIN, password=SECRETS["kafka"], store=store, store_password=password)
    options: dict[str, Any] = {"listeners": {"LOGIN": port}, "settings": listener}
    with broker(tmp_path / "kafka", **options) as kafka, fake_registry() as registry, s3_server() as s3:
        produce(kafka.bootstrap, recordings.records(SCENARIO, VARIANT), topic_prefix="")
        for entry in recordings.registry(SCENARIO, VARIANT):
            registry.on(f"/schemas/ids/{entry['id']}", Answer(200, {"schema": entry["schema"]}))
        with _sink() as sink:
            yield Hops(f"127.0.0.1:{port}", registry, s3, sink, tmp_path)


def _make_key(store: Path, password: str) -> None:
    keytool = [str(java_home.find() / "bin" / "keytool"), "-genkeypair", "-alias", "broker", "-keyalg", "EC"]
    names = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    subprocess.run([*keytool, *names, "-keystore", store, "-storepass", password], check=True, capture_output=True)


def _watched(hops: Hops, watch: SecretWatch, *options: str, command: str = "run") -> Ended:
    """Run a command to its end, while its processes, its open files and its page are looked at."""
    applier = Applier(hops.config, hops.folder, *options, command=command, module="tests.recovery.impatient")
    with watch.over(applier.pid, hops.temporary):
        while applier.is_running:
            _look_at_page(hops.page, watch)
            time.sleep(0.02)
    return applier.wait()


def _look_at_page(port: int, watch: SecretWatch) -> None:
    for path in ("/", "/status.json", "/history.json", "/metrics"):
        # It is there only for a part of the run.
        with suppress(requests.ConnectionError):
            login = {"Authorization": f"Bearer {SECRETS['http']}"}
            answer = requests.get(f"http://127.0.0.1:{port}{path}", headers=login, timeout=30)
            if answer.ok:
                watch.look(str(answer.headers).encode() + answer.content, f"the page {path}")


def test_no_secret_is_shown(hops: Hops) -> None:
    """Neither while the process runs nor afterwards, though each hop that is used got its own."""
    watch = SecretWatch(SECRETS)

    ended = _watched(hops, watch, "--once")

    assert ended.code == 0, ended.everything[-3000:]
    assert {request.authorization for request in hops.registry.requests} == {f"Bearer {SECRETS['registry']}"}
    assert f"/v1/traces Bearer {SECRETS['traces']}" in hops.sink.taken
    assert f"/hook/{SECRETS['webhook-url']} Bearer {SECRETS['webhook-header']}" in hops.sink.taken
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in watch.commands)
    assert {"the page /", "the page /status.json", "the page /metrics", "a command line"} <= watch.places
    shown = subprocess.run(
        [sys.executable, "-m", "applier", "status", "--json", "-c", str(hops.folder / "applier.toml")],
        capture_output=True,
        check=False,
    )
    assert json.loads(shown.stdout)["changefeed"] == "secrets", shown.stderr
    watch.look(shown.stdout + shown.stderr, "status --json")
    names = {name.rpartition(".")[2] for name in hops.look_at_files(watch)}
    assert {"json", "avro", "parquet", "db", "log"} <= names
    assert sorted(watch.found) == []
    hops.plant(SECRETS["kafka"])
    hops.look_at_files(watch)
    assert sorted(watch.found) == ["kafka in the file lake/planted", "kafka in the file planted"]


_NOWHERE = "127.0.0.1:1"

FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kafka": ("run", {"source": {"kafka": {"kafka.bootstrap.servers": _NOWHERE}}}),
    "kafka login": ("run", {"source": {"kafka": {"kafka.sasl.mechanism": "SCRAM-SHA-512"}}}),
    "keystore": ("run", {"source": {"kafka": {"kafka.ssl.keystore.location": "/dev/null"}}}),
    "registry": ("run", {"registry": {"url": f"http://{_NOWHERE}", "attempts": 1}}),
    "catalog": (
        "run",
        {"catalog": {"uri": f"jdbc:postgresql://{_NOWHERE}/lake", "jdbc.password": "${file:given/catalog-token}"}},
    ),
    "rest catalog": ("run", {"catalog": {"type": "rest", "uri": f"http://{_NOWHERE}"}}),
    "storage": ("run", {"catalog": {"s3.endpoint": f"http://{_NOWHERE}"}}),
    "spark": ("run", {"spark": {"spark.master": f"spark://{_NOWHERE}", "spark.authenticate": "true"}}),
    "upstream": ("load", {}),
    "webhook": ("run", {"webhook": {"url": f"http://{_NOWHERE}/${{file:given/webhook-url}}"}}),
    "traces": ("run", {"traces": {"endpoint": f"http://{_NOWHERE}/v1/traces"}}),
}
"""Per hop the command that meets its failure, and what leads it to a wrong place."""


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS)
def test_no_secret_is_shown_where_a_hop_fails(hops: Hops, fault: str) -> None:
    """What a library says of its failure reaches the log, and must not take the log-in with it."""
    command, wrong = FAULTS[fault]
    hops.config = _merged(hops.config, wrong)
    watch = SecretWatch(SECRETS)

    ended = _watched(hops, watch, *(["--once"] if command == "run" else []), command=command)

    assert ended.code in ((0,) if fault in ("webhook", "traces") else (2, 3)), ended.everything[-3000:]
    hops.look_at_files(watch)
    assert sorted(watch.found) == [], ended.everything[-3000:]


def _merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(config[key], value) for key, value in changes.items() if isinstance(value, dict)}
    return {**config, **changes, **both}
