"""One Java process: a command in, a process out that answers, and that is gone afterwards."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from applier.runtime.jvm import java_home

_LEAN = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
"""Flags for a server that lives for minutes: little memory, quick to start."""


class JavaProcess:
    """A Java server on 127.0.0.1.

    Args:
        name: What messages call it.
        arguments: Arguments of `java`.
        log: File for everything that it prints.
        environment: Its environment; this process's own where it is absent.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        assert self._process is not None, f"{self._name} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, answers: Callable[[], bool], seconds: float = 120) -> None:
        """Start it and wait until `answers` is true. Raises RuntimeError with the end of its log if it never is."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(java_home.find() / "bin" / "java"), *_LEAN, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
            )
        deadline = time.monotonic() + seconds
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                msg = f"{self._name} did not start:\n{self._log.read_text(errors='replace')[-2000:]}"
                raise RuntimeError(msg)
            time.sleep(0.1)

    def stop(self) -> None:
        """End it; kill it if it does not end within 20 seconds. May be called twice."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def run_java(arguments: Sequence[str]) -> None:
    """Run a Java program to its end. Raises RuntimeError with what it printed if it fails."""
    command = [str(java_home.find() / "bin" / "java"), *_LEAN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def free_ports(count: int) -> list[int]:
    """TCP ports of 127.0.0.1 that nobody listens on; all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
