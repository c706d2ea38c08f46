"""A plan as text and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from applier.commands.plan.report import DdlDue, ShapedRow, SpanDue, StepPlan, TableDue, render
from applier.runtime.escaping import grid

PLAN = StepPlan(
    changefeed="shop",
    step=7,
    resolved_ts=470606913407549441,
    watermark=470606913415151618,
    messages=1200,
    counts={"applied": 900, "had": 3, "held": 40, "left_out": 0},
    spans=[SpanDue("shop", 0, 10, 1210, 5)],
    tables=[TableDue("shop.account", "shop.account", 880, 2, False), TableDue("shop.new", "shop.new", 20, 1, True)],
    ddl=[DdlDue(470606913415151617, "DROP TABLE t /* [bold] */", ("shop.t",), ("drop-table",), "stop", "under [ddl]")],
    waits="",
)


def shown(plan: StepPlan) -> str:
    """The plan as a wide terminal shows it."""
    text = io.StringIO()
    render(plan, Console(file=text, width=220))
    return text.getvalue()


def test_text_has_all_that_a_reader_decides_by() -> None:
    """Watermarks, counts, offsets, tables and DDL; brackets are text, not markup."""
    text = shown(PLAN)

    assert "after step 7" in text
    assert "from resolved ts 470606913407549441 (2026-11-21T01:01:45.760+00:00) to 470606913415151618" in text
    assert "1,200 messages: 900 row changes to apply, 3 applied before, 40 above the watermark" in text
    assert "tables; keys are the rows that change, each by the last of its row changes" in text
    assert all(cell in text for cell in ("shop/0", "1210", "shop.new", "created", "[bold]", "under [ddl]"))


def test_nothing_to_apply_is_said_so() -> None:
    """A watermark that does not move, and a feed that has none."""
    still = StepPlan("shop", 7, 5, None, 0, {}, (), (), (), "No watermark has ever come from shop/1.")
    without = StepPlan("shop", 7, None, None, 0, {}, (), (), (), "")

    assert "and stay there" in shown(still)
    assert "No watermark has ever come from shop/1." in shown(still)
    assert "The feed carries no watermark: all that is read is applied." in shown(without)


def test_a_title_is_no_part_of_its_table() -> None:
    """It stays on one line, however narrow the table below it is."""
    text = io.StringIO()
    Console(file=text, width=80).print(grid("Changefeed quickstart, protocol simple", ("id",), [(1,)]))

    assert text.getvalue().splitlines()[0] == "Changefeed quickstart, protocol simple"


def test_json_holds_the_same() -> None:
    """The keys are the attributes."""
    told = json.loads(PLAN.to_json())

    assert told["spans"] == [{"topic": "shop", "partition": 0, "start": 10, "end": 1210, "backlog": 5}]
    assert (told["watermark"], told["ddl"][0]["decision"]) == ("470606913415151618", "stop")


def test_a_row_is_shown_before_and_after() -> None:
    """A hidden column is named, a column that a side lacks is `-`, and a terminal gets long cells cut."""
    row = ShapedRow(
        "shop.a", "lake.a", {"id": 1, "t": "x" * 100, "n": None}, ("c",), {"id": "1"}, {"id": 1, "_image": "after"}
    )
    left = ShapedRow("shop.b", "lake.b", {"id": 7}, note="The filter leaves it out.")
    plan = replace(PLAN, shapes=[row, left])
    lines = [" ".join(line.replace("│", " ").replace("┃", " ").split()) for line in shown(plan).splitlines()]

    assert "column upstream lake.a lake.a__changes" in lines
    assert {"id 1 1 1", f"t {'x' * 80}… - -", "n NULL - -", "c hidden - -", "_image - - after"} <= set(lines)
    assert {"id 7 -", "The filter leaves it out."} <= set(lines)
    first, second = json.loads(plan.to_json())["shapes"]
    assert (first["before"]["t"], first["hidden"], first["after"]) == ("x" * 100, ["c"], {"id": "1"})
    assert (second["after"], second["changes"], second["note"]) == (None, None, "The filter leaves it out.")


def test_names_and_cells_of_a_row_are_data() -> None:
    """No control character and no markup of upstream is obeyed, in heads neither."""
    row = ShapedRow("shop.a", "lake.[red]\x1b[2J", {"[b]\x1b[2J": "[i]\u202e"})
    text = shown(replace(PLAN, shapes=[row]))

    assert not set("\x1b\u202e") & set(text)
    assert all(part in text for part in (r"lake.[red]\x1b[2J", r"[b]\x1b[2J", r"[i]\u202e"))
