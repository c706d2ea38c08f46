"""The forms of a report: JSON with keys that stay, and tables for people."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from applier.commands.check.command import check
from applier.commands.check.render import render
from applier.commands.check.report import SystemAnswer, Verdict, worst
from applier.commands.check.systems import Systems
from tests.fake_registry import FakeRegistry
from tests.unit.commands.check.world import World, column, entry, hold, judge, record

DOCUMENT = Path(__file__).parents[4] / "docs" / "check.md"


def keys(value: object, path: str = "") -> set[str]:
    """Paths of all keys, list members as []."""
    if isinstance(value, dict):
        return {f"{path}{key}" for key in value} | {
            found for key, item in value.items() for found in keys(item, f"{path}{key}.")
        }
    if isinstance(value, list):
        return {found for item in value for found in keys(item, f"{path.removesuffix('.')}[].")}
    return set()


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([], "fits"),
        (["fits", "cannot tell"], "cannot tell"),
        (["cannot tell", "does not fit", "fits"], "does not fit"),
    ],
)
def test_the_worst_verdict_decides(verdicts: list[Verdict], verdict: Verdict) -> None:
    """What certainly breaks counts more than what is not known, and that more than what fits."""
    assert worst(verdicts) == verdict


def test_every_key_of_the_json_is_documented(world: World, server: FakeRegistry) -> None:
    """Scripts rely on them: a key that is not in the document does not come, and the other way round."""
    identity = column("id", "long", "BIGINT")
    hold(server, [entry("shop-value", 1, record(identity))])
    judge(server, "shop-value", {1: False}, "why")
    world.with_registry(server.url)

    report = json.loads(check(world.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT NOT NULL").to_json())

    documented = {line.split("`")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")}
    assert keys(report) <= documented
    assert {key for key in documented if "." not in key and "[" not in key} == set(report)
    assert (report["verdict"], report["exit_code"]) == ("does not fit", 1)


def test_what_looks_like_markup_is_shown_as_it_is(world: World) -> None:
    """Names and statements with brackets are text, not style."""
    console = Console(width=120)

    with console.capture() as captured:
        render(check(world.config, ddl="ALTER TABLE `a[red]`.`t[/]` ADD COLUMN c INT"), console)

    assert "`a[red]`.`t[/]`" in captured.get()


def test_what_was_asked_is_answered_in_the_first_lines(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The statement with its verdict, and what becomes of its table; what is the same each time comes behind it."""
    render(check(world.config, ddl="ALTER TABLE `shop`.`absent` ADD COLUMN c INT"), Console(width=120))

    first, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("DDL ALTER TABLE `shop`.`absent` ADD COLUMN c INT: ")
    assert any("Iceberg table shop.absent" in line for line in more[:3])
    assert any(line.startswith("Changefeed shop, protocol ") for line in more[3:])


def test_what_a_value_may_still_stop_is_said_in_the_first_line(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict alone would promise what only the rows can show."""
    world.create(("shop", "orders"), {"id": pa.int64(), "amount": pa.decimal128(9, 2)}, rows=1)

    report = check(world.config, ddl="ALTER TABLE shop.orders MODIFY COLUMN amount INT")
    render(report, Console(width=200))

    first, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(": fits, unless a value of amount cannot be converted: that parks the table")
    assert (report.verdict, report.changes[0].tables[0].converted) == ("fits", ("amount",))


def test_systems_that_fit_are_left_out_of_an_answer_to_a_ddl(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer has three lines; without a DDL all are shown, and no path is cut into pieces."""
    folder = f"/usr/lib/{'long-' * 12}name"
    java = SystemAnswer("Java", "fits", f"Java 17 in {folder}.")
    systems = Systems((java, SystemAnswer("Kafka", "cannot tell", "No.", "ask.")))

    render(check(world.config, ddl="DROP TABLE shop.orders", systems=systems), Console(width=100))
    asked = capsys.readouterr().out
    render(check(world.config, systems=systems), Console(width=100))
    alone = capsys.readouterr().out

    assert ("Java" in asked, "Kafka: cannot tell. No." in asked, "Way out: Ask." in asked) == (False, True, True)
    assert "Java: fits." in alone
    assert folder in alone
