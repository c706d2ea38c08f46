"""The ways out of tables that lack rows: which comes first, what is printed where, and that the pages have the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import TableFilter
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.errors import BY_HAND, RELOAD, SchemaChangeRefused
from applier.ways_out import WaysOut, export
from applier.wording import CLAUSES
from tests.spark.table_states import WITHOUT

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
ASKS, BY_FILES = WaysOut("applier.toml", has_url=True), WaysOut("applier.toml")
AT, TS = FeedPosition(ORDERS, 7), 470606913415151617
OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"
OF_A_LOAD = {Why.LOADING, Why.CATCHING_UP}


def _known(why: Why) -> Completeness:
    is_refused = why in (Why.DDL, Why.ROW)
    detail = "…" if "{}" in CLAUSES[why] else ""
    reason = Reason(why, detail, TS if why is Why.DDL else 0, "…" if is_refused else "")
    return Completeness(reason, position=AT if why.state == "parked" and why is not Why.LOST else None)


def _row(first: str, known: Completeness) -> str:
    return f"| {first} | {ASKS.of([ORDERS], known)} |"


def rows() -> list[str]:
    """The rows of the page: a reason each, and a table whose place is not known."""
    reasons = [why for why in Why if why.state != "live" and why not in WITHOUT.keys() | OF_A_LOAD]
    found = []
    for why in reasons:
        known = _known(why)
        clause = CLAUSES[why].replace("{}", "…")
        found.append(_row(f"`{known.state}`: {clause}", known))
    return [*found, _row("`parked`, at an unknown place in the feed", Completeness(Reason(Why.BY_HAND)))]


def test_the_page_has_the_ways_out_that_are_printed() -> None:
    """Sentence by sentence, in the order of the reasons."""
    page = OPERATIONS.read_text(encoding="utf-8")
    table = page.partition("| state and reason | way out |\n| --- | --- |\n")[2].partition("\n\n")[0]

    assert table.splitlines() == rows()


def test_the_page_on_ddl_has_those_of_a_refused_one() -> None:
    """The same sentence."""
    page = OPERATIONS.with_name("ddl.md").read_text(encoding="utf-8")

    assert f"\n{ASKS.of([ORDERS], _known(Why.DDL))}\n" in page


def test_a_refused_ddl_has_a_load_first() -> None:
    """It alone keeps the table equal; then what makes the statement possible, and last what loses its effect."""
    known = Completeness(Reason(Why.DDL, "no", TS, "set a key."), position=AT)
    resume = "run `applier resume -c applier.toml --tables 'shop.orders'`"

    skip = f"stop the running applier, run `applier ddl skip {TS} -c applier.toml --why TEXT`"
    skip = f"{skip}, which passes the DDL without its effect"
    assert ASKS.of([ORDERS], known).split("; or ") == [
        "run `applier load -c applier.toml --tables 'shop.orders'`",
        f"{resume} once you have done this: set a key",
        f"{skip}, then {resume}.",
    ]


def test_a_skipped_ddl_has_a_load_first() -> None:
    """It needs no hand, and runs beside `run`; what does not says so."""
    by_hand = (
        "stop the running applier, bring the Iceberg table to what upstream has, and run "
        "`applier adopt -c applier.toml --tables 'shop.orders' --why TEXT`."
    )

    for ways in (ASKS, BY_FILES):
        assert ways.of([ORDERS], _known(Why.SKIPPED)).split("; or ") == [ways.load([ORDERS]), by_hand]


@pytest.mark.parametrize("why", [why for why in Why if why.state != "live"])
def test_a_command_that_needs_the_changefeed_says_to_stop_run(why: Why) -> None:
    """Each of those that the running process is not asked to carry out."""
    for clause in ASKS.of([ORDERS], _known(why)).split("; or "):
        needs = re.search(r"`applier (adopt|backfill|ddl skip|dead-letters discard) ", clause)
        assert not needs or clause.startswith("stop the running applier, "), clause


def test_no_resume_is_printed_that_would_park_the_table_again() -> None:
    """Nothing can be changed about the value, and no DDL can be passed."""
    known = Completeness(Reason(Why.ROW, "the row holds its key only"), position=AT)

    assert "resume" not in ASKS.of([ORDERS], known)


@pytest.mark.parametrize("why", [why for why in Why if why.state != "live"])
def test_an_export_has_the_tables_alone(why: Why) -> None:
    """With a place for the address of the server; a TiDB that is named needs none."""
    said = BY_FILES.of([ORDERS, ITEMS], _known(why))
    for command in re.findall(r"`(tiup [^`]*)`", said):
        words = shlex.split(command)
        filters = [words[at + 1] for at, word in enumerate(words) if word == "--filter"]
        assert filters == ["shop.orders", "shop.items"]
        assert words[2:8] == ["-h", "HOST", "-P", "PORT", "-u", "USER"]
    assert ("tiup" in said) == ("--from DIR" in said and why not in OF_A_LOAD)
    assert "tiup" not in ASKS.of([ORDERS, ITEMS], _known(why))


def test_a_name_that_a_shell_would_part_is_one_filter() -> None:
    """It selects the table, and no other."""
    odd = TableName("a b", "c'd.*")
    rule = shlex.split(export([odd]))[-3]

    assert TableFilter([rule]).admits(odd)
    assert not TableFilter([rule]).admits(TableName("a b", "c'd.x"))


@pytest.mark.parametrize("hint", [RELOAD, BY_HAND, "load it, with `applier load -c FILE --from DIR --tables TABLE`."])
def test_the_hint_of_an_error_asks_for_no_export_where_a_tidb_is_named(hint: str) -> None:
    """It names the table and the file, and begins with what has to be changed first."""
    by_sql, by_files = (ways.of_error(f"Let the column in. {hint}", ORDERS) for ways in (ASKS, BY_FILES))

    assert by_sql.startswith("Let the column in. ")
    assert "`applier load -c applier.toml --tables 'shop.orders'`" in by_sql
    assert not re.search("tiup|export|DIR|TABLE|FILE", by_sql)
    assert "`applier load -c applier.toml --from DIR --tables 'shop.orders'`" in by_files
    assert not re.search("TABLE|FILE", by_files)


@pytest.mark.parametrize("hint", [RELOAD, BY_HAND])
def test_a_load_is_nothing_to_change(hint: str) -> None:
    """What is left of a hint is what makes a resume possible."""
    assert SchemaChangeRefused("no.", hint).mend == ""
    assert SchemaChangeRefused("no.", f"Let the column in. {hint}").mend == "Let the column in."
