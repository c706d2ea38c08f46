"""Puts the page together, with the headers that keep it from loading or running anything else."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from applier.errors import ConfigError
from applier.watch.page import parts, plots
from applier.watch.page.html import Html, moment, tag, text
from applier.watch.page.verdict import head, verdict_of
from applier.watch.report import HolderReport, StatusReport, iso
from applier.watch.server import Answer
from applier.watch.view import View

_RELOAD_SECONDS = 10

_ICONS = {
    "good": ("#18794e", '<path d="M4.5 8.5l2.5 2.500 4.500-5.500" fill="none" stroke="#fff" stroke-width="2"/>'),
    "bad": ("#b42318", '<path d="M8 3.500v5.500M8 11v2" stroke="#fff" stroke-width="2"/>'),
    "wait": ("#8a5a00", '<path d="M3.500 8h2M7 8h2M10.500 8h2" stroke="#fff" stroke-width="2"/>'),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Who made the page.

    Attributes:
        config: Path of the configuration, for commands.
        started: Unix time in seconds at which the process started; None for a page that a command wrote to a file.
    """

    config: str
    started: float | None = None


def answer(view: View, origin: Origin) -> Answer:
    """The page as it is served, with its policy."""
    headers = {"Content-Security-Policy": f"{_policy()}; frame-ancestors 'none'"}
    return Answer(document(view, origin).encode(), "text/html; charset=utf-8", headers=headers)


def write(file: Path, report: StatusReport, config: str) -> None:
    """Write the page of a report to a file, complete in itself.

    Raises:
        ConfigError: The file cannot be written.
    """
    view = View(report, (), "", None, datetime.fromisoformat(report.now).timestamp())
    try:
        file.write_text(document(view, Origin(config)), encoding="utf-8")
    except OSError as error:
        what = f"--page: cannot write {file}: {error.strerror or error}."
        raise ConfigError(
            [f"{what} Hint: name a file in a folder that exists and that this user may write."]
        ) from error


def document(view: View, origin: Origin) -> Html:
    """The whole page."""
    return Html(f"<!DOCTYPE html>\n{tag('html', _head(view, origin), _body(view, origin), lang='en')}\n")


def _head(view: View, origin: Origin) -> Html:
    verdict, name = verdict_of(view), view.report.changefeed
    colour, sign = _ICONS[verdict.tone]
    icon = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="8" fill="{colour}"/>'
    again = tag("noscript", tag("meta", http_equiv="refresh", content=_RELOAD_SECONDS))
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        # A file is not served with headers.
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()) if origin.started is None else None,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{verdict.word} · {name} · applier"),
        tag("link", rel="icon", id="icon", href=f"data:image/svg+xml,{quote(f'{icon}{sign}</svg>')}"),
        again if origin.started is not None else None,
        tag("style", Html(_asset("style.css"))),
    )


def _body(view: View, origin: Origin) -> Html:
    report = view.report
    at = iso(int(view.now * 1000))
    title = tag("h1", tag("span", "applier", class_="mark"), tag("span", report.changefeed, class_="name"))
    kind = "Seen at " if origin.started is not None else "Written at "
    banner = tag("header", title, tag("p", kind, moment(at), " UTC", class_="soft", id="seen"), id="top")
    # Before the checkpoint is read, an empty list would say that there is nothing.
    rest = None if report.holder is None else _details(view, report.holder, origin)
    main = tag("main", head(view), rest, id="main", tabindex="-1")
    return tag(
        "body",
        tag("a", "Skip to the verdict", href="#main", class_="skip"),
        tag("p", id="away", class_="away", role="alert", hidden=True),
        banner,
        main,
        _footer(origin),
        tag("p", id="said", role="status", class_="unseen"),
        tag("script", Html(_asset("page.js"))),
        data_live=origin.started is not None,
        data_build=_hash("page.js")[:12] + _hash("style.css")[:12],
        data_changefeed=report.changefeed,
    )


def _details(view: View, holder: HolderReport, origin: Origin) -> Html:
    report = view.report
    return text(
        plots.history(view.points, view.now, report.lag_seconds),
        parts.tables(report),
        plots.steps(report.steps),
        parts.schema_changes(report, is_behind=view.is_behind),
        parts.dead_letters(report, origin.config, is_behind=view.is_behind),
        tag("div", parts.lease(report, holder), parts.partitions(report), id="pair", class_="pair"),
        parts.cut(report),
    )


def _footer(origin: Origin) -> Html:
    made = [f"applier {version('applier')}", f"process {os.getpid()} on {socket.gethostname()}"]
    if origin.started is None:
        said = text("written by ", tag("code", "applier status"), " from the catalog; it does not change")
    else:
        said = text("started ", moment(iso(int(origin.started * 1000))), " UTC")
    return tag("footer", tag("p", " · ".join(made), " · ", said), id="foot")


@cache
def _asset(name: str) -> str:
    return files("applier.watch.page").joinpath(name).read_text(encoding="utf-8")


@cache
def _hash(name: str) -> str:
    return base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()


@cache
def _policy() -> str:
    rules = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_hash('style.css')}'",
        "script-src": f"'sha256-{_hash('page.js')}'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())
