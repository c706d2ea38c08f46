"""Secrets and a process in, the places where others can read them out: command lines, environments and files."""

from __future__ import annotations

import base64
import io
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq

_LOOK_SECONDS = 0.02


class SecretWatch:
    """Finds secrets, by their names.

    Attributes:
        found: Where each was seen, as `NAME in PLACE`.
        commands: Command lines of the processes that were looked at.
        places: Where it looked, so that a test can hold that it did.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.found: set[str] = set()
        self.commands: set[str] = set()
        self.places: set[str] = set()
        self._forms = {name: _forms(secret) for name, secret in secrets.items()}

    def look(self, content: bytes, place: str) -> None:
        """Look at what is at a place."""
        self.places.add(place)
        for name, forms in self._forms.items():
            if any(form in content for form in forms):
                self.found.add(f"{name} in {place}")

    def look_into(self, content: bytes, place: str) -> None:
        """Look at a file, and at the values that it holds compressed."""
        self.look(content, place)
        if content[:4] == b"PAR1":
            self.look(str(pq.read_table(io.BytesIO(content)).to_pylist()).encode(), place)
        elif content[:4] == b"Obj\1":
            reader = fastavro.reader(io.BytesIO(content))
            self.look(str([reader.metadata, *reader]).encode(), place)
        elif content[:7] == b"SQLite ":
            # A long value lies in pages that need not be neighbours.
            with closing(sqlite3.connect(":memory:")) as database:
                database.deserialize(content)
                self.look("\n".join(database.iterdump()).encode(), place)

    @contextmanager
    def over(self, pid: int, folder: Path) -> Iterator[None]:
        """Look at a process, its descendants, and the files of a folder that others may read, until the block ends."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look_at_processes(pid)
                self.look_at_files(folder)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look_at_processes(self, pid: int) -> None:
        """Look at the command lines and environments of a process and of all below it."""
        for process in _descendants(pid):
            # It may have ended.
            with suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_bytes()
                self.commands.add(command.replace(b"\0", b" ").decode(errors="replace"))
                self.look(command, "a command line")
                self.look(Path(f"/proc/{process}/environ").read_bytes(), "an environment")

    def look_at_files(self, folder: Path) -> None:
        """Look at the files below a folder that others than their owner may read."""
        for parent, _, names in os.walk(folder):
            for file in (Path(parent) / name for name in names):
                with suppress(OSError):
                    if file.is_file() and file.stat().st_mode & 0o077:
                        self.look(file.read_bytes(), f"the open file {file.name}")


def _forms(secret: str) -> set[bytes]:
    """A secret as it is, in an address, and in Base64 at each place within three bytes, less what lies beside it."""
    inner = (base64.b64encode(b" " * at + secret.encode())[4 if at else 0 : -4] for at in range(3))
    return {secret.encode(), quote(secret, safe="").encode(), *inner}


def _descendants(pid: int) -> Iterator[int]:
    """A process and all below it; the JVM leads a session of its own, but stays a child."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                yield from _descendants(int(child))
