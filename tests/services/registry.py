"""A folder in, one schema registry on 127.0.0.1 out that speaks the API of Confluent's (Apicurio, in memory)."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from applier.runtime.jvm import jars
from tests.services.process import JavaProcess, free_ports

LOCK = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Registry:
    """A running registry.

    Attributes:
        url: What a client of Confluent's registry takes as its address.
    """

    url: str

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema and return its id."""
        answer = requests.post(f"{self.url}/subjects/{subject}/versions", json={"schema": schema}, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])


@contextmanager
def registry_server(folder: Path) -> Iterator[Registry]:
    """A running, empty registry that is stopped at the end."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.log.level": "WARN",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": f"jdbc:h2:mem:registry_{port}",
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    process = JavaProcess("The registry", ["-Xmx256m", *options, "-jar", str(_runner())], folder / "registry.log")
    try:
        process.start(lambda: _answers(url))
        yield Registry(url)
    finally:
        process.stop()


def _runner() -> Path:
    """The registry's jar, unpacked once beside its archive."""
    (archive,) = jars.fetch("registry", LOCK)
    unpacked = archive.parent / "unpacked"
    if not unpacked.is_dir():
        with tempfile.TemporaryDirectory(dir=archive.parent) as staging, tarfile.open(archive) as files:
            files.extractall(Path(staging) / "whole", filter="data")
            # Another process may have been first, with the same files.
            with contextlib.suppress(OSError):
                (Path(staging) / "whole").rename(unpacked)
    return next(unpacked.glob("*-runner.jar"))


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/subjects", timeout=5).ok
    except requests.RequestException:
        return False


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """One registry for the whole run, started by the first test that asks for it; use subjects of your own."""
    with registry_server(tmp_path_factory.mktemp("registry")) as running:
        yield running
