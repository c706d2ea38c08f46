"""The page without a browser: its policy, its data, and that no text of others can become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests
import typer

from applier import cli
from applier.config import settings
from applier.errors import ConfigError
from applier.watch.history import Point, buckets
from applier.watch.page import document
from applier.watch.page.document import answer, live, write
from applier.watch.report import StatusReport, TableProgress
from applier.watch.watching import watching
from tests.browser import views

_LIVE = ("applier.toml", views.NOW - 60)


class _Reader(HTMLParser):
    """What a browser makes of a page: its elements, and their attributes."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.feed(shown)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}


def _data(shown: str) -> Any:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def test_texts_of_others_end_no_element() -> None:
    """The report of hostile names is read as it was written, and the page has the elements of any other."""
    plain, attacked = (
        document.document(views.fresh().report, "a.toml"),
        document.document(views.hostile().report, "a.toml"),
    )
    assert _Reader(attacked).elements == _Reader(plain).elements
    assert _Reader(attacked).attributes == _Reader(plain).attributes
    assert _data(attacked)["status"] == json.loads(views.hostile().report.to_json())
    assert [table["table"] for table in _data(attacked)["status"]["tables"]] == [*views.HOSTILE]


def test_the_script_makes_no_markup_of_texts() -> None:
    """It knows no way to: elements and texts are made one by one."""
    script = document._asset("page.js")
    ways = ("HTML", "DOMParser", "Fragment", "document.write", "eval", "Function", "srcdoc")
    assert [way for way in ways if way in script] == []
    assert set(re.findall(r'\bel\("(\w+)"', script)).isdisjoint({"script", "style", "iframe", "object", "a", "img"})


def test_a_file_holds_what_status_prints() -> None:
    """And the rest as one who does not see the source knows it."""
    report = views.stale().report
    found = _data(document.document(report, "a b.toml"))
    assert found["status"] == json.loads(report.to_json())
    unknown = ("started", "outage", "idle_seconds", "backlog", "rate", "rate_seconds", "plot", "starting")
    assert [found["history"][name] for name in unknown] == [None] * len(unknown)
    assert "`applier dead-letters list -c 'a b.toml'`" in found["history"]["letters_way"]


@pytest.mark.parametrize(
    ("report", "summary"),
    [
        (views.fresh().report, "all 5 tables are true"),
        (views.report([views.table("a.b")]), "the only table is true"),
        (views.stale().report, "3 of 4 tables need a hand; the others are true"),
        (views.many().report, "3 of 1,000 tables need a hand; the others are true"),
        (views.report([views.table("a.b", because="x")]), "1 of 1 table needs a hand"),
        (
            views.report([views.table("a.b", state="dropped")]),
            "there is no table yet, and what the source sent is applied",
        ),
        (views.starting().report, "there is no table yet"),
        (replace(views.fresh().report, lag_seconds=None), "nothing of the feed is applied yet"),
        (replace(views.fresh().report, resolved=None), "all 5 tables are as step 4812 left them"),
    ],
)
def test_the_summary_says_what_the_tables_are(report: StatusReport, summary: str) -> None:
    """For the terminal and the page, and as part of the JSON."""
    assert report.summary == summary
    assert json.loads(report.to_json())["summary"] == summary


def test_a_report_tells_reasons_from_their_ways_out() -> None:
    """A name may hold the word that stands between both."""
    table = views.table("a. Hint: b", state="parked", because="Table a. Hint: b is parked.", way_out="run `x`.")
    found = json.loads(views.report([table]).to_json())
    assert found["reasons"] == [{"because": table.because, "way_out": "run `x`.", "table": "a. Hint: b"}]
    assert found["stale"] == ["Table a. Hint: b is parked. Hint: run `x`."]


def test_a_table_that_needs_a_hand_comes_before_one_that_is_only_not_in_step() -> None:
    """On the page as in `status`, and whatever its state is called."""
    found = [TableProgress(state, state, state) for state in ("in step", "empty", "parked", "expired", "incomplete")]
    rolled_back = TableProgress("rolled back", "x", "rolled back", because="It shows an old snapshot.")
    tables = json.loads(views.report([*found, rolled_back]).to_json())["tables"]

    assert [table["urgency"] for table in tables] == [0, 1, 2, 1, 2, 2]


def _point(at: int, lag: float | None = 1.0, rows: int = 100) -> Point:
    return Point(at, lag, rows, rows, 0)


def test_points_become_bars_and_gaps() -> None:
    """No row is lost, a long step covers the time since the one before it, and a longer silence is a gap."""
    points = [_point(at) for at in range(1000, 1100, 10)] + [_point(1160, 7.0, 600)] + [_point(1500)]
    found = buckets(points, 1509.0)
    assert sum(bucket.rows for bucket in found) == pytest.approx(1700)
    known = {bucket.at: bucket for bucket in found if bucket.is_known}
    assert [known[at].rows for at in range(1100, 1170, 10)] == pytest.approx([600 / 7] * 7)
    assert {known[at].lag for at in range(1100, 1170, 10)} == {7.0}
    assert not any(1170 <= at < 1500 for at in known)


