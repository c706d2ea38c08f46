"""Signs of progress of this process, by which a probe tells a long step from one that is stuck."""

from __future__ import annotations

import time


class Pulse:
    """The time since the last sign of progress; any thread may give or ask for one."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        """Something was done: a stage began or ended, a table was committed, an outside system was asked again."""
        self._at = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last beat."""
        return time.monotonic() - self._at


PULSE = Pulse()
"""There is one, as a probe asks a process."""
