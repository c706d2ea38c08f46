"""A secret that lies in any kind of place is found there: the tests that find none can fail."""

from __future__ import annotations

import base64
import io
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.secret_watch import SecretWatch

SECRET = "sEcReT/planted+5f1c9e"
FOUND = {"planted in here"}


@pytest.fixture
def watch() -> SecretWatch:
    """One that knows two secrets, of which one is planted."""
    return SecretWatch({"planted": SECRET, "other": "sEcReT-other-5f1c9e"})


def _parquet(text: str) -> bytes:
    file = io.BytesIO()
    table = pa.table({"text": [_behind(text)], "bytes": [b"row"]})
    pq.write_table(table, file, compression="gzip", write_statistics=False)
    return file.getvalue()


def _behind(text: str) -> str:
    return f"{'row ' * 100}{text}"


def _avro(row: str, note: str = "") -> bytes:
    file = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "text", "type": "string"}]}
    fastavro.writer(file, schema, [{"text": _behind(row)}], codec="deflate", metadata={"note": note})
    return file.getvalue()


def _sqlite(text: str) -> bytes:
    """A database that has the text in one value, in two parts on two pages."""
    for at in range(0, 4200, 8):
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute("CREATE TABLE metadata (document)")
            database.execute("INSERT INTO metadata VALUES (?)", (f"{'x' * at}{text}{'y' * (9000 - at)}",))
            database.commit()
            content = bytes(database.serialize())
        if text.encode() not in content:
            return content
    raise AssertionError(text)


def _login(user: str) -> Callable[[str], bytes]:
    return lambda text: b"Authorization: Basic " + base64.b64encode(f"{user}:{text}".encode())


PLACES: dict[str, Callable[[str], bytes]] = {
    "a log": lambda text: f'{{"event": "failed", "error": "log-in {text} refused"}}\n'.encode(),
    "a property": lambda text: f'{{"properties": {{"token": "{text}"}}}}'.encode(),
    "an address": lambda text: f"https://me:{quote(text, safe='')}@host".encode(),
    "a log-in": _login("me"),
    "a log-in of a longer name": _login("you"),
    "a log-in of a still longer name": _login("them"),
    "a control table": _parquet,
    "a manifest": _avro,
    "the head of a manifest": lambda text: _avro("row", text),
    "a catalog": _sqlite,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_a_file_is_found(watch: SecretWatch, place: str) -> None:
    """The one that is there and no other; in a file of the same kind without it there is none."""
    watch.look_into(PLACES[place]("nothing of interest"), "here")
    assert watch.found == set()

    watch.look_into(PLACES[place](SECRET), "here")

    assert watch.found == FOUND


@pytest.mark.parametrize("place", ["a control table", "a manifest", "a catalog"])
def test_the_bytes_of_a_file_would_not_show_it(watch: SecretWatch, place: str) -> None:
    """So that the cases above need the reading of values."""
    watch.look(PLACES[place](SECRET), "here")

    assert watch.found == set()


@pytest.mark.parametrize(
    ("place", "arguments", "environment"),
    [("a command line", [SECRET], {}), ("an environment", [], {"PASSWORD": SECRET})],
)
def test_a_secret_in_a_process_is_found(
    watch: SecretWatch, place: str, arguments: list[str], environment: dict[str, str]
) -> None:
    """On the command line and in the environment of a process below the one that is watched."""
    command = [sys.executable, "-c", "print(flush=True); input()", *arguments]
    pipe, variables = subprocess.PIPE, os.environ | environment
    with subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        # Before it runs, it has no command line yet.
        child.stdout.readline()
        watch.look_at_processes(os.getpid())
        child.communicate(b"\n")

    assert watch.found == {f"planted in {place}"}


def test_a_secret_in_an_open_file_is_found(watch: SecretWatch, tmp_path: Path) -> None:
    """One that its owner alone may read is none that others see."""
    file = tmp_path / "deep" / "settings"
    file.parent.mkdir()
    file.write_text(SECRET, encoding="utf-8")
    file.chmod(0o600)
    watch.look_at_files(tmp_path)
    assert watch.found == set()

    file.chmod(0o640)
    watch.look_at_files(tmp_path)

    assert watch.found == {"planted in the open file settings"}