@pytest.mark.parametrize("seconds", [1, 600, 3600, 6 * 3600, 9 * 3600])
def test_bars_fit_whatever_the_time(seconds: int) -> None:
    """At most about 120 of them, of a round time, which end now."""
    now = 1_795_608_018.0
    points = [_point(at) for at in range(int(now - seconds) // 10 * 10, int(now), 10)]
    found = buckets(points, now)
    assert 2 <= len(found) <= 122
    assert found[-1].at <= now < found[-1].at + found[1].at - found[0].at
    assert found[-1].is_known


def test_what_is_not_known_is_none() -> None:
    """Neither a rate nor a lag is 0 because nothing was seen."""
    starting = live(views.starting(), *_LIVE)
    assert (starting["starting"], starting["plot"]) == ("not known yet: the process has not read its checkpoint", None)
    assert (starting["rate"], starting["rate_seconds"], starting["backlog"]) == (None, None, None)
    old = live(replace(views.fresh(), points=[_point(int(views.NOW) - 900)]), *_LIVE)
    assert (old["rate"], old["rate_seconds"]) == (None, 300)
    plot = live(replace(views.fresh(), points=[_point(int(views.NOW) - 5, None, 0)]), *_LIVE)["plot"]
    assert isinstance(plot, dict)
    assert (plot["most_lag"], plot["most_rate"], plot["has_gaps"]) == (None, 0.0, True)
    assert [bar[1:] for bar in plot["bars"][:2]] == [(None, None)] * 2


def test_a_rate_is_that_of_the_time_since_the_first_point() -> None:
    """Also of a process that has just begun."""
    young = live(replace(views.fresh(), points=[_point(int(views.NOW) - 6, rows=266)]), *_LIVE)
    assert (young["rate"], young["rate_seconds"], young["idle_seconds"]) == (26.6, 10, 6.0)


def test_a_policy_lets_nothing_run_but_the_page_itself() -> None:
    """Its hashes are those of the one style and the one script of the page; a file has it within."""
    sent = answer()
    policy = sent.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith("base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    for name in ("style", "script"):
        content = re.findall(f"<{name}>(.*?)</{name}>", sent.body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert (len(content), f"{name}-src 'sha256-{digest}'" in policy) == (1, True)
    assert "http-equiv" not in sent.body.decode()
    written = document.document(views.fresh().report, "my.toml")
    within = policy.removesuffix("; frame-ancestors 'none'").replace("connect-src 'self'", "connect-src 'none'")
    assert f'<meta http-equiv="Content-Security-Policy" content="{within}">' in written


def test_status_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what it prints, and with its exit code; here of a changefeed that never ran."""
    config, file = tmp_path / "my.toml", tmp_path / "page.html"
    config.write_text(f"""
[changefeed]
name = "shop"
protocol = "simple"
[source]
archive = "topic"
[catalog]
name = "lake"
type = "jdbc"
uri = "jdbc:sqlite:{tmp_path}/catalog.db"
warehouse = "{tmp_path}/tables"
""")
    with pytest.raises(typer.Exit) as ended:
        cli.status(config, page=file)
    assert ended.value.exit_code == 1
    assert "stale" in capsys.readouterr().out
    assert _data(file.read_text("utf-8"))["status"]["stale"][0].startswith("This lake has no record of changefeed shop")


def test_a_process_serves_what_its_page_asks_for(tmp_path: Path) -> None:
    """Before its checkpoint is read, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    catalog = {"name": "lake", "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": str(tmp_path)}
    feed, source = {"name": "shop", "protocol": "simple"}, {"archive": "topic"}
    config = settings.parse({"changefeed": feed, "source": source, "catalog": catalog, "http": {"port": port}})
    asked = re.findall(r'get\("([\w.]+)"\)', document._asset("page.js"))
    assert len(asked) == 2
    with watching(config):
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=10).text.startswith("<!DOCTYPE html>")
        found = [requests.get(f"http://127.0.0.1:{port}/{name}", timeout=10).json() for name in asked]
    assert found[0]["changefeed"] == "shop"
    assert found[1]["starting"] == "not known yet: the process has not read its checkpoint"


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With a way out."""
    file = tmp_path / "none" / "page.html"
    with pytest.raises(
        ConfigError, match="cannot write .*none/page.html: No such file or directory. Hint: name a file"
    ):
        write(file, StatusReport("shop", 300.0, "2026-11-25T12:00:18.000+00:00"), "my.toml")


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart(scheme: int) -> None:
    """By WCAG AA: 4.5 to 1 for text, and more for the sentences of the verdict."""
    found = re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", document._asset("style.css").partition("@media print")[0])
    names = [name for name, _ in found]
    half = names.index("page", 1)
    colours = dict(found[half:] if scheme else found[:half])

    def contrast(one: str, other: str) -> float:
        darker, lighter = sorted(_luminance(colours[name]) for name in (one, other))
        return (lighter + 0.05) / (darker + 0.05)

    for name in ("ink", "soft", "accent", "good", "bad", "wait"):
        for ground in ("page", "panel"):
            assert contrast(name, ground) >= 4.5, (name, ground)
    for name in ("good", "bad", "wait"):
        assert contrast(name, f"{name}-page") >= 4.5, name
        assert contrast("ink", f"{name}-page") >= 7, name
