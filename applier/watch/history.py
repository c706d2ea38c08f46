"""The last hours of a changefeed in memory, for the plots of the page: one point for every few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

POINT_SECONDS = 10
"""Time that one point stands for."""

HOURS = 6
"""Time that is kept."""

_BARS = 120
_WIDTHS = (10, 20, 30, 60, 120, 180, 300)
_COVERS = 120
"""Seconds that may pass between two points before the time between them counts as unknown."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen in `POINT_SECONDS` from a Unix time on.

    The lag is the largest, None while there was no resolved ts; the backlog is what the source had beyond the messages
    that were read, at the end.
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


@dataclass(slots=True)
class Bucket:
    """What one bar shows: the largest lag, and the rows, of some time from Unix time `at` on."""

    at: int
    lag: float | None = None
    rows: float = 0.0
    is_known: bool = False


def buckets(points: Sequence[Point], now: float) -> list[Bucket]:
    """Points gathered into at most `_BARS` bars of equal time, which end now; the first hold nothing for short runs."""
    span = min(max(600.0, now - points[0].at), HOURS * 3600.0)
    width = next((width for width in _WIDTHS if span / width <= _BARS), _WIDTHS[-1])
    end = int(now) // width * width + width
    start = end - (int(span) // width + 1) * width
    found = [Bucket(at) for at in range(start, end, width)]
    before = points[0].at - POINT_SECONDS
    for point in points:
        # A step that took longer than a point stands for what was done since the one before it.
        since = before + POINT_SECONDS if point.at - before <= _COVERS else point.at
        before = point.at
        first, last = (max(since, start) - start) // width, (point.at - start) // width
        covered = found[first : last + 1] if last >= 0 else []
        for bucket in covered:
            bucket.is_known = True
            bucket.rows += point.rows / len(covered)
            if point.lag is not None:
                bucket.lag = max(bucket.lag or 0.0, point.lag)
    return found
