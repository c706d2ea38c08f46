"""A Chromium that can reach nothing but the page, and a server that shows it views."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from applier.config.watch import HttpSection
from applier.watch import server
from applier.watch.page import document
from applier.watch.report import View
from applier.watch.server import Answer, Resource, serving
from tests.browser import views

_FLAGS = (
    "headless=new",
    "no-sandbox",
    "disable-gpu",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "disable-quic",
    "hide-scrollbars",
    # Nothing listens there; what goes to this machine passes it by.
    "proxy-server=127.0.0.1:9",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One Chromium for all tests."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("There is no Chromium: run `make services` as root, or `apt-get install chromium chromium-driver`.")
    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = Chrome(options, Service(driver))
    yield found
    found.quit()


@dataclass(slots=True)
class Site:
    """A server of the page; set `view` to show another one."""

    view: View = field(default_factory=views.fresh)
    port: int = 0
    token: str | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Serve, on the same port as before."""
        settings = HttpSection.model_validate({"port": self.port, "token": self.token})
        resources = {
            "/": Resource(document.answer),
            "/status.json": Resource(lambda: Answer(self.view.report.to_json().encode(), "application/json")),
            "/history.json": Resource(lambda: document.history(self.view, "applier.toml", views.NOW - 9 * 3600)),
        }
        self._running.enter_context(serving(settings, resources))

    def stop(self) -> None:
        """Serve no longer."""
        self._running.close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose answers are as new as its view."""
    monkeypatch.setattr(server, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(server, "_REST", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = Site(port=free.getsockname()[1])
    found.start()
    yield found
    found.stop()


def visit(browser: Chrome, address: str) -> None:
    """Open a page, and wait until it is drawn."""
    browser.get(address)
    WebDriverWait(browser, 8, 0.05).until(lambda it: it.execute_script("return document.getElementById('verdict')"))


def size(browser: Chrome, width: int, scheme: str = "light") -> None:
    """Give the window a width in pixels, and the reader a taste."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    taste = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": taste})


def requests(browser: Chrome) -> list[str]:
    """Addresses that pages have asked for since the last call; the new tab of the browser is its own."""
    events = [json.loads(entry["message"])["message"] for entry in _log(browser, "performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    found = [str(request["request"]["url"]) for request in sent]
    return [address for address in found if not address.startswith(("chrome:", "data:"))]


def complaints(browser: Chrome) -> list[str]:
    """What the console says, violations of the policy too, but for a server that is away."""
    return [entry["message"] for entry in _log(browser, "browser") if "ERR_CONNECTION_REFUSED" not in entry["message"]]


def _log(browser: Chrome, name: str) -> list[dict[str, str]]:
    """Lines of a log since the last call; selenium gives this method no type."""
    found: list[dict[str, str]] = browser.execute("getLog", {"type": name})["value"]
    return found


def picture(browser: Chrome, file: Path, height: int) -> None:
    """Save what the window shows, from the top down to a height in pixels."""
    import base64  # noqa: PLC0415

    clip = {"x": 0, "y": 0, "width": browser.execute_script("return innerWidth"), "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    file.write_bytes(base64.b64decode(shot["data"]))
