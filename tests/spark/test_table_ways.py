"""Ways out that are printed for tables: the command as it is printed, then `run`, and the table is upstream's."""

from __future__ import annotations

import pytest

from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from tests.spark.table_states import STATES, TableState
from tests.spark.test_ways_out import commands, obey
from tests.spark.ways_out import database
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

ALWAYS = {
    "not found",
    "unmet",
    "letters lost",
    "exchanged",
    "renamed out",
    "ddl",
    "filtered",
}
"""States that `make test` walks out of; the walks from the others run on demand."""

WALKS = [
    pytest.param(name, verb, marks=() if name in ALWAYS else pytest.mark.soak)
    for name, state in STATES.items()
    for verb in state.ways
]


def known(world: World, table: str) -> Completeness | None:
    """What the newest checkpoint says of a table."""
    with open_lake(world.config.catalog) as lake:
        last = ControlView(lake, world.name).checkpoint()
        assert last is not None
        return last.tables[TableName("shop", table)].completeness


def is_true(world: World, state: TableState, verb: str) -> None:
    """All tables are what upstream has, and `status` is content, save for those that lack rows for another reason."""
    expected = {name: rows for name, rows in database(world).items() if name not in state.others}
    if verb == "forget":
        del expected[state.table]
    assert {table: world.rows(table) for table in expected} == expected
    report = world.status()
    assert {item.table for item in report.tables if item.because} == {f"shop.{table}" for table in state.others}
    assert bool(state.others) == bool(report.exit_code), report.stale


@pytest.mark.parametrize(("name", "verb"), WALKS)
def test_a_printed_way_out_ends_in_a_true_table(name: str, verb: str, make: Make) -> None:
    """Each command of the sentence, as it is printed, after what the sentence says to do before it."""
    state = STATES[name]
    world = make(**state.changefeed)
    state.begin(world)
    found = known(world, state.table)
    assert found is not None
    assert found.why is state.why
    printed = commands(world.table(state.table).way_out)
    assert printed.keys() == state.ways.keys() | state.not_here

    state.ways[verb](world)
    obey(world, printed[verb])
    world.start()
    if "adopt" in (after := commands(world.table(state.table).way_out if verb != "forget" else None)):
        # A DDL was skipped on the way, which has a sentence of its own.
        obey(world, after["adopt"])

    is_true(world, state, verb)
