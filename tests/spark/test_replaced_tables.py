"""A table whose name others give to another one, or whose copy is gone, never has a part of its rows or other ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from applier.runtime import failpoints
from applier.sink.iceberg.catalog import Catalog
from tests.spark.test_resume import begun
from tests.spark.world import Make, World
from tests.unit.decode.dump import dumpling

pytestmark = pytest.mark.spark


def behind(make: Make) -> World:
    """A changefeed with a table that was parked and has missed a row."""
    world = begun(make, "a", "b")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.run()
    return world


def caught_up(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Let others do something once, when the copy is up to date and readers do not see it yet."""
    reach, due = failpoints.reach, ["resume-range-read"]

    def others(point: str) -> None:
        if point in due:
            due.remove(point)
            work()
        reach(point)

    monkeypatch.setattr(failpoints, "reach", others)


def replace(world: World) -> None:
    """Another table takes the name of `a`, which goes to `kept`."""
    space = f"{world.name}__shop"
    Catalog(world.spark, "lake").rename((space, "a"), (space, "kept"))
    world.spark.sql(f"CREATE TABLE lake.{space}.a (id BIGINT NOT NULL, v STRING) USING iceberg")
    world.spark.sql(f"INSERT INTO lake.{space}.a VALUES (7, 'mine')")


def bring_back(world: World) -> None:
    """The way out of the hint: `a` gets its name back."""
    catalog, space = Catalog(world.spark, "lake"), f"{world.name}__shop"
    catalog.drop((space, "a"))
    catalog.rename((space, "kept"), (space, "a"))


