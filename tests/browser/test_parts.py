"""The parts of the page in a real browser: every member of a report is shown, as text, and nothing unknown as 0."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from applier.watch.history import Point
from applier.watch.page.document import write
from applier.watch.report import StatusReport, TableProgress, View
from applier.ways_out import WaysOut
from tests.browser import views
from tests.browser.conftest import Site, complaints, requests, size, visit

_RECENT = Point(int(views.NOW) - 6, 1.0, 266, 266, 0)


def _text(browser: Chrome, site: Site, view: View) -> str:
    site.view = view
    visit(browser, site.address)
    return str(browser.execute_script("return document.title + ' ' + document.getElementById('main').textContent"))


def _commands(browser: Chrome) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('span.copied code')].map((code) => code.textContent)"
    )
    return found


def _of(report: StatusReport) -> View:
    return View(report, (), "running", None, views.NOW)


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (views.fresh(), "FreshAll 5 tables are true as of 2026-11-25 12:00:17 UTC, 0.7 s ago."),
        (
            views.stale(),
            "Stale3 of 4 tables need a hand; the others are true as of 2026-11-25 11:53:26 UTC, 7 min ago.",
        ),
        (views.starting(), "StartingNot known yet: the process has not read its checkpoint."),
        (
            _of(replace(views.fresh().report, pace="complete")),
            "CompleteAll 5 tables are true as of 2026-11-25 12:00:17 UTC, 0.7 s ago.",
        ),
        (
            _of(replace(views.report([views.table("a.b")], lag=0.7), pace="catching up", lag_seconds=7200.0)),
            "Catching upThe only table is true as of 2026-11-25 12:00:17 UTC, 2 h ago.",
        ),
        (replace(views.starting(), phase=""), "Changefeed shop has never run: there is no checkpoint.Start "),
        (
            _of(replace(views.fresh().report, resolved=None, resolved_ts=None)),
            "FreshAll 5 tables are as step 4812 left them, 0.7 s ago.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(view: View, sentence: str, browser: Chrome, site: Site) -> None:
    """It says what is true, and as of when; before the checkpoint is read no list says that there is nothing."""
    shown = _text(browser, site, view)
    assert sentence in shown
    assert ("Dead letters" in shown) == (view.report.holder is not None)


def test_every_member_is_shown(browser: Chrome, site: Site) -> None:
    """Numbers in full, and each reason with its way out as commands, of which the signs of the sentence are no part."""
    view = views.stale()
    shown = _text(browser, site, view)
    report = view.report
    assert all(one.because in shown for one in report.stale)
    assert all(str(note) in shown for note in report.notes)
    assert all(one.table in shown and one.state in shown for one in report.tables)
    assert all(one.sql in shown for one in report.schema_changes if len(one.sql) < 120)
    assert all(one.error in shown for one in report.dead_letters)
    assert all(query in shown for query in report.cut)
    assert all(f"{one.next_offset:,}" in shown for one in report.partitions)
    assert report.holder is not None
    assert f"resolved ts {report.resolved_ts}, " in shown, "more digits than a number of JavaScript has"
    assert f"Holder{report.holder.name}Epoch12" in shown
    assert report.explanation is not None
    assert report.explanation in shown
    assert "Kafka at broker-1:9092 does not answer: connection refused. Nothing was applied for 7 min." in shown
    assert "messages, 7 min ago" in shown
    commands = _commands(browser)
    assert "applier resume -c applier.toml --tables 'shop.orders'" in commands
    assert "tiup dumpling --params 'time_zone=+00:00' -o DIR" in commands
    assert commands[-2:] == [
        "applier dead-letters list -c applier.toml",
        "applier backfill -c applier.toml --dead-letters",
    ]


def test_a_name_in_quotes_ends_no_command(browser: Chrome, site: Site) -> None:
    """A table may be called like a command; a filter rule, and Spark SQL, hold backticks of their own."""
    ways = {
        "a b.c": "run `applier resume -c x --tables '`a b`.`c`'`; or leave it out with '!x`evil`.y' in tables.include.",
        "a.b": "set it again with `CALL `my-lake`.system.f(1)`.",
    }
    tables = [
        views.table(name, state="parked", because="It is `no command`.", way_out=way) for name, way in ways.items()
    ]
    _text(browser, site, _of(views.report(tables)))
    assert _commands(browser) == ["applier resume -c x --tables '`a b`.`c`'", "CALL `my-lake`.system.f(1)"]


def test_texts_of_others_stay_texts(browser: Chrome, site: Site) -> None:
    """Names, statements and messages make no element, and each hidden or turning character is written out."""
    elements = "return [...new Set([...document.querySelectorAll('*')].map((node) => node.localName))]"
    attributes = "return [...new Set([...document.querySelectorAll('*')].flatMap((node) => node.getAttributeNames()))]"
    everything = """
      const page = document.documentElement.cloneNode(true);
      page.querySelectorAll('script, style').forEach((node) => node.remove());
      return page.outerHTML"""
    found = []
    for view in (views.stale(), views.hostile()):
        _text(browser, site, view)
        found.append((set(browser.execute_script(elements)), set(browser.execute_script(attributes))))
    assert found[1][0] <= found[0][0] | {"details"}
    assert found[1][1] <= found[0][1]
    shown = browser.execute_script(everything)
    assert {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}
    assert "shop.\\u202egpj.exe" in shown
    assert "shop.\\x1b[2J" in shown
    assert "applier resume 'shop.\\x1b[2J\\x07x'" in _commands(browser)


def test_unknown_is_no_zero(browser: Chrome, site: Site) -> None:
    """Neither in what only the process knows, nor of a table without a snapshot, nor of what is still to be read."""
    shown = _text(browser, site, replace(views.fresh(), points=()))
    assert "Backlog0messages that step 4,812 left" in shown
    assert "Rows a secondunknownknown to a running process alone" in shown
    assert "There is no plot" in shown
    report = replace(views.report([TableProgress("a.b", "a.b", "empty")]), schema_changes=(), schema_change_count=0)
    report = replace(report, steps=(replace(report.steps[0], seconds={}),))
    behind = _text(browser, site, replace(_of(report), is_behind=True))
    assert behind.count("What the last step recorded is being read.") == 2
    assert "Dead lettersunknown" in behind
    assert "set aside." not in behind
    assert "No step is known with its times." in behind
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#tables td.n')].map((cell) => cell.textContent)"
    )
    assert cells == ["", "", ""]
    shown = _text(browser, site, replace(views.stale(), is_behind=True))
    assert "what the last step recorded is being read" in shown


def test_tables_that_need_a_hand_come_first(browser: Chrome, site: Site) -> None:
    """Of thousands; and of more than can be shown, those that are left out are counted, of reasons as well."""
    shown = _text(browser, site, views.many(2100))
    names = browser.execute_script(
        "return [...document.querySelectorAll('#tables tbody th')].map((it) => it.textContent)"
    )
    assert names[:4] == ["shop.t1050", "shop.t1470", "shop.t1890", "shop.t0000"]
    assert len(names) == 2000
    assert "100 further tables that are in step are left out; /status.json has all." in shown
    tables = [views.table(f"a.t{at}", state="parked", because=f"x{at}.", way_out="run `y`.") for at in range(300)]
    shown = _text(browser, site, _of(views.report(tables)))
    assert "290 further reasons" in shown
    assert "100 further reasons are in /status.json." in shown


def test_dropped_tables_are_shown_with_what_becomes_of_them(browser: Chrome, site: Site) -> None:
    """Figures that are not known are left empty, no section says that there are none, and what is unknown is said."""
    shown = _text(browser, site, views.stale())
    assert "Dropped tables2 kept" in shown
    assert "shop.stock shop.stock_dropped_470606913415151618" in shown
    assert "ALTER TABLE lake.shop.ratings RENAME TO shop.NAME" in shown
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#dropped td.n')].map((cell) => cell.textContent)"
    )
    assert cells == [""] * 4
    strange = replace(views.dropped("shop.x", "shop.x"), way_out=WaysOut.of_dropped("`my-lake`", "shop", "`it's`"))
    _text(browser, site, _of(replace(views.fresh().report, dropped=(strange,))))
    commands = browser.execute_script(
        "return [...document.querySelectorAll('#dropped code')].map((it) => it.textContent)"
    )
    assert commands == [
        "ALTER TABLE `my-lake`.shop.`it's` RENAME TO shop.NAME",
        "DROP TABLE `my-lake`.shop.`it's` PURGE",
    ]
    assert "Dropped tables" not in _text(browser, site, views.fresh())
    unknown = _text(browser, site, _of(replace(views.fresh().report, dropped=None)))
    assert "Which dropped tables are kept is not known: the catalog did not list its tables." in unknown


def test_plots_say_in_words_what_they_show(browser: Chrome, site: Site) -> None:
    """For those who do not see them, too; and words fit their numbers."""
    shown = _text(browser, site, views.fresh())
    assert "The tables are 0.7 s behind; at most, they were 12 s in the last 3 h." in shown
    assert "Where the plot is empty, nothing is known." in shown
    assert "messages to be read" in shown
    assert "The last 20 steps took 18.1 s; step 4800 was the longest with 1.18 s." in shown
    assert "apply 70%" in shown
    one = replace(views.fresh().report, dead_letter_count=1)
    shown = _text(browser, site, replace(views.fresh(), report=one, points=[_RECENT]))
    assert "1message was set aside" in shown
    assert "26.6over the last 10 s" in shown
    assert "266 rows were applied in the last 10 s" in shown
    late = replace(views.fresh().report, lag_seconds=400_000.0)
    _text(browser, site, replace(views.fresh(), report=late, points=[replace(_RECENT, lag=400_000.0)]))
    marks = browser.execute_script("return [...document.querySelectorAll('.axis .end')].map((it) => it.textContent)")
    assert marks[:4] == ["0 s", "2 days", "4 days", "6 days"]
    assert "No lag is known" in _text(
        browser, site, replace(views.fresh(), points=[replace(_RECENT, lag=None, rows=0)])
    )


@pytest.mark.parametrize("name", ["fresh", "hostile"])
def test_a_file_is_whole_in_itself(name: str, browser: Chrome, tmp_path: Path) -> None:
    """`--page` needs no server: it asks for nothing, and its policy lets its own script run, and no other."""
    file = tmp_path / "page.html"
    write(file, {"fresh": views.fresh, "hostile": views.hostile}[name]().report, "my.toml")
    requests(browser)
    complaints(browser)
    size(browser, 360)
    visit(browser, file.as_uri())
    assert browser.title.endswith(" · applier")
    assert "Written at 2026-11-25 12:00:18 UTC" in browser.find_element("id", "top").text
    assert "written by applier status" in browser.find_element("id", "foot").text
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert complaints(browser) == []
    assert requests(browser) == [file.as_uri()]


def test_a_long_name_breaks_between_its_words(browser: Chrome, site: Site) -> None:
    """Also on a phone: every break is behind a dot or an underscore."""
    size(browser, 360)
    name = "warehouse_management.customer_order_positions_with_discounts"
    _text(browser, site, _of(views.report([views.table(name)])))
    tops = browser.execute_script("""
      const heading = document.querySelector('#tables tbody th'), found = [];
      const walker = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
      for (let node; (node = walker.nextNode());) for (let at = 0; at < node.length; at += 1) {
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + 1);
        found.push([node.data[at], Math.round(range.getBoundingClientRect().top)]);
      }
      return found""")
    assert "".join(char for char, _ in tops) == name
    breaks = [before for (before, above), (_, below) in pairwise(tops) if above != below]
    assert breaks
    assert set(breaks) <= {".", "_"}


def test_a_parked_table_and_one_that_catches_up_have_signs_of_their_own(browser: Chrome, site: Site) -> None:
    """The one waits for a person, the other for time."""
    tables = [views.table(f"a.t{at}", state=state) for at, state in enumerate(("parked", "catching up", "in step"))]
    _text(browser, site, _of(views.report(tables)))
    signs = browser.execute_script("""
      const badges = [...document.querySelectorAll('.badge')].slice(0, 3);
      return badges.map((badge) => getComputedStyle(badge, '::before').content)""")
    assert len(set(signs)) == 3
