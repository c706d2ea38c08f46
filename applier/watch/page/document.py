"""Serves the page, or writes it to a file with what it shows, under a policy that lets nothing else load or run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from applier import wording
from applier.errors import ConfigError
from applier.watch.history import POINT_SECONDS, Point, buckets
from applier.watch.report import TONES, StatusReport, View, iso
from applier.watch.server import Answer

_RATE_SECONDS = 300
_STARTING = "not known yet: the process has not read its checkpoint"


def live(view: View, config: str, started: float | None = None) -> dict[str, object]:
    """What the page shows beside the report, by name, for JSON; None is what is not known.

    Times are ISO 8601, spans are seconds. `starting` says instead of a report without a holder what is known. The
    process started at a Unix time in seconds; None for a page that a command wrote to a file.
    """
    last = view.points[-1] if view.points else None
    return {
        "version": version("applier"),
        "process": f"process {os.getpid()} on {socket.gethostname()}",
        "started": None if started is None else iso(int(started * 1000)),
        "starting": _STARTING if view.phase == "starting" else None,
        "is_behind": view.is_behind,
        "phase": view.phase,
        "outage": view.outage,
        "idle_seconds": None if last is None else max(0.0, view.now - last.at),
        "backlog": None if last is None else last.backlog,
        **_rate(view.points, view.now),
        "plot": _plot(view.points, view.now) if view.points else None,
        "tones": {"fresh": "good", "complete": "good", "ended": "good", "stale": "bad", "starting": "wait", **TONES},
        "letters_way": wording.way_past_letters(shlex.quote(config)),
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


_STYLE, _SCRIPT = '<link rel="stylesheet" href="style.css">', '<script src="page.js"></script>'
_POLICY, _DATA = "<!-- policy -->", "<!-- data -->"


def answer() -> Answer:
    """The page as it is served, with its policy."""
    headers = {"Content-Security-Policy": f"{_policy(connect='self')}; frame-ancestors 'none'"}
    return Answer(_page().encode(), "text/html; charset=utf-8", headers=headers)


def history(view: View, config: str, started: float) -> Answer:
    """What the page shows beside `/status.json`; see `live`."""
    return Answer(_told(live(view, config, started)).encode(), "application/json")


def write(file: Path, report: StatusReport, config: str) -> None:
    """Write the page of a report to a file, complete in itself; raises ConfigError where that cannot be written."""
    try:
        file.write_text(document(report, config), encoding="utf-8")
    except OSError as error:
        what = f"--page: cannot write {file}: {error.strerror or error}."
        raise ConfigError(
            [f"{what} Hint: name a file in a folder that exists and that this user may write."]
        ) from error


def document(report: StatusReport, config: str) -> str:
    """The page with a report within it; a file is not served with headers, so it holds its policy, too."""
    view = View(report, (), "", None, datetime.fromisoformat(report.now).timestamp())
    told = f'{{"status": {report.to_json()}, "history": {_told(live(view, config))}}}'
    # Without this character no text of others ends the element that holds it.
    data = told.replace("<", r"\u003c")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(connect="none")}">'
    page = _page().replace(_POLICY, policy)
    return page.replace(_DATA, f'<script type="application/json" id="data">{data}</script>')


def _told(shown: Mapping[str, object]) -> str:
    build = hashlib.sha256(_page().encode()).hexdigest()[:12]
    return json.dumps({"build": build, **shown})


@cache
def _page() -> str:
    page = _asset("page.html").replace(_STYLE, f"<style>{_asset('style.css')}</style>")
    return page.replace(_SCRIPT, f"<script>{_asset('page.js')}</script>")


@cache
def _asset(name: str) -> str:
    return files("applier.watch.page").joinpath(name).read_text(encoding="utf-8")


def _hash(name: str) -> str:
    return base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()


def _policy(connect: str) -> str:
    rules = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_hash('style.css')}'",
        "script-src": f"'sha256-{_hash('page.js')}'",
        "connect-src": f"'{connect}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())
