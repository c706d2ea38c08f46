"""`applier plan` shows a row of each shaped table before and after, and no value that is hidden."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from applier.commands.plan.command import plan
from applier.commands.plan.report import ShapedRow, StepPlan, render
from tests.secret_watch import SecretWatch
from tests.spark.feeds import read
from tests.spark.world import START, Make, World

pytestmark = pytest.mark.spark

SECRET = "hush-7781"
PAGE = (Path(__file__).parents[2] / "docs" / "shapes.md").read_text(encoding="utf-8")
SHAPES: dict[str, dict[str, Any]] = {
    "shop.a": {
        "columns": {"exclude": ["c"], "mask": {"v": "redact"}, "cast": {"w": "string"}},
        "metadata": ["_commit_ts", "_op"],
    },
    "shop.b": {"where": "id > 1"},
    "shop.s": {"deletes": "soft"},
    "shop.h": {"history": "changes", "columns": {"rename": {"v": "value"}}},
    "shop.n": {"columns": {"mask": {"v": "redact"}}},
}


def shown(found: StepPlan) -> str:
    """The plan as a wide terminal shows it."""
    text = io.StringIO()
    render(found, Console(file=text, width=200))
    return text.getvalue()


def rows(found: StepPlan) -> dict[str, ShapedRow]:
    """The rows of a plan, by table."""
    return {row.upstream.removeprefix("shop."): row for row in found.shapes}


def fill(world: World) -> None:
    """A table for each shape, and one without any."""
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, c VARCHAR(9), w INT, v VARCHAR(9))")
    for table in ("b", "s", "h", "n", "plain"):
        world.create(table)
    world.put("a", 2, c=SECRET, v=SECRET, w="1")
    world.put("a", 3, c=SECRET, v=SECRET, w="7")
    world.put("b", 1, v="out")
    world.put("s", 1, v="lived")
    world.put("s", 1, op="DELETE", v="lived")
    world.put("h", 1, v="kept")
    world.put("plain", 1, v="same")
    world.resolve()


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_the_row_after_is_that_of_the_table(make: Make, order: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In text and JSON; the row before is that of the message without what is hidden, which is nowhere."""
    world = make()
    world.settings["changefeed"] = {"order": order}
    shapes = {pattern: asked for pattern, asked in SHAPES.items() if order == "resolved" or "history" not in asked}
    world.settings["tables"] = dict(shapes)
    fill(world)

    found = plan(world.config)
    logs = world.obey(f"applier plan -c {world.path} --log-level debug")
    as_json = world.obey(f"applier plan -c {world.path} --json --log-level debug")

    watch = SecretWatch({"value": SECRET})
    for place, text in (("text", logs + shown(found)), ("json", as_json), ("streams", "".join(capfd.readouterr()))):
        watch.look(text.encode(), place)
    assert watch.found == set()
    assert {"json", "text"} <= watch.places
    told = rows(found)
    assert set(told) == {pattern.removeprefix("shop.") for pattern in shapes}
    a = told["a"]
    assert (a.before, set(a.hidden)) == ({"id": 3, "w": 7}, {"c", "v"})
    assert told["b"].before == {"id": 1, "v": "out"}
    assert (told["b"].after, told["b"].note) == (None, "The filter of its pattern leaves this row of table shop.b out.")
    assert told["s"].note == "Upstream deletes this row of table shop.s, and it stays."
    assert told["n"] == ShapedRow(
        "shop.n", told["n"].iceberg, note="No whole row of table shop.n is among those that the step applies."
    )
    assert "a row of shop.a, before and after" in logs
    cells = [re.sub(r"[│┃\s]+", " ", line).strip() for line in shown(found).splitlines()]
    assert {"c hidden -", "v hidden ***", "w 7 7", "_op - insert"} <= set(cells)
    listed = {row["upstream"]: row for row in json.loads(as_json.splitlines()[-1])["shapes"]}
    assert (set(listed["shop.a"]["hidden"]), listed["shop.a"]["before"]["id"]) == ({"c", "v"}, 3)
    assert listed["shop.b"]["after"] is None

    world.start()
    for name in sorted({"a", "s", "h"} & set(told)):
        held = read(world.spark, (f"{world.name}__shop", name)).to_pylist()
        after = told[name].after
        assert after is not None
        assert {column: str(cell) for column, cell in after.items()} in [
            {column: plain(cell) for column, cell in row.items()} for row in held
        ]
    if "h" in told:
        [change] = read(world.spark, (f"{world.name}__shop", "h__changes")).to_pylist()
        assert told["h"].changes is not None
        assert {column: str(cell) for column, cell in told["h"].changes.items()} == {
            column: plain(cell) for column, cell in change.items()
        }


def plain(cell: Any) -> str:
    """A cell as JSON has it, as text."""
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def test_what_a_living_table_costs_is_shown(make: Make) -> None:
    """A change of metadata, or a load."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1)
    world.put("b", 1)
    world.resolve()
    world.start()
    world.settings["tables"] = {
        "shop.a": {"columns": {"exclude": ["v"]}},
        "shop.b": {"columns": {"mask": {"v": "redact"}}},
    }
    world.put("b", 2, v=SECRET)
    world.resolve()

    found = plan(world.config)

    notes = {layout.upstream: (layout.change, layout.note) for layout in found.layouts}
    assert notes["shop.a"][0] == "without v"
    assert "It costs a change of metadata" in notes["shop.a"][1]
    assert not notes["shop.b"][0]
    assert re.search(
        r"holds rows of another shape .* Hint: Set the keys .*`applier load -c \S+ --from", notes["shop.b"][1]
    )
    assert rows(found)["b"].after == {"id": 2, "v": "***"}
    assert not rows(found)["a"].before
    assert SECRET not in shown(found) + found.to_json()


def test_the_page_shows_what_plan_prints(make: Make) -> None:
    """In the words of the page, by the statements at its top."""
    section = PAGE.partition("## A row before and after")[2].partition("\n## ")[0]
    mask, printed = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    assert 'mask = { v = "last4" }' in mask
    world = make()
    shape = {"columns": {"mask": {"v": "last4"}}, "metadata": ["_op"]}
    world.settings["tables"] = {"route": "{database}.{table}", "shop.*": shape}
    world.ddl("CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(9))", "orders")
    for key in (1, 2):
        world.put("orders", key, v="new")
    world.put("orders", 2, op="UPDATE", v="paid")
    world.resolve()
    assert str(START + 1) in PAGE
    text = io.StringIO()
    render(plan(world.config), Console(file=text, width=80))
    assert printed.strip() in "\n".join(line.rstrip() for line in text.getvalue().splitlines())
