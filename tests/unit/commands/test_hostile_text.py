"""What commands print, where each text of a report holds what a terminal or Rich would obey."""

from __future__ import annotations

import io
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from rich.console import Console

from applier import cli
from applier.commands import ddl
from applier.commands.backfill.report import Outcome
from applier.commands.backfill.report import render as show_backfill
from applier.commands.check.render import render as show_check
from applier.commands.check.report import Report
from applier.commands.plan.report import StepPlan
from applier.commands.plan.report import render as show_plan
from applier.commands.status.render import render as show_status
from applier.config import settings
from applier.watch.report import StatusReport

HOSTILE = "x[red]\x1b[2J\u202e"
SHOWN = "x[red]\\x1b[2J\\u202e"


def hostile(kind: Any) -> Any:
    """A value of a type, in which each text is hostile."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return hostile(arguments[0])
    if origin is typing.Literal:
        return arguments[0]
    if origin in {tuple, list, Sequence}:
        return (
            (hostile(arguments[0]),) if origin is not tuple or arguments[-1] is ... else tuple(map(hostile, arguments))
        )
    if origin in {dict, Mapping}:
        return {}
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: hostile(hints[field.name]) for field in fields(kind) if field.init})
    return {str: HOSTILE, int: 1, float: 1.0, bool: True}.get(kind, HOSTILE)


@pytest.mark.parametrize(
    ("show", "report"),
    [(show_plan, StepPlan), (show_backfill, Outcome), (show_check, Report), (show_status, StatusReport)],
)
def test_no_text_of_a_report_reaches_the_terminal_raw(show: Callable[[Any, Console], None], report: type) -> None:
    """Markup is printed as it is, and control characters are written out."""
    out = io.StringIO()

    show(hostile(report), Console(file=out, width=4000, force_terminal=False))

    assert SHOWN in out.getvalue()
    assert not set("\x1b\u202e") & set(out.getvalue())


@pytest.mark.parametrize("report", [StepPlan, Report, StatusReport])
def test_json_holds_no_raw_control_character(report: type) -> None:
    """`--json` on a terminal: what would turn the text around is written out, and parses to the same text."""
    text = hostile(report).to_json()

    assert not set("\x1b\u202e") & set(text)
    assert HOSTILE in set(walk(json.loads(text)))


def walk(value: Any) -> Iterator[str]:
    """All texts of a JSON value."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)
    if isinstance(value, str):
        yield value


def test_the_list_of_ddl_is_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, reasons and statements of `applier ddl list`."""
    item = ddl.ListedDdl(1, "", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, "", HOSTILE)
    monkeypatch.setattr(ddl, "listed", lambda _: [item])
    monkeypatch.setattr(settings, "load", lambda _: None)

    cli.ddl_list("applier.toml")  # type: ignore[arg-type]

    assert capsys.readouterr().out == f"1  {'  '.join([SHOWN] * 4)}\n    {SHOWN}\n    Way out: {SHOWN}\n"
