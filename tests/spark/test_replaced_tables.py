"""A table whose name another one takes, or whose copy is gone, is never shown as whole with a part of its rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from applier.runtime import failpoints
from applier.sink.iceberg.catalog import Catalog
from tests.spark.test_resume import begun
from tests.spark.world import Make, World

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
