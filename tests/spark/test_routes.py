"""Tables go where the route of their pattern says, through renames, rebuilds and a change of the route."""

from __future__ import annotations

import pytest

from applier.errors import TableMismatch
from applier.pipeline.tables.rerouted import RouteChanged
from applier.sink.iceberg.catalog import Catalog
from tests.spark.feeds import read, sql_name
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def send(world: World, pattern: str, namespace: str) -> None:
    """Send the tables of a pattern to a namespace of the world."""
    tables = world.settings.setdefault("tables", {})
    tables[pattern] = {"route": f"{world.name}_{namespace}.{{database}}_{{table}}"}


def keys(world: World, namespace: str, table: str) -> list[int]:
    """Keys of the rows of a table in a namespace of the world."""
    return sorted(row["id"] for row in read(world.spark, (f"{world.name}_{namespace}", table)).to_pylist())


def test_a_table_goes_where_its_most_specific_pattern_says(make: Make, lake: Catalog) -> None:
    """Others go as tables.route says; a rename takes a table to its new place, and a rebuild leaves it there."""
    world = make()
    send(world, "shop.*", "all")
    send(world, "shop.a", "one")
    world.settings["tables"]["shop.c"] = {"sort_by": ["id"]}
    for name in "abc":
        world.create(name)
        world.put(name, 1)
    world.resolve()
    world.start()
    assert (keys(world, "one", "shop_a"), keys(world, "all", "shop_b"), world.keys("c")) == ([1], [1], {1})
    assert {world.table(name).iceberg for name in "abc"} == {
        f"{world.name}_one.shop_a",
        f"{world.name}_all.shop_b",
        f"{world.name}__shop.c",
    }

    world.ddl("RENAME TABLE a TO d")
    world.put("d", 2)
    world.resolve()
    world.start()
    assert keys(world, "all", "shop_d") == [1, 2]
    assert lake.load((f"{world.name}_one", "shop_a")) is None
    world.obey(f"applier park -c {world.path} --tables shop.d --why test")
    world.put("d", 3)
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.d")
    world.start()
    assert (keys(world, "all", "shop_d"), world.table("d").state) == ([1, 2, 3], "in step")


def test_two_tables_that_go_to_one_are_refused(make: Make) -> None:
    """Before anything is written."""
    world = make()
    world.settings["tables"] = {"shop.a": {"route": f"{world.name}__shop.b_{{table}}"}}
    world.settings["tables"]["shop.b_a"] = {"route": f"{world.name}__shop.{{table}}"}
    world.create("a")
    world.create("b_a")
    world.resolve()
    with pytest.raises(TableMismatch, match=r"Upstream tables shop.a and shop.b_a both go to .*\.b_a"):
        world.run()


def test_a_living_table_follows_a_changed_route_once_it_is_renamed(make: Make) -> None:
    """Until then every command says so: a table that is begun anew would lack rows. Set back, all goes on."""
    world = make()
    for name in "abc":
        world.create(name)
    for name in "ab":
        world.put(name, 1)
    world.resolve()
    world.start()
    send(world, "shop.a", "new")
    world.put("a", 2)
    world.resolve()
    refused = f"The checkpoint lists {world.name}__shop.a, where no table goes any more: a route under"
    for command in ("run --once", "plan", "status"):
        assert refused in world.obey(f"applier {command} -c {world.path}", 2)
    with pytest.raises(RouteChanged, match=refused):
        world.run()
    assert "where no table goes any more" in " ".join(world.obey(f"applier check -c {world.path}", 1).split())
    there = world.settings["tables"].pop("shop.a")
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2})

    world.settings["tables"]["shop.a"] = there
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {sql_name((f'{world.name}_new',))}")
    where = sql_name((f"{world.name}__shop", "a"))
    world.spark.sql(f"ALTER TABLE {where} RENAME TO `{world.name}_new`.shop_a")
    assert world.table("a").state == "in step"
    world.put("a", 3)
    world.resolve()
    world.start()
    assert (world.table("a").state, keys(world, "new", "shop_a")) == ("in step", [1, 2, 3])
    assert any(f"{world.name}_new" in query for query in world.status().cut)
    world.start()
