"""What the page shows beside the report: the last hours, and what the process does now."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from applier import wording
from applier.watch.history import POINT_SECONDS, Point, buckets
from applier.watch.report import TONES, iso
from applier.watch.view import View

_RATE_SECONDS = 300
_STARTING = "not known yet: the process has not read its checkpoint"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who shows the page.

    Attributes:
        config: Path of the configuration, for commands.
        started: Unix time in seconds at which the process started; None for a page that a command wrote to a file.
    """

    config: str
    started: float | None = None


def live(view: View, origin: Origin) -> dict[str, object]:
    """Values by name, for JSON; None is what is not known. Times are ISO 8601, spans are seconds.

    `starting` says instead of a report without a holder what is known.
    """
    last = view.points[-1] if view.points else None
    return {
        "version": version("applier"),
        "process": f"process {os.getpid()} on {socket.gethostname()}",
        "started": None if origin.started is None else iso(int(origin.started * 1000)),
        "starting": _STARTING if view.phase == "starting" else None,
        "is_behind": view.is_behind,
        "phase": view.phase,
        "outage": view.outage,
        "idle_seconds": None if last is None else max(0.0, view.now - last.at),
        "backlog": None if last is None else last.backlog,
        **_rate(view.points, view.now),
        "plot": _plot(view.points, view.now) if view.points else None,
        "tones": {"fresh": "good", "complete": "good", "ended": "good", "stale": "bad", "starting": "wait", **TONES},
        "letters_way": wording.way_past_letters(shlex.quote(origin.config)),
    }


def _rate(points: Sequence[Point], now: float) -> Mapping[str, float | None]:
    """Rows a second of late, and the time over which; that without a rate where nothing is known of late."""
    recent = [point for point in points if point.at > now - _RATE_SECONDS]
    if not recent:
        return {"rate": None, "rate_seconds": _RATE_SECONDS if points else None}
    # A point stands for the seconds before it.
    seconds = max(POINT_SECONDS, now - recent[0].at)
    return {"rate": sum(point.rows for point in recent) / seconds, "rate_seconds": seconds}


def _plot(points: Sequence[Point], now: float) -> Mapping[str, object]:
    """Bars of `width` seconds, each with its beginning, largest lag and rows a second; they cover `seconds` in all."""
    found = buckets(points, now)
    width = found[1].at - found[0].at
    # The last bar is of a time that is not over.
    rates = [bucket.rows / max(10, min(width, now - bucket.at)) if bucket.is_known else None for bucket in found]
    return {
        "width": width,
        "bars": [(bucket.at, bucket.lag, rate) for bucket, rate in zip(found, rates, strict=True)],
        "seconds": max(POINT_SECONDS, now - points[0].at),
        "most_lag": max((bucket.lag for bucket in found if bucket.lag is not None), default=None),
        "most_rate": max(rate or 0.0 for rate in rates),
        "rows": sum(point.rows for point in points),
        "has_gaps": not all(bucket.is_known for bucket in found),
    }
