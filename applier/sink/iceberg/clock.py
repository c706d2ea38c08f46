"""Keeps the times of snapshots apart: those of a cut, and those that come after it."""

from __future__ import annotations

from threading import Lock


class Clock:
    """What the times of snapshots must be, for tables whose cut is one moment; Unix milliseconds throughout.

    `PreparedCommit` holds each snapshot to it, by the clock of the JVM. Threads may share it.

    Attributes:
        after: Each snapshot to come is younger.
    """

    def __init__(self) -> None:
        self.after = 0
        self._newest = 0
        self._lock = Lock()

    def begin(self, at: int) -> None:
        """Go on from the moment of a cut."""
        with self._lock:
            self.after = max(self.after, at)

    def meet(self, at: int) -> None:
        """Take note of a snapshot that the next cut may have."""
        with self._lock:
            self._newest = max(self._newest, at)

    def cut(self) -> int:
        """The moment of a cut over all snapshots so far.

        It counts before a checkpoint has it, which may be written although the answer is lost.
        """
        with self._lock:
            self.after = max(self.after, self._newest)
            return self.after
