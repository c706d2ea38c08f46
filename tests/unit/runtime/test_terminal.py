"""What a person at a terminal sees of a run, at two widths, and what is left of it afterwards."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import structlog
from rich.console import Console

from applier.changefeed.ts import from_unix_ms
from applier.commands import progress_bar
from applier.runtime import terminal
from applier.runtime.jvm import spark_session
from applier.runtime.logs import StatusLine, announce, logger, set_up_logging

NOW = 1_700_000_000_000
SECONDS = {"maintain": 0.0, "plan": 0.004, "read": 0.05, "decode": 0.04, "apply": 0.07, "checkpoint": 0.14}
STEP = StatusLine(15, from_unix_ms(NOW - 700), NOW, 120, 100, 0, 1, 0, SECONDS, {"parked": 0})
RECORDED = [
    STEP,
    replace(STEP, step=1234, rows=1_234_567, tables=5, backlog=9_876_543, seconds={"decode": 61.2, "apply": 12.0}),
    replace(STEP, waiting=43, notes={"had": 29, "left_out": 1}),
    replace(STEP, notes={"parked": 2, "dead_letters": 1, "zero_dates": 12, "not_found": 3, "compacted": 4}),
    replace(STEP, resolved_ts=from_unix_ms(NOW - 200_000), seconds={}),
    replace(STEP, resolved_ts=from_unix_ms(NOW - 187_200_000), rows=0, tables=0),
    replace(STEP, resolved_ts=None),
    replace(STEP, resolved_ts=0),
]
AT_80 = """\
12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 0
12:00:17 step 1,234 · 1,234,567 rows · 5 tables · lag 0.7 s · backlog 9,876,543
12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 0
12:00:17 step 15 · 100 rows · lag 0.7 s · backlog 0 · 2 tables parked · 1 message set aside · 3 rows to change not found · 12 zero dates became NULL
12:00:17 step 15 · 100 rows · 1 table · 0 s · lag 3 min · backlog 0
12:00:17 step 15 · 0 rows · 0 tables · 0.3 s · lag 2.2 days · backlog 0
12:00:17 step 15 · 100 rows · the feed carries no watermark · backlog 0
12:00:17 step 15 · 100 rows · 1 table · 0.3 s · no watermark yet · backlog 0
"""  # noqa: E501
AT_160 = """\
12:00:17 step 15 · 100 rows · 1 table · 0.3 s (read .05 decode .04 apply .07 checkpoint .14) · lag 0.7 s · backlog 0
12:00:17 step 1,234 · 1,234,567 rows · 5 tables · 73 s (decode 61.2 apply 12.0) · lag 0.7 s · backlog 9,876,543
12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 0 · 43 rows waiting · 29 rows sent again · 1 row left out
"""  # noqa: E501


class Clock(datetime):
    """Stands still."""

    @classmethod
    def now(cls, tz: object = None) -> Clock:  # noqa: ARG003
        """See datetime."""
        return cls(2026, 11, 25, 12, 0, 17, tzinfo=UTC)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a terminal of 80 columns gets, with all control characters."""
    shown = io.StringIO()
    console = Console(file=shown, width=80, force_terminal=True, color_system=None, highlight=False, _environ={})
    monkeypatch.setattr(terminal, "CONSOLE", console)
    monkeypatch.setattr(terminal, "is_watched", lambda: True)
    monkeypatch.setattr(terminal, "datetime", Clock)
    set_up_logging("info")
    yield shown
    monkeypatch.undo()
    structlog.reset_defaults()


def test_steps_fit_into_80_columns(screen: io.StringIO) -> None:
    """Details go first; the lag and what a person has to look at stay, and only that may wrap."""
    for status in RECORDED:
        progress_bar.log_status(status)

    assert screen.getvalue() == AT_80


def test_160_columns_show_the_stages(screen: io.StringIO) -> None:
    """The stages that took a share of the time, and the notes that need no look."""
    terminal.CONSOLE.width = 160
    for status in RECORDED[:3]:
        progress_bar.log_status(status)

    shown = screen.getvalue()
    assert shown == AT_160
    assert max(map(len, shown.splitlines())) <= 160


def test_an_event_is_one_line_with_its_level(screen: io.StringIO) -> None:
    """Names of fields read as words, a missing value is left out, and a long sentence is not broken."""
    logger().info("table loaded", table="shop.a", resolved_ts=7, kind=None)
    logger().warning("table parked", way_out="applier resume -c applier.toml --tables shop.a " * 3)
    logger().debug("files loaded")

    assert screen.getvalue() == (
        "12:00:17 table loaded · table shop.a · resolved ts 7\n12:00:17 warning table parked · way out "
        + ("applier resume -c applier.toml --tables shop.a " * 3).rstrip()
        + "\n"
    )


def test_elsewhere_a_step_is_the_json_that_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """The line and its fields; nothing for people comes in between."""
    set_up_logging("info")
    terminal.say("starting Spark …")
    with terminal.waiting("reading"), terminal.progress("catching up", "messages") as bar:
        bar(1, 20_000)
    progress_bar.log_status(STEP)
    structlog.reset_defaults()

    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp")
    assert line == {**STEP.fields(), "resolved_ts": str(STEP.resolved_ts), "event": "step", "level": "info"}


