"""A CREATE TABLE of the feed meets an Iceberg table: an empty one is adopted, and one that holds rows is parked."""

from __future__ import annotations

import pytest

from applier.errors import TableMismatch
from tests.few import few
from tests.spark.feeds import read
from tests.spark.test_completeness import loaded
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def parked(make: Make) -> World:
    """A changefeed whose feed makes a table of which a row is there already."""
    world = make()
    loaded(world, "a", {99: "stray"})
    world.create("a")
    world.put("a", 1)
    world.create("b")
    world.put("b", 1)
    world.resolve()
    world.run()
    found = world.table("a")
    assert (found.state, world.keys("a"), world.in_cut()) == ("parked", {99}, {"b"})
    assert "holds rows that this changefeed has not written, and its CREATE TABLE has none" in str(found.because)
    return world


@pytest.mark.parametrize(
    ("way", "command"), few([("TRUNCATE TABLE", "resume --tables shop.a"), ("DROP TABLE", "run --once")])
)
def test_a_table_that_holds_rows_is_parked_until_it_is_emptied(make: Make, way: str, command: str) -> None:
    """An attempt mixes nothing; emptied or dropped, a command as printed brings the rows of the feed alone."""
    world = parked(make)
    told = world.obey(f"applier resume -c {world.path} --tables shop.a --take-over", code=3)
    assert "Empty it with TRUNCATE TABLE in your engine, or drop it, then start `applier run -c" in " ".join(
        told.split()
    )
    assert world.keys("a") == {99}

    world.spark.sql(f"{way} lake.{world.name}__shop.a")
    world.obey(f"applier {command} -c {world.path} --take-over")

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1}, {"a", "b"})


def test_a_table_that_holds_the_rows_of_upstream_is_adopted(make: Make) -> None:
    """The DDL that the feed has for it meanwhile are known; the table goes on from the resolved ts."""
    world = parked(make)
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.resolve()
    world.run()
    world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a ADD COLUMN w INT")

    world.obey(f"applier adopt -c {world.path} --tables shop.a --why 'it is upstream' --take-over")
    world.put("a", 2, w="5")
    world.resolve()
    world.run()

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {2, 99}, {"a", "b"})


def test_a_feed_that_stops_for_such_a_table_goes_on_once_the_table_counts_as_loaded(make: Make) -> None:
    """The way out that is printed there: every key is looked up, so nothing is there twice."""
    world = make(on_table_error="stop")
    loaded(world, "a", {1: "old", 99: "more"})
    world.create("a")
    world.put("a", 1)
    world.resolve()
    with pytest.raises(TableMismatch, match="holds rows that this changefeed has not written") as refused:
        world.run()
    assert 'set changefeed.start = "midstream" instead' in refused.value.hint

    world.settings["changefeed"]["start"] = "midstream"
    world.run()

    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 99})
    assert len(read(world.spark, (f"{world.name}__shop", "a"))) == 2


def test_an_empty_table_is_adopted(make: Make) -> None:
    """Nothing of it can be anyone's row."""
    world = make()
    loaded(world, "a", {99: "stray"})
    world.spark.sql(f"DELETE FROM lake.{world.name}__shop.a")
    world.create("a")
    world.put("a", 1)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.keys("a")) == ("in step", {1})


@pytest.mark.soak
def test_a_changefeed_that_was_forgotten_begins_again_on_no_tables(make: Make) -> None:
    """The steps of docs/operations.md: its tables stay as they are until they are dropped, also past an ALTER."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.ddl("ALTER TABLE a ADD COLUMN w INT DEFAULT 7")
    world.put("a", 2, w="8")
    world.resolve()
    world.run()
    world.obey(f"applier forget -c {world.path} --take-over")

    world.obey(f"applier run -c {world.path} --once")
    assert (world.table("a").state, world.keys("a")) == ("parked", {1, 2})
    world.spark.sql(f"DROP TABLE lake.{world.name}__shop.a PURGE")
    world.put("a", 3, w="9")
    world.resolve()
    world.obey(f"applier run -c {world.path} --once --take-over")

    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2, 3})


@pytest.mark.parametrize("order", few(["resolved", "offset"]))
def test_a_table_whose_drop_was_ignored_leaves_its_rows_to_no_other(make: Make, order: str) -> None:
    """The table that upstream makes under its name has none of them; they are kept beside it."""
    world = make(order=order)
    world.settings["ddl"] = {"drop-table": "ignore"}
    world.create("a")
    world.put("a", 1)
    world.ddl("DROP TABLE a")
    world.resolve()
    world.run(on_drop="drop")
    world.create("a")
    world.put("a", 2)
    world.resolve()

    world.run(on_drop="drop")

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {2}, {"a"})
    kept = [row.tableName for row in world.spark.sql(f"SHOW TABLES IN lake.{world.name}__shop").collect()]
    assert len(kept) == 2
