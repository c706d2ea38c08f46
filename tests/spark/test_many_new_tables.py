"""A database and many tables are made one after the other: all at once, and recorded in one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from applier.commands.follower import Follower
from applier.pipeline.step import Pipeline
from applier.sink.control.control import Control
from applier.sink.control.tables import SCHEMA_CHANGES, TABLE_VERSIONS
from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

TABLES = ("a", "b", "c", "d")


def begun(make: Make) -> World:
    """A feed with one table, of which the next messages make others, with rows of theirs between."""
    world = make()
    world.create("first")
    world.resolve()
    world.run()
    world.ddl("CREATE DATABASE IF NOT EXISTS shop", "")
    for number, table in enumerate(TABLES):
        world.create(table)
        world.put(table, number)
        world.put("first", number)
    world.ddl("ALTER TABLE b ADD COLUMN w INT", "b")
    world.put("b", 9, w="1")
    world.resolve()
    return world


def follow(pipeline: Pipeline) -> None:
    """Apply all that is there."""
    follower = Follower(pipeline)
    while (step := follower.turn()).moved or step.resuming:
        assert step.error is None, step.error


def uuids(world: World, pipeline: Pipeline) -> dict[str, str]:
    """The tables that are in the catalog."""
    found = {name: pipeline.targets.catalog.load((f"{world.name}__shop", name)) for name in TABLES}
    return {name: table.uuid for name, table in found.items() if table is not None}


def decided(pipeline: Pipeline) -> Counter[tuple[str, str, str]]:
    """What `ddl list` shows of the statements."""
    return Counter((item.table.table, item.kind, item.decision) for item in pipeline.state.control.decisions())


def applied() -> Counter[tuple[str, str, str]]:
    """The same where each statement was applied once."""
    made = [(name, "create-table", "applied") for name in ("first", *TABLES)]
    return Counter([*made, ("", "create-database", "applied"), ("b", "add-column", "applied")])


def check(world: World) -> None:
    """Every row is in its table."""
    assert {table: world.keys(table) for table in TABLES} == {"a": {0}, "b": {1, 9}, "c": {2}, "d": {3}}
    assert world.keys("first") == {0, 1, 2, 3}
    assert {world.table(name).state for name in ("first", *TABLES)} == {"in step"}


def test_the_statements_of_many_tables_are_recorded_in_one_commit(make: Make) -> None:
    """One commit has the tables in a row, another one the ALTER TABLE behind them; the rows bring versions first."""
    world = begun(make)
    with world.applier() as pipeline:
        control = pipeline.state.control
        assert isinstance(control, Control)
        before = control.written.copy()
        follow(pipeline)
        written = control.written - before
        assert (written[SCHEMA_CHANGES], written[TABLE_VERSIONS]) == (2, 3)
        assert decided(pipeline) == applied()
    check(world)


@pytest.mark.parametrize("point", few(["ddl-applied", "table-made", "ddl-recorded"]))
def test_a_process_that_dies_among_them_leaves_what_the_next_one_goes_on_with(
    make: Make, crash: Callable[[str], None], point: str
) -> None:
    """No table is made twice, and no statement is recorded twice."""
    world = begun(make)
    with world.applier() as pipeline:
        crash(point)
        with pytest.raises(Crash):
            follow(pipeline)
        made = uuids(world, pipeline)
        assert made
        assert (decided(pipeline) == Counter([("first", "create-table", "applied")])) == (point != "ddl-recorded")

    with world.applier() as pipeline:
        follow(pipeline)
        assert made.items() <= uuids(world, pipeline).items()
        assert decided(pipeline) == applied()
    check(world)


@pytest.mark.soak
def test_one_table_that_is_refused_stops_no_other(make: Make) -> None:
    """It is parked alone, and keeps the rows that others wrote; all others are made and recorded."""
    world = begun(make)
    where = f"lake.{world.name}__shop.b"
    world.spark.sql(f"CREATE TABLE {where} (id BIGINT, v STRING) USING iceberg")
    world.spark.sql(f"INSERT INTO {where} VALUES (77, 'own')")
    world.run()
    assert {table: world.keys(table) for table in TABLES} == {"a": {0}, "b": {77}, "c": {2}, "d": {3}}
    states = {table: world.table(table).state for table in TABLES}
    assert states == {"a": "in step", "b": "parked", "c": "in step", "d": "in step"}
    with world.applier() as pipeline:
        found = decided(pipeline)
    assert found >= Counter([(name, "create-table", "applied") for name in "acd"])
    assert found["b", "create-table", "refused"] == 1
