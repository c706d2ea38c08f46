"""Columns that say which change made a row: on new tables, living ones, through DDL, a rebuild and a taken name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from applier.commands.plan.command import plan
from applier.sink.format.types import ADDED_COLUMNS
from applier.sink.iceberg.catalog import Catalog
from tests.spark.feeds import read
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

COLUMNS = ["_commit_ts", "_op", "_source_table"]


def ask(world: World, *columns: str, pattern: str = "shop.*") -> None:
    """Let tables have metadata columns."""
    world.settings.setdefault("tables", {})[pattern] = {"metadata": list(columns)}


def shown(world: World, name: str = "a", *columns: str) -> dict[int, tuple[Any, ...]]:
    """Of each row, by its id, what its metadata columns hold."""
    rows = read(world.spark, (f"{world.name}__shop", name)).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: tuple(row[column] for column in columns or COLUMNS) for row in rows}


def test_a_new_table_says_which_change_made_each_row(make: Make) -> None:
    """Through updates in one step and in several, DDL, compaction, a rename and a rebuild."""
    world = make()
    world.settings["maintenance"] = {"small_files": 2, "share": 1.0}
    ask(world, *COLUMNS)
    world.create("a")
    first, second, third = (world.put("a", key) for key in (1, 2, 3))
    second = world.put("a", 2, op="UPDATE")
    world.resolve()
    world.start()
    named = "shop.a"
    wanted = {1: (first, "insert", named), 2: (second, "update", named), 3: (third, "insert", named)}
    assert shown(world) == wanted

    wanted[1] = (world.put("a", 1, op="UPDATE"), "update", named)
    world.put("a", 3, op="DELETE")
    del wanted[3]
    world.ddl("ALTER TABLE a ADD COLUMN w INT FIRST")
    world.resolve()
    world.start()
    assert shown(world) == wanted
    world.ddl("RENAME TABLE a TO b")
    wanted[4] = (world.put("b", 4), "insert", "shop.b")
    world.resolve()
    world.start()
    assert shown(world, "b") == wanted

    world.obey("applier park -c FILE --tables shop.b --why test".replace("FILE", str(world.path)))
    wanted[1] = (world.put("b", 1, op="UPDATE"), "update", "shop.b")
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.b")
    world.start()
    assert shown(world, "b") == wanted
    assert world.table("b").state == "in step"


def test_a_living_table_gets_the_columns_at_the_next_start(make: Make, lake: Catalog) -> None:
    """Rows of before hold NULL until they change; no file is written anew; off the list, a column is filled on."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    ask(world, *COLUMNS)
    (due,) = plan(world.config).layouts
    assert (due.change, due.note) == (
        "with _commit_ts, _op, _source_table",
        "It costs a change of metadata, which counts for each row from its next change on.",
    )
    before = lake.load((f"{world.name}__shop", "a"))
    assert before is not None
    world.start()
    assert plan(world.config).layouts == []
    found = lake.load(before.identifier)
    assert found is not None
    assert found.snapshot_id == before.snapshot_id
    assert shown(world) == dict.fromkeys((1, 2), (None, None, None))

    changed = world.put("a", 2, op="UPDATE")
    world.resolve()
    world.start()
    wanted = {1: (None, None, None), 2: (changed, "update", "shop.a")}
    assert shown(world) == wanted
    ask(world, "_op")
    wanted[3] = (world.put("a", 3), "insert", "shop.a")
    world.resolve()
    world.start()
    assert shown(world) == wanted


def test_equal_rows_of_a_table_without_a_key_are_one_row_each(make: Make) -> None:
    """Which change brought a row does not tell it from an equal one, which a later delete may take away."""
    world = make()
    ask(world, *COLUMNS)
    world.ddl("CREATE TABLE a (id BIGINT, v VARCHAR(9))")
    kinds = {"id": "bigint", "v": "varchar(9)"}

    def change(op: str, key: int, old: int = 0) -> int:
        row = {"id": str(key), "v": "x"}
        message = {"table": "a", "type": op, "pkNames": None, "mysqlType": kinds, "sqlType": dict.fromkeys(row, 12)}
        former = {"old": [{"id": str(old), "v": "x"}]} if op == "UPDATE" else {}
        return world.send({**message, "data": [row], **former})

    change("INSERT", 1)
    change("INSERT", 1)
    last = change("INSERT", 1)
    world.resolve()
    world.start()
    rows = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert [(row["id"], row["_commit_ts"], row["_op"]) for row in rows] == [(1, last, "insert")] * 3
    change("DELETE", 1)
    changed = change("UPDATE", 2, 1)
    world.resolve()
    world.start()
    rows = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    found = sorted((row["id"], row["_commit_ts"], row["_op"]) for row in rows)
    assert found == [(1, last, "insert"), (2, changed, "update")]


@pytest.mark.parametrize("when", ["new", "living", "by DDL"])
def test_a_name_that_upstream_has_is_refused_by_name(make: Make, lake: Catalog, when: str) -> None:
    """Nothing of upstream is lost, and the other tables go on."""
    world = make()
    has, lacks = "id BIGINT PRIMARY KEY, v VARCHAR(9), _OP INT", "id BIGINT PRIMARY KEY, v VARCHAR(9)"
    if when != "living":
        ask(world, "_op")
    world.ddl(f"CREATE TABLE a ({lacks if when == 'by DDL' else has})")
    world.create("b")
    world.put("b", 1)
    world.resolve()
    world.start()
    if when == "living":
        ask(world, "_op", pattern="shop.a")
        (due,) = plan(world.config).layouts
        wanted = (
            f"Table {world.name}__shop.a cannot get its metadata columns: it has a column _OP that applier did not add"
        )
        assert due.note.startswith(wanted)
        world.start()
        assert world.table("a").state == "empty"
    else:
        if when == "by DDL":
            world.ddl("ALTER TABLE a ADD COLUMN _OP INT")
            world.resolve()
            world.start()
        assert world.table("a").state == "parked"
        assert re.search("column _OP", str(world.table("a")).replace("Column", "column"))
    assert world.keys("b") == {1}
    if when == "by DDL":
        table = lake.load((f"{world.name}__shop", "a"))
        assert table is not None
        assert table.properties[ADDED_COLUMNS] == "_op"