@pytest.mark.soak
def test_a_table_whose_copy_others_drop_is_brought_back_anew(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shown as whole, without the row that its copy had."""
    world = behind(make)
    catalog, space = Catalog(world.spark, "lake"), (f"applier_{world.name}__resume",)

    def drop() -> None:
        for copy in catalog.list(space):
            catalog.drop(copy)

    caught_up(monkeypatch, drop)

    world.obey(f"applier resume -c {world.path} --tables shop.a")

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


def test_a_table_that_is_replaced_while_its_copy_catches_up_is_refused_by_name(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is not shown as the other table, nor is that one brought up to date; the way out does what it says."""
    world = behind(make)
    caught_up(monkeypatch, lambda: replace(world))

    told = world.obey(f"applier resume -c {world.path} --tables shop.a", code=3)

    assert "is not the one that was parked: it was replaced, or another one has its name" in told
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("parked", {7}, {"b"})
    bring_back(world)
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


@pytest.mark.soak
def test_tables_that_others_replace_while_the_applier_is_stopped_stay_parked_at_every_start(make: Make) -> None:
    """The second start took the others for them, as the first one had parked them; restored, they come back."""
    world = begun(make, "a", "b")
    replace(world)
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()

    for _ in range(2):
        world.start()
        assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("parked", {7}, {"b"})

    bring_back(world)
    world.start()
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


def rename(world: World, *pairs: str) -> None:
    """Others rename tables: `a b` makes `b` of `a`."""
    catalog, space = Catalog(world.spark, "lake"), f"{world.name}__shop"
    for table, to in map(str.split, pairs):
        catalog.rename((space, table), (space, to))


@pytest.mark.soak
def test_live_tables_whose_names_others_swap_take_no_rows_of_each_other(make: Make) -> None:
    """Each has this changefeed's stamps, one no snapshot yet; given their names back, they are brought up to date."""
    world = begun(make, "a", "b")
    world.create("c")
    world.resolve()
    world.start()
    rename(world, "a between", "b a", "c b", "between c")
    world.put("a", 3)
    world.put("b", 4)
    world.put("c", 5)
    world.resolve()

    for _ in range(2):
        world.start()
        assert {world.table(name).state for name in "abc"} == {"parked"}
        assert (world.keys("a"), world.keys("b"), world.keys("c"), world.in_cut()) == ({1, 2}, set(), {1, 2}, set())
    assert all("is not the one that" in str(world.table(name).because) for name in "abc")

    rename(world, "c between", "b c", "a b", "between a")
    world.obey(f"applier resume -c {world.path} --tables shop.a,shop.b,shop.c")
    world.start()
    assert {world.table(name).state for name in "abc"} == {"in step"}
    assert (world.keys("a"), world.keys("b"), world.keys("c")) == ({1, 2, 3}, {1, 2, 4}, {5})


@pytest.mark.soak
def test_a_table_that_gets_the_name_of_one_that_others_dropped_can_be_loaded_anew(make: Make, tmp_path: Path) -> None:
    """The printed command makes either table whole again, whatever has its name."""
    world = begun(make, "a", "b")
    world.start()
    Catalog(world.spark, "lake").drop((f"{world.name}__shop", "a"))
    rename(world, "b a")
    tso = world.resolve()
    world.put("a", 3)
    world.put("b", 4)
    world.resolve()

    world.start()

    assert {world.table(name).state for name in "ab"} == {"parked"}
    assert world.keys("a") == {1, 2}
    (tmp_path / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    for table, key in (("a", "11"), ("b", "12")):
        declared = f"CREATE TABLE `{table}` (\n  `id` bigint NOT NULL,\n  `v` varchar(9),\n  PRIMARY KEY (`id`)\n);\n"
        (tmp_path / f"shop.{table}-schema.sql").write_text(declared)
        (tmp_path / f"shop.{table}.000000000.sql").write_bytes(dumpling.sql([[key, "x"]], escapes=True))
    world.obey(f"applier load -c {world.path} --from {tmp_path} --tables shop.a,shop.b")
    for _ in range(2):
        world.start()
        assert {world.table(name).state for name in "ab"} == {"in step"}
        assert (world.keys("a"), world.keys("b")) == ({11, 3}, {12, 4})


@pytest.mark.soak
def test_tables_whose_names_the_feed_swaps_are_what_the_next_start_expects(make: Make) -> None:
    """What a table is goes with its name, also through a DROP and a CREATE TABLE of the same name."""
    world = begun(make, "a", "b", "c")
    world.start()
    for sql in ("RENAME TABLE a TO d", "RENAME TABLE b TO a", "RENAME TABLE d TO b", "DROP TABLE c"):
        world.ddl(sql)
    world.create("c")
    world.put("a", 3)
    world.put("b", 4)
    world.put("c", 5)
    world.resolve()
    world.start()
    world.put("a", 6)
    world.resolve()
    world.start()

    assert {world.table(name).state for name in "abc"} == {"in step"}
    assert (world.keys("a"), world.keys("b"), world.keys("c")) == ({1, 2, 3, 6}, {1, 2, 4}, {5})


def test_tables_whose_joined_names_are_one_are_loaded_at_once(make: Make, tmp_path: Path) -> None:
    """`a__b.c` and `a.b__c` were loaded into one place, and each took what it found there for its own."""
    world, tables = make(start="midstream"), (("a__b", "c"), ("a", "b__c"))
    tso = world.resolve()
    (tmp_path / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    for key, (database, table) in enumerate(tables):
        declared = f"CREATE TABLE `{table}` (\n  `id` bigint NOT NULL,\n  PRIMARY KEY (`id`)\n);\n"
        (tmp_path / f"{database}-schema-create.sql").write_text(f"CREATE DATABASE `{database}`;\n")
        (tmp_path / f"{database}.{table}-schema.sql").write_text(declared)
        (tmp_path / f"{database}.{table}.000000000.sql").write_bytes(dumpling.sql([[str(key)]], escapes=True))

    world.obey(f"applier load -c {world.path} --from {tmp_path}")
    world.run()

    found = [
        world.spark.table(f"lake.`{world.name}__{database}`.`{table}`").select("id").collect()
        for database, table in tables
    ]
    assert [[row[0] for row in rows] for rows in found] == [[0], [1]]
