"""A configuration in, `applier run` as a process of its own out: one that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from applier.runtime.failpoints import KILL_AT

SECONDS = 240
"""Longest that a process may take; a quiet machine needs ten, and one that unpacks 250 MB a minute."""

_SPARK = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.ui.enabled": "false"}

_RUN = {"heartbeat_seconds": 1800, "lease_seconds": 3600}
"""A slow machine must not decide who holds the changefeed, nor a beat which commit is the n-th."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended.

    Attributes:
        code: Exit code; negative if a signal killed it.
        events: Log events.
        said: The lines of standard error that are none.
        everything: All that it wrote.
    """

    code: int
    events: list[dict[str, Any]]
    said: str
    everything: str

    @property
    def taken(self) -> dict[str, Any]:
        """The event that tells why the changefeed could be taken."""
        return next(event for event in self.events if event["event"] == "changefeed taken")


class Applier:
    """An `applier run` that has been started.

    Args:
        config: The configuration, as the dictionary that its TOML holds.
        folder: Where its files go.
        options: Options after `applier run -c FILE`.
        kill_at: Kill point, see `applier/runtime/failpoints.py`.
        command: Another command than `run`.
        module: Another module than applier that takes its commands.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        *options: str,
        kill_at: str = "",
        command: str = "run",
        module: str = "applier",
    ) -> None:
        file = folder / "applier.toml"
        run = {**_RUN, **config.get("run", {})}
        file.write_text(toml({"spark": _SPARK, **config, "run": run}), encoding="utf-8")
        self._log = folder / f"{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, command, "-c", str(file), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, KILL_AT: kill_at},
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> Ended:
        """Wait for its end; kill it if that does not come."""
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            msg = f"the applier did not end:\n{self._log.read_text()[-2000:]}"
            raise AssertionError(msg) from None
        everything = self._log.read_text(encoding="utf-8")
        lines = everything.splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return Ended(code, events, "\n".join(line for line in lines if not line.startswith("{")), everything)

    def until(self, event: str) -> None:
        """Wait until it has logged an event."""
        deadline = time.monotonic() + SECONDS
        while f'"event": "{event}"' not in self._log.read_text(encoding="utf-8"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                msg = f"the applier never said {event!r}:\n{self._log.read_text()[-2000:]}"
                raise AssertionError(msg)
            time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        """Send it a signal and wait for its end."""
        self.send(number)
        return self.wait()


def once(config: Mapping[str, Any], folder: Path, *options: str, kill_at: str = "") -> Ended:
    """`applier run --once`, from its start to its end."""
    return Applier(config, folder, "--once", *options, kill_at=kill_at).wait()


def toml(config: Mapping[str, Any]) -> str:
    """A dictionary of sections as TOML; sections may hold sections."""
    lines = []
    for section, entries in config.items():
        inner = {key: value for key, value in entries.items() if isinstance(value, Mapping)}
        lines.append(f"[{section}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in entries.items() if key not in inner]
        if inner:
            lines.append(toml({f"{section}.{key}": value for key, value in inner.items()}))
    return "\n".join(lines) + "\n"
