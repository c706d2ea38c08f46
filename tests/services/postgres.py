"""A PostgreSQL server on 127.0.0.1 with log-ins, and with TLS where a certificate is given. Skipped where none is."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.certificates import Authority
from tests.services.process import free_ports

USER, PASSWORD, DATABASE = "applier", "s3cret/p@ss", "lake"

_NEEDED = "PostgreSQL is not installed here: apt-get install postgresql."


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server with the database `lake` of the user `applier`.

    Attributes:
        port: Where it listens.
        folder: Its files.
    """

    port: int
    folder: Path

    def lake(self, options: str = "", **instead: str) -> dict[str, str]:
        """Properties of a catalog in it, with parameters of the driver after a `?`."""
        uri = f"jdbc:postgresql://127.0.0.1:{self.port}/{DATABASE}{options}"
        return {"type": "jdbc", "uri": uri, "jdbc.user": USER, "jdbc.password": PASSWORD, **instead}

    def stop(self) -> None:
        """End it, as it ends connections."""
        _run("pg_ctl", "-D", str(self.folder), "-m", "fast", "-w", "stop")

    def start(self) -> None:
        """Begin to listen."""
        options = f"-p {self.port} -k {self.folder}"
        log = str(self.folder / "log")
        _run("pg_ctl", "-D", str(self.folder), "-l", log, "-o", options, "-w", "start")


def _programs() -> Path:
    """The folder of its programs; Debian has it on no path."""
    found = shutil.which("initdb") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), "")
    if not found:
        pytest.skip(_NEEDED)
    return Path(found).resolve().parent


def _run(program: str, *arguments: str) -> None:
    # The server refuses to run for root.
    user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    command = [str(_programs() / program), *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        timeout=120,
        check=False,
        **user,
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def postgres(authority: Authority | None = None) -> Iterator[Postgres]:
    """A running server that takes log-ins by password alone, over TLS alone where an authority is given."""
    _programs()
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        server = Postgres(port, Path(name) / "data")
        (server.folder.parent / "password").write_text(PASSWORD, encoding="utf-8")
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (server.folder.parent, server.folder.parent / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        login = ["-U", USER, f"--pwfile={server.folder.parent}/password", "--auth=scram-sha-256", "-E", "UTF8"]
        _run("initdb", "-D", str(server.folder), *login, "--no-sync")
        if authority is not None:
            _secure(server.folder, authority)
        server.start()
        try:
            environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGSSLMODE": "prefer"}
            address = ["-h", "127.0.0.1", "-p", str(port), "-U", USER]
            make = [str(_programs() / "createdb"), *address, "--maintenance-db=postgres", DATABASE]
            subprocess.run(make, check=True, env=environment, capture_output=True)
            yield server
        finally:
            server.stop()


def _secure(folder: Path, authority: Authority) -> None:
    """Let it speak TLS, and take no connection without."""
    with (folder / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write("ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.pem'\n")
    (folder / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
    owner, target = folder.stat(), folder / "server.pem"
    target.write_bytes(authority.issue("server").read_bytes())
    target.chmod(0o600)
    os.chown(target, owner.st_uid, owner.st_gid)
