"""Serves the page, or writes it to a file with what it shows, under a policy that lets nothing else load or run."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

from applier.errors import ConfigError
from applier.watch.page.live import Origin, live
from applier.watch.report import StatusReport
from applier.watch.server import Answer
from applier.watch.view import View

_STYLE, _SCRIPT = '<link rel="stylesheet" href="style.css">', '<script src="page.js"></script>'
_POLICY, _DATA = "<!-- policy -->", "<!-- data -->"


def answer() -> Answer:
    """The page as it is served, with its policy."""
    headers = {"Content-Security-Policy": f"{_policy(connect='self')}; frame-ancestors 'none'"}
    return Answer(_page().encode(), "text/html; charset=utf-8", headers=headers)


def history(view: View, origin: Origin) -> Answer:
    """What the page shows beside `/status.json`."""
    return Answer(_told(view, origin).encode(), "application/json")


def write(file: Path, report: StatusReport, config: str) -> None:
    """Write the page of a report to a file, complete in itself.

    Raises:
        ConfigError: The file cannot be written.
    """
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
    told = f'{{"status": {report.to_json()}, "history": {_told(view, Origin(config))}}}'
    # Without this character no text of others ends the element that holds it.
    data = told.replace("<", r"\u003c")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(connect="none")}">'
    page = _page().replace(_POLICY, policy)
    return page.replace(_DATA, f'<script type="application/json" id="data">{data}</script>')


def _told(view: View, origin: Origin) -> str:
    build = hashlib.sha256(_page().encode()).hexdigest()[:12]
    return json.dumps({"build": build, **live(view, origin)})


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
