"""The page without a browser: its sentences, its figures, and that no text of others becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer

from applier import cli
from applier.errors import ConfigError
from applier.watch.history import Point
from applier.watch.page import document as page
from applier.watch.page.document import Origin, answer, document, write
from applier.watch.page.html import copyable, moment, tag, text
from applier.watch.page.plots import buckets, history, steps
from applier.watch.page.verdict import verdict_of
from applier.watch.report import StatusReport, TableProgress
from applier.watch.view import View
from tests.browser import views

_LIVE = Origin("applier.toml", views.NOW - 60)


class _Reader(HTMLParser):
    """What a browser makes of a page: its elements, their attributes, and its texts."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(shown)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def _text(view: View) -> str:
    return _Reader(document(view, _LIVE)).text


def test_texts_of_others_become_no_markup() -> None:
    """Names, statements and messages are shown with each hidden or turning character written out."""
    plain, attacked = _Reader(document(views.stale(), _LIVE)), _Reader(document(views.hostile(), _LIVE))
    assert set(attacked.elements) <= set(plain.elements) | {"details"}
    assert attacked.elements.count("script") == 1
    assert attacked.attributes <= plain.attributes
    assert not {name for name in attacked.attributes if name.startswith("on") or name in ("style", "src")}
    shown = document(views.hostile(), _LIVE)
    assert {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}
    assert "shop.\\u202egpj.exe" in shown
    assert "shop.\\x1b[2J" in shown


def test_elements_escape_by_construction() -> None:
    """A text within an element or an attribute cannot leave it."""
    assert tag("p", "<b>", tag("i", "&"), None, ["x", "y"], title='"<', hidden=True, lang=None) == (
        '<p title="&quot;&lt;" hidden>&lt;b&gt;<i>&amp;</i>xy</p>'
    )
    assert text("\u202e") == "\\u202e"


