"""What a terminal shows of a report, at two widths, and what the options of `applier status` allow."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from applier import cli
from applier.commands.status.render import Choice, render, watching
from applier.errors import ConfigError, TransientError
from applier.watch.report import StatusReport, Trouble
from applier.ways_out import WaysOut
from tests.unit.commands.status.reports import (
    CAPTURES,
    CASES,
    TS,
    WIDTHS,
    captured,
    dropped,
    fresh,
    many,
    never,
    stale,
)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_a_report_looks_as_it_did(name: str, width: int) -> None:
    """`python -m tests.unit.commands.status.reports` writes the captures anew, after a change that is meant."""
    assert captured(name, width) == (CAPTURES / f"{name}-{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_no_row_is_longer_than_the_terminal(name: str) -> None:
    """Only commands and statements, which are to be copied, go on beyond its end."""
    long = [line for line in captured(name, 80).splitlines() if cell_len(line) > 80 and not line.startswith("    ")]

    assert long == []


def test_each_command_is_a_line_to_copy() -> None:
    """Also one that is longer than the terminal, and one with names in backticks."""
    call = "CALL `my-lake`.system.set_current_snapshot('shop.`a``b`', 5)"
    adopt = "applier adopt -c applier.toml --tables '`a.b`.`c`' --why TEXT"
    sentence = f"Table x was set back. Hint: set it again, in Spark SQL with `{call}`; or run `{adopt}`."

    shown = _shown(replace(fresh(), stale=(Trouble(*sentence.split(" Hint: ")),)), 40)

    assert f"\n    {call}\n" in shown
    assert f"\n    {adopt}\n" in shown


@pytest.mark.parametrize(
    "parts", [("lake", "shop", "`my-table`"), ("`my-lake`", "`a.b`", "`c``d`"), ("`1`", "a", "`it's`")]
)
def test_a_quoted_name_breaks_no_command(parts: tuple[str, str, str]) -> None:
    """Each of the two that a dropped table has is a line of its own."""
    report = replace(fresh(), dropped=(replace(dropped("shop.x", TS), way_out=WaysOut.of_dropped(*parts)),))
    place = ".".join(parts)

    shown = _shown(report, choice=Choice(tables=("shop.x",)))

    assert f"\n    ALTER TABLE {place} RENAME TO {parts[1]}.NAME\n" in shown
    assert f"\n    DROP TABLE {place} PURGE\n" in shown


def test_a_refused_ddl_is_listed_while_it_holds_a_table_up() -> None:
    """One that is solved is counted, and no line of its own."""
    (held,) = stale().schema_changes
    solved = replace(stale(), schema_changes=(replace(held, decision="solved"),))

    assert f"\n  pending  2026-11-25 12:00:17  {held.table}  " in _shown(stale())
    assert "of the last 1: 1 solved\n" in _shown(solved)
    assert held.table not in _shown(solved).partition("1 solved")[2].split("queries")[0]


@pytest.mark.parametrize("width", [40, 60, 70])
def test_a_narrow_terminal_shows_fewer_columns_and_cuts_no_figure(width: int) -> None:
    """Step, lag and the names of tables stay."""
    out = io.StringIO()
    render(fresh(), Console(file=out, width=width, force_terminal=True, color_system=None))
    begins = ("step  ", "step m", " 119 ", "table ", "shop.table_1 ")
    rows = [line for line in out.getvalue().splitlines() if line.startswith(begins)]

    assert len(rows) == 4
    assert all("lag" in row for row in rows[::2])
    assert not any("…" in row for row in rows)
    assert all(cell_len(row) <= width for row in rows)


def test_where_nobody_watches_no_sentence_breaks() -> None:
    """A search finds it in one line."""
    assert "\nTable shop.users is incomplete: the feed does not hold its CREATE TABLE, so earlier rows" in _shown(
        stale()
    )
    assert "\n3 queries read 3 of 5 tables as of one moment, without shop.orders and shop.users:\n" in _shown(stale())


def test_reasons_beyond_the_tenth_are_counted() -> None:
    """A command shows all of them."""
    report = replace(stale(), stale=tuple(Trouble(f"Reason {number}.") for number in range(12)))

    assert "Reason 9.\n" in _shown(report)
    assert "Reason 10." not in _shown(report)
    assert "… and 2 more reasons" in _shown(report)
    assert "Reason 11." in _shown(report, choice=Choice(tables=("*.*",)))


def test_the_tables_of_the_rules_are_listed() -> None:
    """All of a thousand, or those that are meant; rules that mean none are refused."""
    assert _shown(many(), choice=Choice(tables=("*.*",))).count(" in step ") == 996
    assert _shown(many(), choice=Choice(tables=("shop.table_000?",))).count(" in step ") == 10
    with pytest.raises(ConfigError, match="--tables shop.nothing: the changefeed has no such table"):
        _shown(many(), choice=Choice(tables=("shop.nothing",)))


def test_a_dropped_table_is_shown_with_what_becomes_of_it() -> None:
    """By a line where no tables are asked for, in full by its name, also where no table has that name now."""
    every = tuple(dropped("shop.gone", TS + at) for at in range(12))
    report = replace(fresh(), dropped=every)

    assert f"\n12 dropped tables are kept\n  shop.gone, dropped at 2026-11-25 12:00:17 (commit ts {TS + 11}), as " in (
        _shown(report)
    )
    assert "\n  … and 2 more; how each comes back, is renamed or is removed:\n    applier status -c " in _shown(report)
    assert "PURGE" not in _shown(report)
    asked = _shown(report, choice=Choice(tables=("shop.gone",)))
    assert asked.count("    DROP TABLE lake.shop.gone_dropped_") == 12
    assert "shop.table_1" not in asked.partition("The newest steps")[0]
    assert "kept" not in _shown(report, choice=Choice(tables=("shop.table_1",)))
    assert "dropped" not in _shown(replace(report, dropped=()))


def test_a_thousand_tables_in_step_are_a_line() -> None:
    """None of them needs a look."""
    report = many()

    shown = _shown(replace(report, tables=report.tables[:996], stale=()))

    assert "\n996 tables in step\n" in shown
    assert "shop.table_0001" not in shown


def test_offset_order_has_no_moment() -> None:
    """The verdict names the step instead."""
    report = replace(fresh(), resolved_ts=None, resolved=None, lag_seconds=4.0)

    assert _shown(report).startswith("fresh · all 5 tables are as step 120 left them (4 s ago)\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--json", "--watch", "2"], "--json prints everything: leave out --watch."),
        (["--json", "--ddl", "--tables", "a.b"], "--json prints everything: leave out --tables, --ddl."),
        (["--cut", "--partitions"], "--cut prints the queries and nothing else: leave out --partitions."),
        (["--watch", "2"], "--watch redraws a terminal, and standard output is none: leave out --watch."),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: list[str], sentence: str, tmp_path: Path) -> None:
    """Before the configuration is read; the sentence names what to leave out."""
    done = CliRunner().invoke(cli.app, ["status", "-c", str(tmp_path / "none.toml"), *options])

    assert isinstance(done.exception, ConfigError)
    assert done.exception.problems == [sentence]


def test_watching_ends_with_the_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that does not answer in between is shown, and asked again."""
    answers: Iterator[StatusReport | Exception] = iter([fresh(), TransientError("Cannot open it.", "Wait."), stale()])

    code, shown = _watched(answers, monkeypatch)

    assert code == 1
    assert "Cannot open it. Hint: Wait." in shown
    after_the_screen = shown.rpartition("\x1b[?1049l")[2]
    assert "stale · 3 of 4 tables need a hand" in after_the_screen


def test_watching_a_catalog_that_does_not_answer_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is that of the error, not of what was found before."""
    assert _watched(iter([never(), TransientError("Cannot open it.", "Wait.")]), monkeypatch)[0] == 3


def test_watching_that_never_showed_anything_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any command is."""
    with pytest.raises(KeyboardInterrupt):
        _watched(iter([]), monkeypatch)


def _watched(answers: Iterator[StatusReport | Exception], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The code, and what was shown, of looking until there is no answer left, which stands for Ctrl-C."""

    def look() -> StatusReport:
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(time, "sleep", lambda _: None)
    out = io.StringIO()
    code = watching(look, Choice(), Console(file=out, width=80, height=40, force_terminal=True, color_system=None), 1)
    return code, out.getvalue()


def _shown(report: StatusReport, width: int = 80, choice: Choice | None = None) -> str:
    out = io.StringIO()
    render(report, Console(file=out, width=width), choice)
    return out.getvalue()
