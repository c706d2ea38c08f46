"""Nothing in, a real TiDB server on 127.0.0.1 out, and the Dumpling that exports it.

Both come from TIDB_SERVER and DUMPLING, from the PATH, or from the folder `shared/tidb` beside the repository.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.services.process import free_ports

SECONDS = 120
"""Longest that the server may take to answer, and Dumpling to export."""

_PACKED = Path(__file__).parents[2].parent / "shared" / "tidb"


@dataclass(frozen=True, slots=True)
class Tidb:
    """A running TiDB.

    Attributes:
        port: Its port on 127.0.0.1; the user is root, without a password.
        dumpling: The program.
    """

    port: int
    dumpling: Path

    def run(self, *statements: str, mode: str = "") -> None:
        """Execute statements in UTC, in one session with an SQL mode."""
        with self._connected() as connection, connection.cursor() as cursor:
            for statement in (f"SET sql_mode = '{mode}', time_zone = '+00:00'", *statements):
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query shows in UTC: text, bytes and NULL, as the server sends them."""
        with self._connected() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(query)
            return list(cursor.fetchall())

    def dump(self, folder: Path, *options: str) -> str:
        """Export with options of Dumpling into a folder; its address."""
        own = (str(self.dumpling), "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "--status-addr", "")
        done = subprocess.run(
            [*own, "-o", str(folder), *options], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return str(folder)

    def _connected(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True, conv={})


def found() -> tuple[Path, Path] | None:
    """The server and Dumpling; None where they are not."""
    programs = [_program("tidb-server", "TIDB_SERVER"), _program("dumpling", "DUMPLING")]
    server, dumpling = programs
    return None if server is None or dumpling is None else (server, dumpling)


def _program(name: str, variable: str) -> Path | None:
    if path := os.environ.get(variable) or shutil.which(name):
        return Path(path)
    packed = _PACKED / f"{name}.xz"
    return _unpacked(packed, name) if packed.exists() else None


def _unpacked(packed: Path, name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidb-for-tests"
    program = cache / name
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        new = cache / f"{name}.{os.getpid()}"
        with lzma.open(packed) as source, new.open("wb") as target:
            shutil.copyfileobj(source, target)
        new.chmod(0o755)
        new.rename(program)
    return program


@pytest.fixture(scope="session")
def tidb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidb]:
    """One server for the whole run; use databases of your own."""
    programs = found()
    if programs is None:
        pytest.skip("no TiDB: set TIDB_SERVER and DUMPLING to the programs tidb-server and dumpling")
    folder, (port, status) = tmp_path_factory.mktemp("tidb"), free_ports(2)
    own: Sequence[str] = ("-store", "unistore", "-path", str(folder / "data"), "-host", "127.0.0.1", "-P", str(port))
    more = ("-status", str(status), "-socket", "", "-log-file", str(folder / "tidb.log"))
    with (folder / "out.log").open("wb") as log:
        process = subprocess.Popen([str(programs[0]), *own, *more], cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        server = Tidb(port, programs[1])
        _until_ready(server, process, folder / "out.log")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_ready(server: Tidb, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            server.rows("SELECT 1")
        except pymysql.MySQLError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        else:
            return
