"""Names in Iceberg that pass from one column to another: each cell stays that of its column."""

from __future__ import annotations

import json

import pytest

from applier.sink.format.types import RENAMED_COLUMNS
from applier.sink.iceberg.catalog import Catalog
from tests.spark.test_renamed_columns import CREATE, ask, columns_of, loaded, shown
from tests.spark.world import Make

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("names", [{"c": "value"}, {}])
def test_the_name_of_an_excluded_column_is_free(make: Make, lake: Catalog, names: dict[str, str]) -> None:
    """For another column of the configuration, and for one that upstream adds."""
    world = make()
    ask(world, {"v": "value"})
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    world.resolve()
    world.start()
    world.settings["tables"]["shop.*"] = {"columns": {"exclude": ["v"], "rename": names}}
    world.start()
    world.put("a", 2, c="y")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    assert shown(world) == [{"id": 1, names.get("c", "c"): "x"}, {"id": 2, names.get("c", "c"): "y"}]
    assert json.loads(loaded(world, lake).properties[RENAMED_COLUMNS] or "{}") == {
        new: old for old, new in names.items()
    }
    if names:
        return
    world.ddl("ALTER TABLE a ADD COLUMN value VARCHAR(9)")
    world.resolve()
    world.send_row("a", {"id": "3", "c": "z", "v": "no", "value": "yes"}, {"value": "varchar(9)"})
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    assert shown(world)[2] == {"id": 3, "c": "z", "value": "yes"}


def test_flashback_brings_cells_back_to_their_columns(make: Make, lake: Catalog) -> None:
    """Though their names were changed, one for the other, since the TRUNCATE."""
    world = make()
    ask(world, {"c": "one", "v": "two"})
    world.ddl(CREATE)
    world.put("a", 1, c="x", v="y")
    world.ddl("TRUNCATE TABLE a")
    world.resolve()
    world.start()
    ask(world, {"c": "two", "v": "one"})
    world.start()
    assert columns_of(loaded(world, lake)) == ["id", "two", "one"]
    world.ddl("FLASHBACK TABLE a TO b", "b")
    world.resolve()
    world.start()
    assert shown(world, "b") == [{"id": 1, "two": "x", "one": "y"}]


def test_rows_that_change_places_keep_their_cells(make: Make) -> None:
    """Rows that change places between tables of other names keep their cells."""
    world = make()
    world.settings["tables"] = {
        "shop.a": {"columns": {"rename": {"c": "one", "v": "two"}}},
        "shop.b": {"columns": {"rename": {"c": "two", "v": "one"}}},
    }
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    world.ddl(f"{CREATE} {parts}")
    world.ddl(CREATE.replace("TABLE a", "TABLE b"), "b")
    world.put("a", 1, 11, c="x", v="y")
    world.put("b", 2, c="p", v="q")
    world.resolve()
    world.start()
    world.ddl("ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE b")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    assert shown(world, "b") == [{"id": 1, "two": "x", "one": "y"}]
    assert shown(world, "a") == [{"id": 11, "one": "x", "two": "y"}, {"id": 2, "one": "p", "two": "q"}]


@pytest.mark.parametrize(
    ("sql", "names"), [("ADD COLUMN value VARCHAR(9)", {}), ("RENAME COLUMN c TO value", {"v": "other"})]
)
def test_a_column_gives_its_name_way(make: Make, sql: str, names: dict[str, str]) -> None:
    """To the one of that name upstream, once the configuration gives another one and the table is resumed."""
    world = make()
    ask(world, {"v": "value"})
    world.ddl(CREATE)
    world.put("a", 1, c="x", v="y")
    world.resolve()
    world.start()
    world.ddl(f"ALTER TABLE a {sql}")
    world.resolve()
    world.start()
    assert world.table("a").state == "parked"
    ask(world, names)
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    own = names.get("v", "v")
    assert shown(world) == [
        {"id": 1, "c": "x", own: "y", "value": None} if "ADD" in sql else {"id": 1, "value": "x", own: "y"}
    ]


KEYED = "CREATE TABLE a (id BIGINT, v VARCHAR(9) NOT NULL, c VARCHAR(9) NOT NULL, PRIMARY KEY (id, v))"


def test_columns_of_a_key_swap_names(make: Make, lake: Catalog) -> None:
    """They stay the key: in Iceberg, whose renames go by names, and for the rows that follow."""
    world = make()
    ask(world, {"id": "one", "v": "two"})
    world.ddl(KEYED)
    world.resolve()
    world.start()
    for names in ({"id": "two", "v": "one"}, {"id": "x", "c": "two"}, {"id": "two", "c": "x"}):
        ask(world, names)
        world.start()
        table = loaded(world, lake)
        assert columns_of(table) == [names.get(each, each) for each in ("id", "v", "c")]
        assert table.schema.identifier == ("id", "v")


def test_columns_of_a_key_take_the_names_of_others(make: Make, lake: Catalog) -> None:
    """By a DDL that renames some in a row."""
    world = make()
    world.ddl(KEYED)
    world.put("a", 1, c="x", v="y")
    world.resolve()
    world.start()
    world.ddl("ALTER TABLE a RENAME COLUMN v TO w, RENAME COLUMN id TO v")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    assert loaded(world, lake).schema.identifier == ("v", "w")
