"""Which outside systems do not answer, or did not: counted, and shown while it lasts."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from applier.errors import RegistryError, TransientError
from applier.runtime.logs import logger
from applier.runtime.threads import beside

LATE_SECONDS = 5.0
"""An answer that takes longer counts as late."""

_SYSTEMS = {"consume": "source", "decode": "registry", "sink": "lake"}
"""The stage in which an error arose shows the system behind it."""

_PACKAGE = Path(__file__).absolute().parents[1]

SYSTEMS = (*_SYSTEMS.values(), "other")
"""`source`: Kafka, or the folder of recorded messages. `registry`: the schema registry, or the storage of claim checks.
`lake`: the catalog and its storage. `other`: what no stage asked."""


@dataclass(slots=True)
class Outages:
    """The outages of this process; any thread may look.

    Attributes:
        counts: Outages by system since the start.
        done: Work by system since the start that the system had to answer for: windows read, tables committed.
        current: What does not answer now, in a sentence; None while all is well.
        system: Which of `SYSTEMS` that is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    current: str | None = None
    system: str | None = None

    def begin(self, error: BaseException) -> None:
        """An outage begins with this error."""
        self.system, self.current = system_of(error), str(error)
        self.counts[self.system] += 1

    def worked(self, *systems: str) -> None:
        """Systems have done a piece of work: what fails from here on is another outage.

        A heartbeat is none, nor is a read: a lake that answers those alone would never count as out of order.
        """
        self.done.update(systems)

    @contextmanager
    def asking(self, system: str, name: str) -> Iterator[None]:
        """Ask one of `SYSTEMS`, known to people by a name: a late answer is logged once, and shown as an outage.

        It counts as one only once the question has failed.
        """
        since = datetime.now(UTC)

        def say(over: threading.Event) -> None:
            # What failed before says more.
            if over.wait(LATE_SECONDS) or self.current is not None:
                return
            self.system, self.current = system, f"{name} has not answered since {since:%H:%M:%S} UTC."
            logger().warning("no answer yet", of=name, since=since.isoformat(timespec="seconds"))
            over.wait()
            self.end()

        with beside("asking", say):
            yield

    def end(self) -> None:
        """The call that failed succeeded, or was given up."""
        self.system = self.current = None


def system_of(error: BaseException) -> str:
    """The outside system that an error came from: one of `SYSTEMS`."""
    if isinstance(error, TransientError) and error.system:
        return error.system
    if isinstance(error, RegistryError):
        return "registry"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        # An executor has the package in an archive, by a path from its own folder.
        file = Path(frame.filename).absolute()
        if file.is_relative_to(_PACKAGE) and (system := _SYSTEMS.get(file.relative_to(_PACKAGE).parts[0])):
            return system
    return "other"


OUTAGES = Outages()
"""There is one, as they are the outages of a process."""
