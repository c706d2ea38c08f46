"""A live feed in whose middle a table is parked and brought back in, what that costs all other tables out."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np

from bench.freshness import readable
from bench.meter import Line
from bench.topic.events import Events, Workload, commit_ts
from bench.topic.schema import DATABASE, table_name

PARKED = 0
"""Number of the table that is parked."""

PARK, RESUME = 1 / 3, 0.45
"""When each command is given, as shares of the feed's time."""

_COMMAND_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Beside:
    """Freshness of all tables but the parked one, in one run.

    Attributes:
        around: Seconds from commit to readable, of changes that could be read shortly before the table was parked or
            shortly after it was back: steps grow slower over a run whatever happens, so either side alone misleads.
        meanwhile: The same of what could be read while the table was brought back.
        seconds: How long it took to bring the table back; 0.0 if it did not come back.
    """

    around: Sequence[float]
    meanwhile: Sequence[float]
    seconds: float


@dataclass(slots=True)
class Commands:
    """Gives the two commands beside a feed, each in a process of its own.

    Args:
        config: The job's configuration file.
        workload: What happens upstream, and when.
        log: Gets what the commands print.

    Attributes:
        failures: What went wrong.
    """

    config: Path
    workload: Workload
    log: Path
    failures: list[str] = field(default_factory=list)
    _thread: threading.Thread = field(init=False)

    def begin(self) -> None:
        """Wait for the time of each, on a thread."""
        self._thread = threading.Thread(target=self._give, name="park and resume")
        self._thread.start()

    def end(self) -> None:
        """Wait until both are done."""
        self._thread.join()

    def _give(self) -> None:
        table = f"{DATABASE}.{table_name(PARKED, self.workload.tables)}"
        seconds = self.workload.events / self.workload.rate
        with self.log.open("wb") as log:
            for verb, share, more in (("park", PARK, ["--why", "bench"]), ("resume", RESUME, [])):
                time.sleep(max(0.0, self.workload.start_ms / 1000 + share * seconds - time.time()))
                command = [sys.executable, "-m", "applier", verb, "-c", str(self.config), "--tables", table, *more]
                done = subprocess.run(
                    command, stdout=log, stderr=subprocess.STDOUT, timeout=_COMMAND_SECONDS, check=False
                )
                if done.returncode:
                    self.failures.append(f"applier {verb}: exit code {done.returncode}, see {self.log}")


def others(workload: Workload, events: Events) -> list[int]:
    """Commit ts of the changes of all tables but the parked one, ascending."""
    found: list[int] = commit_ts(
        workload, events.number[np.flatnonzero(events.key % workload.tables != PARKED)]
    ).tolist()
    return found


def compared(stamps: Sequence[int], start_ms: int, lines: Sequence[Line]) -> Beside:
    """Freshness around the time in which the table was parked, and while it was brought back.

    Args:
        stamps: Commit ts of the other tables' changes, ascending.
        start_ms: When the feed began, Unix milliseconds.
        lines: What the job printed.
    """
    steps = [line for line in lines if line.fields["event"] == "step"]
    seen = readable(stamps, steps)
    park, resume = _request(lines, "park"), _request(lines, "resume")
    back = next((_at(line) for line in lines if line.fields["event"] == "table resumed"), None)
    if park is None or resume is None or back is None:
        return Beside([], [], 0.0)
    # The step under way when the table came back had waited for that.
    last = next((at for at in map(_at, steps) if at >= back), back)
    span = (park - start_ms / 1000) / 2
    around = [at - committed for committed, at in seen if park - span <= at < park or last < at <= last + span]
    return Beside(around, [at - committed for committed, at in seen if resume <= at <= last], back - resume)


def part(seconds: Sequence[float], share: float) -> float:
    """The value below which a share of all lies; 0.0 of none."""
    found = sorted(seconds)
    return found[min(len(found) - 1, int(len(found) * share))] if found else 0.0


def _request(lines: Sequence[Line], kind: str) -> float | None:
    found = (line for line in lines if line.fields["event"] == "request" and line.fields.get("kind") == kind)
    return next(map(_at, found), None)


def _at(line: Line) -> float:
    return datetime.fromisoformat(line.fields["timestamp"]).timestamp()
