"""Names and statements from upstream, as people see them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import structlog
from rich.console import Console

from applier.commands.backfill.report import Outcome
from applier.commands.backfill.report import render as render_outcome
from applier.commands.status.render import render
from applier.errors import CheckpointConflict
from applier.runtime import terminal
from applier.runtime.escaping import Text, escaped
from applier.runtime.logs import as_line, logger, set_up_logging
from applier.runtime.process_end import ending_of
from applier.watch.report import DdlReport, HolderReport, StatusReport, TableProgress, Trouble

HOSTILE = "a\x1b[31mred\x1b]0;pwned\x07\nfresh · all\u202eb[bold]"
SHOWN = "a\\x1b[31mred\\x1b]0;pwned\\x07\\x0afresh · all\\u202eb[bold]"


def printed(show: object) -> str:
    """What a console writes, without its own line breaks."""
    out = io.StringIO()
    console = Console(file=out, width=400, force_terminal=False)
    show(console)  # type: ignore[operator]
    return out.getvalue()


def is_safe(text: str) -> bool:
    """True if no character moves the cursor, turns the direction, or ends a line of its own."""
    return not any(char in text for char in "\x1b\x07\u202e") and "\nfresh · all" not in text


@pytest.mark.parametrize("text", ["", "plain", "日本語 テーブル", "a\u00a0b", "é😀"])
def test_ordinary_text_stays(text: str) -> None:
    """Letters of every script, spaces and pictures are shown as they are."""
    assert escaped(text) == text


def test_characters_that_a_terminal_obeys_are_written_out() -> None:
    """Escape sequences, line breaks and changes of direction; markup is no markup."""
    assert escaped(HOSTILE) == SHOWN
    assert str(Text("a\nb\x1b")) == "a\nb\\x1b"
    assert str(Text.assemble("a\x1b", ("[red]\x07", "bold"))) == "a\\x1b[red]\\x07"


def test_status_shows_hostile_names_as_text() -> None:
    """Names, statements, hints and queries of `applier status`."""
    holder = HolderReport(HOSTILE, "h", 1, 1, "2026-01-01T00:00:00", "2026-01-01T00:00:00", 1.0, released=False)
    table = TableProgress(HOSTILE, HOSTILE, "incomplete", because=HOSTILE, way_out=HOSTILE)
    ddl = DdlReport(1, "2026-01-01T00:00:00", HOSTILE, "x", "applied", HOSTILE, HOSTILE, "2026-01-01T00:00:00")
    report = replace(
        StatusReport("shop", 300.0, "2026-01-01T00:00:00", holder=holder),
        tables=(table,),
        schema_changes=(ddl,),
        cut=(HOSTILE,),
        notes=(Trouble(HOSTILE),),
        stale=(Trouble(HOSTILE, HOSTILE),),
    )

    text = printed(lambda console: render(report, console))

    assert is_safe(text)
    assert text.startswith("stale · ")


def test_a_backfill_shows_hostile_names_as_text() -> None:
    """Its sentences name tables."""
    assert is_safe(printed(lambda console: render_outcome(Outcome([HOSTILE]), console)))


def test_the_last_line_is_one_line() -> None:
    """An error that names a table ends a run with one line, whatever the name holds."""
    assert ending_of(CheckpointConflict(f"Table {HOSTILE} is gone.")) == (3, f"Table {SHOWN} is gone.")


def test_log_lines_for_people_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text of an event on a terminal."""
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "CONSOLE", Console(file=shown, force_terminal=True, color_system=None))
    monkeypatch.setattr(terminal, "is_watched", lambda: True)
    terminal.say(*as_line(None, "info", {"event": HOSTILE, "table": HOSTILE, "tables": [HOSTILE]})[0])

    assert is_safe(shown.getvalue())


def test_log_lines_for_programs_hold_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    """They are looked at on terminals, too; the text that they mean is the same."""
    set_up_logging("info")
    try:
        logger().info("table parked", table=f"{HOSTILE}\x9b31m\x7f\U000e0041")
    finally:
        structlog.reset_defaults()
    line = capsys.readouterr().err

    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["table"] == f"{HOSTILE}\x9b31m\x7f\U000e0041"
