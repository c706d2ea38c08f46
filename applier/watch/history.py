"""The last hours of a changefeed in memory, for the plots of the page: one point for every few seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

POINT_SECONDS = 10
"""Time that one point stands for."""

HOURS = 6
"""Time that is kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen in `POINT_SECONDS`.

    Attributes:
        at: Unix time in seconds at which it begins.
        lag: Largest lag in seconds; None while there was no resolved ts.
        rows: Row changes that were applied.
        messages: Messages that were read.
        backlog: Messages that the source had beyond them, at the end.
    """

    at: int
    lag: float | None
    rows: int
    messages: int
    backlog: int


@dataclass(slots=True)
class History:
    """Points of the last hours, the oldest first. One thread adds; a copy of `points` may go to any other."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=HOURS * 3600 // POINT_SECONDS))

    def add(self, now: float, lag: float | None, rows: int, messages: int, backlog: int) -> None:
        """Take note of a step, or of a look that found nothing; `now` is Unix time in seconds."""
        at = int(now) // POINT_SECONDS * POINT_SECONDS
        found = Point(at, lag, rows, messages, backlog)
        if not self.points or self.points[-1].at < at:
            self.points.append(found)
            return
        last = self.points[-1]
        self.points[-1] = replace(
            found,
            at=last.at,
            lag=max((value for value in (last.lag, lag) if value is not None), default=None),
            rows=last.rows + rows,
            messages=last.messages + messages,
        )
