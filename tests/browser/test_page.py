"""The page in a real browser: what it shows, what it asks for, and how it stays up to date."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from applier.watch.report import View
from tests.browser import views
from tests.browser.conftest import Site, complaints, picture, requests, size, visit

_VIEWS = {
    "fresh": views.fresh(),
    "stale": views.stale(),
    "many": views.many(),
    "starting": views.starting(),
    "hostile": views.hostile(),
}

_NAMELESS = """
  const named = (node) => node.getAttribute('aria-hidden') === 'true' || node.getAttribute('aria-label')
    || (node.getAttribute('aria-labelledby') && document.getElementById(node.getAttribute('aria-labelledby')))
    || node.textContent.trim() || (node.id && document.querySelector(`label[for=${node.id}]`));
  return [...document.querySelectorAll('svg, img, section, button, input, table, summary, [role=region]')]
    .filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 200));
"""
_HEADINGS = "return [...document.querySelectorAll('h1, h2, h3, h4')].map((node) => +node.tagName[1])"
_AWAY = "document.getElementById('away')"
_TEXT = "return document.querySelector(arguments[0])?.textContent"


def _text(browser: Chrome, selector: str) -> str:
    return str(browser.execute_script(_TEXT, selector))


def _renew(browser: Chrome) -> None:
    """Do not wait for the next look: a tab that is shown again looks at once."""
    browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")


def _until(browser: Chrome, script: str) -> Any:
    return WebDriverWait(browser, 8, 0.05).until(lambda it: it.execute_script(f"return {script}"))


@pytest.mark.parametrize("name", _VIEWS)
def test_a_page_is_whole_in_itself_and_fits(name: str, browser: Chrome, site: Site) -> None:
    """No request goes elsewhere, no script of a name runs, the console is silent, and a phone shows all its width."""
    site.view = _VIEWS[name]
    requests(browser)
    complaints(browser)
    size(browser, 1200)
    visit(browser, site.address)
    assert browser.title.endswith(" · applier")
    counted = browser.execute_script("return [document.images.length, document.scripts.length, frames.length]")
    assert counted == [0, 1, 0]
    for width, scheme in ((1200, "dark"), (360, "light")):
        size(browser, width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(_NAMELESS) == []
    levels = browser.execute_script(_HEADINGS)
    assert levels.count(1) == 1
    assert all(now <= before + 1 for before, now in zip([0, *levels], levels, strict=False))
    assert complaints(browser) == []
    assert set(requests(browser)) == {site.address + name for name in ("", "status.json", "history.json")}


def test_what_the_reader_did_stays_when_the_page_is_brought_up_to_date(browser: Chrome, site: Site) -> None:
    """Filter, focus, what is open or selected, and the place on the page; the figures are new."""
    size(browser, 1000)
    site.view = views.many(200)
    visit(browser, site.address)
    browser.find_element("id", "filter").send_keys("t001")
    assert _text(browser, "#count") == "10 of 200 shown"
    browser.execute_script("""
      document.getElementById('step-numbers').open = true;
      document.querySelector('#ddl details').open = true;
      getSelection().selectAllChildren(document.querySelector('#lease dd'));
      document.getElementById('filter').focus();
      scrollTo(0, 700);
      window.nodes = [...document.querySelectorAll('#table-list tr, #ddl details')];
    """)
    later = views.NOW + 60
    tables = [replace(one, rows=one.rows + 5) for one in site.view.report.tables]
    found = replace(views.report(tables, lag=1.9, now=later), dead_letter_count=2, step=4813)
    found = replace(found, steps=(replace(found.steps[0], step=4813), *found.steps))
    site.view = View(found, views.points(later), "running", "Kafka does not answer.", later)
    _renew(browser)
    # The report and the rest are two answers, between which the view may change.
    _until(browser, "document.querySelector('#verdict').textContent.includes('1.9 s ago')")
    _until(browser, "document.querySelector('#banner')?.textContent.includes('Kafka does not answer')")
    assert "12:01:18" in _text(browser, "#seen")
    state = browser.execute_script("""
      return [document.activeElement.id, document.getElementById('filter').value, scrollY > 600,
        document.getElementById('step-numbers').open, document.querySelector('#ddl details').open,
        getSelection().toString(), document.querySelectorAll('#table-list tbody tr:not([hidden])').length,
        window.nodes.every((node) => node.isConnected)]
    """)
    assert state == ["filter", "t001", True, True, True, "Held", 10, True]
    assert browser.execute_script("return document.querySelectorAll('#step-numbers tbody tr').length") == 21
    assert complaints(browser) == []


def test_a_page_says_when_it_is_not_connected(browser: Chrome, site: Site) -> None:
    """What is seen is then of another time, and looks like it; when the server is back, so is the page."""
    visit(browser, site.address)
    site.stop()
    # A connection that the browser keeps may still be answered.
    again = "document.dispatchEvent(new Event('visibilitychange'))"
    said = _until(browser, f"{again} && !{_AWAY}.hidden && {_AWAY}.textContent")
    assert said.startswith("Not connected since 20")
    assert "What you see is of 2026-11-25 12:00:18 UTC" in said
    assert browser.title.startswith("Not connected · Fresh")
    assert "is-away" in browser.execute_script("return document.body.className")
    site.view = views.stale()
    site.start()
    # A look that began before may still fail.
    _until(browser, f"({again}, {_AWAY}.hidden)")
    assert browser.title.startswith("Stale")
    assert _text(browser, "#verdict-h").endswith("Stale")


def test_a_page_that_needs_a_token_stays_up_to_date(browser: Chrome, site: Site) -> None:
    """Also where the address held it; the page itself never does."""
    site.stop()
    site.token = "s3cret"
    site.start()
    visit(browser, site.address.replace("//", "//any:s3cret@"))
    assert "s3cret" not in browser.page_source
    site.view = views.stale()
    _renew(browser)
    _until(browser, "document.title.startsWith('Stale')")


def test_a_page_of_another_process_is_loaded_anew(browser: Chrome, site: Site) -> None:
    """The port may serve another changefeed now."""
    visit(browser, site.address)
    site.view = replace(site.view, report=replace(site.view.report, changefeed="other"))
    browser.execute_script("window.old = true")
    _renew(browser)
    _until(browser, "!window.old && document.querySelector('#top .name')?.textContent === 'other'")


def test_keys_reach_everything_and_commands_are_copied_as_shown(browser: Chrome, site: Site) -> None:
    """In the order in which they are read."""
    site.view = views.stale()
    size(browser, 1200)
    visit(browser, site.address)
    rights = {"origin": site.address, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", rights)
    reached: list[str] = []
    while reached.count("skip") < 2:
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.execute_script("const it = document.activeElement; return it.id || it.classList[0]"))
        if reached[-1] == "copy" and reached.count("copy") == 1:
            browser.switch_to.active_element.send_keys(Keys.ENTER)
            _until(browser, "document.getElementById('said').textContent === 'Copied.'")
            copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
            assert copied == "applier resume -c applier.toml --tables 'shop.orders'"
    assert reached[0] == "skip"
    assert {"filter", "scroll"} < set(reached)
    assert reached.index("copy") < reached.index("filter")
    assert reached.count("copy") == len(browser.find_elements("css selector", ".copy"))
    outline = browser.execute_script(
        "document.getElementById('filter').focus(); return getComputedStyle(document.activeElement).outlineStyle"
    )
    assert outline == "solid"


def test_times_are_shown_where_the_reader_is(browser: Chrome, site: Site) -> None:
    """In the title of each time."""
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    visit(browser, site.address)
    title = browser.execute_script("""
      const time = document.querySelector('#verdict time');
      time.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
      return time.title
    """)
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert "9:00:17" in title


def test_without_scripts_the_page_names_the_command(browser: Chrome, site: Site) -> None:
    """And shows nothing that would look like a state."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(site.address)
        said = browser.find_element("css selector", "noscript p")
        assert said.size["height"] > 10
        assert said.text == "This page needs JavaScript. applier status shows the same in a terminal."
        assert browser.find_elements("css selector", "#verdict, .copy, #filter") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_picture_of_the_readme(browser: Chrome, site: Site, tmp_path: Path) -> None:
    """`make picture` keeps it; it shows the tables of the quickstart, and must not weigh much."""
    site.view = views.quickstart()
    size(browser, 1100)
    visit(browser, site.address)
    file = Path(os.environ.get("PICTURE") or tmp_path / "page.png")
    below = browser.execute_script("return document.getElementById('ddl').getBoundingClientRect().top + scrollY")
    picture(browser, file, below - 24)
    assert 20_000 < file.stat().st_size < 200_000