@pytest.mark.parametrize(
    ("view", "word", "sentence"),
    [
        (views.fresh(), "Fresh", "All 5 tables are true as of 2026-11-25 12:00:17 UTC, 0.7 s ago."),
        (views.stale(), "Stale", "1 of 4 tables is true as of 2026-11-25 11:53:26 UTC, 7 min ago."),
        (views.many(), "Stale", "997 of 1,000 tables are true as of"),
        (views.starting(), "Starting", "Not known yet: the process has not read its checkpoint."),
        (replace(views.starting(), phase=""), "Stale", "Changefeed shop has never run: there is no checkpoint."),
        (
            replace(views.fresh(), report=replace(views.fresh().report, resolved=None, resolved_ts=None)),
            "Fresh",
            "All 5 tables are true, by the last sign of life 0.7 s ago; the feed carries no resolved ts.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(view: View, word: str, sentence: str) -> None:
    """It says what is true, and as of when."""
    assert verdict_of(view).word == word
    assert sentence in _text(view)


def test_a_page_shows_every_reason_with_its_way_out() -> None:
    """As commands that can be copied, of which the signs of the sentence are no part."""
    shown = document(views.stale(), _LIVE)
    assert "Kafka at broker-1:9092 does not answer: connection refused. Nothing was applied for 7 min." in _text(
        views.stale()
    )
    commands = re.findall(r'<span class="copied"><code>([^<]+)</code>', shown)
    assert "applier resume -c applier.toml --tables &#x27;shop.orders&#x27;" in commands
    assert "tiup dumpling -o DIR" in commands
    assert "applier backfill -c applier.toml --dead-letters" in commands
    never = document(replace(views.starting(), phase=""), _LIVE)
    assert 'Start <span class="copied"><code>applier run -c applier.toml</code>' in never


def test_a_name_in_quotes_ends_no_command() -> None:
    """A table may be called like a command, and a filter rule holds backticks of its own."""
    way_out = "run `applier resume -c x --tables '`a b`.`c`'`; or leave it out with '!x`evil`.y' in tables.include."
    table = views.table("a b.c", state="parked", because="Table a b.c is parked: x.", way_out=way_out)
    shown = document(View(views.report([table]), (), "running", None, views.NOW), _LIVE)
    commands = re.findall(r'<span class="copied"><code>([^<]+)</code>', shown)
    assert commands == ["applier resume -c x --tables &#x27;`a b`.`c`&#x27;"]


def test_a_name_in_backticks_is_part_of_its_command() -> None:
    """Spark SQL quotes names that way."""
    table = views.table(
        "a.b", state="rolled back", because="x.", way_out="set it again with `CALL `my-lake`.system.f(1)`."
    )
    shown = document(View(views.report([table]), (), "running", None, views.NOW), _LIVE)
    assert "<code>CALL `my-lake`.system.f(1)</code>" in shown


def test_unknown_is_no_zero() -> None:
    """Neither before the checkpoint is read, nor in a file, whose writer does not see the source."""
    starting = _text(views.starting())
    assert "No message was set aside" not in starting
    assert "Dead letters" not in starting
    written = _text(replace(views.fresh(), points=()))
    assert "Backlog0messages that step 4,812 left" in written
    assert "Rows a secondunknownknown to a running process alone" in written
    assert "There is no plot" in written
    assert moment(None) == '<span class="soft">unknown</span>'
    shown = document(View(views.report([TableProgress("a.b", "a.b", "empty")]), (), "", None, views.NOW), _LIVE)
    assert '<td class="n"></td><td class="n"></td>' in shown


def test_an_old_backlog_is_not_shown_as_that_of_now() -> None:
    """The last look at the source may be long ago."""
    assert "messages to be read" in _text(views.fresh())
    assert "messages, 7 min ago" in _text(views.stale())


def test_tables_that_are_not_in_step_come_first() -> None:
    """Of a thousand; and of more than can be shown, those that are left out are counted."""
    names = re.findall(r'<tr data-key="(shop\.t\d+)">', document(views.many(), _LIVE))
    assert names[:4] == ["shop.t0500", "shop.t0700", "shop.t0900", "shop.t0000"]
    assert len(names) == 1000
    assert "100 further tables that are in step are left out; /status.json has all." in _text(views.many(2100))


def test_a_table_that_needs_a_hand_comes_before_one_that_is_only_not_in_step() -> None:
    """On the page as in `status`, and whatever its state is called."""
    found = [TableProgress(state, state, state) for state in ("in step", "empty", "parked", "expired", "incomplete")]
    rolled_back = TableProgress("rolled back", "x", "rolled back", because="It shows an old snapshot.")

    assert [table.urgency for table in (*found, rolled_back)] == [0, 1, 2, 1, 2, 2]


def test_what_is_still_to_be_read_is_not_shown_as_none() -> None:
    """A table is parked by a DDL that the list does not have yet."""
    report = replace(views.report([]), schema_changes=(), schema_change_count=0)
    behind = View(report, (), "running", None, views.NOW, is_behind=True)
    assert _text(behind).count("What the last step recorded is being read.") == 2
    assert "No DDL has been decided on yet." not in _text(behind)
    assert "No message was set aside." not in _text(behind)
    assert "No DDL has been decided on yet." in _text(replace(behind, is_behind=False))
    assert "what the last step recorded is being read" in _text(replace(views.stale(), is_behind=True))


def test_words_fit_their_numbers() -> None:
    """And nothing is said twice, or in two ways."""
    one = replace(views.fresh().report, dead_letter_count=1)
    assert "message was set aside" in _text(replace(views.fresh(), report=one))
    assert "1 messages" not in _text(replace(views.fresh(), report=one))
    assert _text(views.starting()).count("Starting") == 2, "the title, and the verdict"
    young = replace(views.fresh(), points=[_point(int(views.NOW) - 6, rows=266)])
    assert "26.6over the last 10 s" in _text(young)
    assert "266 rows were applied in the last 10 s" in _text(young)


def test_many_reasons_are_folded() -> None:
    """Ten are read at a glance, and no page has ten thousand."""
    tables = [
        views.table(
            f"a.t{at}", state="parked", because=f"Table a.t{at} is parked: x{at}.", way_out="run `applier resume`."
        )
        for at in range(300)
    ]
    view = View(views.report(tables), (), "running", None, views.NOW)
    assert "290 further reasons" in _text(view)
    assert "100 further reasons are in /status.json." in _text(view)


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


def test_plots_say_in_words_what_they_show() -> None:
    """For those who do not see them, too."""
    shown = _Reader(history(views.fresh().points, views.NOW, 0.7)).text
    assert "The tables are 0.7 s behind; at most, they were 12 s in the last 3 h." in shown
    assert "Where the plot is empty, nothing is known." in shown
    late = history([_point(int(views.NOW) - 5, 400_000.0)], views.NOW, 400_000.0)
    assert re.findall(r'class="tick end">([^<]+)', late)[:4] == ["0 s", "2 days", "4 days", "6 days"]
    assert "No lag is known" in _Reader(history([_point(int(views.NOW) - 5, None, 0)], views.NOW, None)).text
    shown = _Reader(steps(views.steps())).text
    assert "Apply takes 70% of the steps' time: commits of rows" in _text(views.fresh())
    assert "The last 20 steps took 18.1 s; step 4800 was the longest with 1.18 s." in shown
    assert "apply 70%" in shown
    assert "No step is known with its times." in _Reader(steps([replace(views.steps()[0], seconds={})])).text


def test_a_policy_lets_nothing_run_but_the_page_itself() -> None:
    """Its hashes are those of the one style and the one script of the page."""
    sent = answer(views.fresh(), _LIVE)
    policy = sent.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith("base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    for name in ("style", "script"):
        content = re.findall(f"<{name}>(.*?)</{name}>", sent.body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert (len(content), f"{name}-src 'sha256-{digest}'" in policy) == (1, True)
    assert "http-equiv" not in sent.body.decode().replace('http-equiv="refresh"', "")


def test_a_page_is_written_to_a_file(tmp_path: Path) -> None:
    """It is whole in itself, has its policy within, and does not ask for a newer one."""
    file = tmp_path / "a page.html"
    write(file, views.fresh().report, "my.toml")
    shown = file.read_text("utf-8")
    assert '<meta http-equiv="Content-Security-Policy" content="default-src' in shown
    assert "data-live" not in re.sub(r"<script>.*</script>", "", shown, flags=re.DOTALL)
    assert "refresh" not in re.sub(r"<script>.*</script>", "", shown, flags=re.DOTALL)


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
    assert "Changefeed shop has never run: there is no checkpoint." in _Reader(file.read_text("utf-8")).text


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With a way out."""
    file = tmp_path / "none" / "page.html"
    with pytest.raises(
        ConfigError, match="cannot write .*none/page.html: No such file or directory. Hint: name a file"
    ):
        write(file, StatusReport("shop", 300.0, "2026-11-25T12:00:18.000+00:00"), "my.toml")


def test_hidden_characters_are_copied_as_they_are_shown() -> None:
    """What a terminal would obey must not get there by way of the clipboard."""
    assert "<code>applier \\x1b[2J</code>" in copyable("applier \x1b[2J")
    assert "<code>a\nb\\x07</code>" in copyable("a\nb\x07", kept=True)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart(scheme: int) -> None:
    """By WCAG AA: 4.5 to 1 for text, and more for the sentences of the verdict."""
    found = re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", page._asset("style.css").partition("@media print")[0])
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