def test_a_start_is_announced_at_once(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that logs warnings alone is silent for no longer than another; elsewhere it is an event."""
    set_up_logging("warning")
    announce("Spark is started", seconds=8.7)
    assert screen.getvalue() == "12:00:17 Spark is started · seconds 8.7\n"

    monkeypatch.setattr(terminal, "is_watched", lambda: False)
    for level in ("warning", "info"):
        set_up_logging(level)
        announce("Spark is started", seconds=8.7)
    structlog.reset_defaults()
    announce("Spark is started")
    found = capsys.readouterr()
    line = json.loads(found.err)
    assert (line["event"], line["level"], line["seconds"], found.out) == ("Spark is started", "info", 8.7, "")


def test_what_py4j_says_of_a_lost_connection_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """It uses the root logger and a stack trace; others still get through."""
    set_up_logging("info")
    structlog.reset_defaults()
    root = logging.getLogger()
    its, other = (logging.LogRecord("root", logging.ERROR, path, 1, "x", (), None) for path in ("/py4j/a.py", "/b.py"))

    assert not root.filter(its)
    assert root.filter(other)
    assert not capsys.readouterr().err


def test_a_bar_leaves_no_copies(screen: io.StringIO) -> None:
    """Log lines are printed above it, and each frame but the last line is taken away again."""
    with progress_bar.progress_bar() as show:
        show(replace(STEP, messages=1_000, backlog=50_000))
        with terminal.progress("rewriting shop.a", "rows") as bar:
            bar(10, 20)
            logger().info("table loaded", table="shop.a")
        show(replace(STEP, messages=50_000, backlog=0))

    text = screen.getvalue()
    assert "catching up" in text
    assert "rewriting shop.a" in text
    assert left(text) == [
        "12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 50,000",
        "12:00:17 table loaded · table shop.a",
        "12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 0",
    ]


def test_a_dumb_terminal_gets_lines_alone(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bar, and no control character."""
    monkeypatch.setattr(terminal, "PATIENCE_SECONDS", 0.0)
    terminal.CONSOLE._environ = {"TERM": "dumb"}
    with progress_bar.progress_bar() as show:
        show(replace(STEP, backlog=50_000))
    with terminal.waiting("applying rows", passes=True):
        _until(screen, "applying")

    assert screen.getvalue() == (
        "12:00:17 step 15 · 100 rows · 1 table · 0.3 s · lag 0.7 s · backlog 50,000\n12:00:17 applying rows …\n"
    )


def test_a_long_wait_is_one_line_and_a_short_one_none(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that takes less than its patience is not worth a word."""
    with terminal.waiting("opening the catalog"):
        pass
    monkeypatch.setattr(terminal, "PATIENCE_SECONDS", 0.0)
    with terminal.waiting("taking the lease"):
        _until(screen, "lease")
    with terminal.waiting("applying rows and DDL", passes=True):
        _until(screen, "applying")

    assert left(screen.getvalue()) == ["12:00:17 taking the lease …"]


def test_stack_traces_of_the_jvm_are_left_out(screen: io.StringIO) -> None:
    """A line each of what Spark and the JVM have to say; traces of Java and of Python's workers go."""
    said = (
        "Picked up JAVA_TOOL_OPTIONS: -X\n"
        "WARN TaskSetManager: Lost task 0.0 in stage 1.0: java.io.IOException: No space\n"
        "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
        "Caused by: java.lang.IllegalStateException: x\x1b[2J\n"
        "\t... 12 more\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 1\n'
        "\n"
        "ERROR Executor: Exception in task \x1b[2J: Traceback (most recent call last):\n"
        "java.lang.OutOfMemoryError: Java heap space\n"
    )
    reader, writer = os.pipe()
    jvm = spark_session._Stderr(reader)
    jvm.start()
    os.write(writer, said.encode())
    os.close(writer)

    assert jvm.end().endswith("java.lang.OutOfMemoryError: Java heap space")
    assert screen.getvalue().splitlines() == [
        "12:00:17 warning spark · from TaskSetManager · said Lost task 0.0 in stage 1.0: java.io.IOException: No space",
        "12:00:17 error spark · from Executor · said Exception in task \\x1b[2J",
        "12:00:17 error spark · from JVM · said java.lang.OutOfMemoryError: Java heap space",
    ]


def left(text: str) -> list[str]:
    """The lines that stay on a screen which shows a text; it knows what Rich's display of one row or more does."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[\d?;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        match part:
            case "\n":
                row += 1
                lines += [""] * (row == len(lines))
            case "\x1b[2K":
                lines[row] = ""
            case "\x1b[1A":
                row -= 1
            case "\r":
                pass
            case _ if not part.startswith("\x1b"):
                lines[row] += part
    return [line for line in lines if line]


def _until(screen: io.StringIO, text: str) -> None:
    while text not in screen.getvalue():
        time.sleep(0.001)
