"""Columns that say which change made a row: on new tables, living ones, through DDL, a rebuild and a taken name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from applier.commands.plan.command import plan
from applier.sink.format.types import ADDED_COLUMNS
from applier.sink.iceberg.catalog import Catalog
from tests.spark.feeds import read, sql_name
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


def test_a_column_that_others_made_under_its_name_is_theirs(make: Make) -> None:
    """A user dropped one, another writer took its name for another type, and upstream wants that of a third."""
    world = make()
    ask(world, "_op", "_commit_ts", "_source_table")
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    name = sql_name((f"{world.name}__shop", "a"))
    world.spark.sql(f"ALTER TABLE {name} DROP COLUMNS _op, _commit_ts")
    world.spark.sql(f"ALTER TABLE {name} ADD COLUMN _op INT")
    world.spark.sql(f"UPDATE {name} SET _op = 7")
    world.settings["tables"].clear()
    world.put("a", 1, op="UPDATE")
    world.put("a", 2)
    world.resolve()
    world.start()
    assert shown(world, "a", "_op", "_source_table") == {1: (7, "shop.a"), 2: (None, "shop.a")}
    assert world.table("a").state == "in step"

    world.ddl("ALTER TABLE a ADD COLUMN _commit_ts BIGINT")
    world.resolve()
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "Column _commit_ts has the name of a column that applier added" in str(line.because)
    assert f"remove its name from the property `{ADDED_COLUMNS}`" in str(line.way_out)
    world.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{ADDED_COLUMNS}' = '_source_table')")
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert shown(world, "a", "_commit_ts", "_op", "_source_table") == {
        1: (None, 7, "shop.a"),
        2: (None, None, "shop.a"),
    }


def test_a_column_that_files_are_partitioned_by_is_missed_by_name(make: Make) -> None:
    """Iceberg lists no file of such a table; the others go on, and after a rewrite of its files it can be dropped."""
    world = make()
    world.settings["tables"] = {"shop.*": {"metadata": ["_op", "_commit_ts"], "partition_by": ["_op"]}}
    for name in ("a", "b"):
        world.create(name)
        world.put(name, 1)
    world.resolve()
    world.start()
    world.settings["tables"] = {"shop.*": {"partition_by": []}}
    world.start()
    call = (
        f"CALL lake.system.rewrite_data_files(table => '{world.name}__shop.b', options => map('rewrite-all', 'true'))"
    )
    world.spark.sql(call)
    for name in ("a", "b"):
        table = sql_name((f"{world.name}__shop", name))
        world.spark.sql(f"ALTER TABLE {table} DROP COLUMN _op")
        world.spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{ADDED_COLUMNS}')")
        world.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{ADDED_COLUMNS}' = '_commit_ts')")
        last = world.put(name, 2)
    world.resolve()
    world.start()
    assert world.table("b").state == "in step"
    assert shown(world, "b", "_commit_ts")[2] == (last,)
    line = world.table("a")
    assert line.state == "parked"
    assert "Others have dropped a column that files of table" in str(line.because)
    assert "applier resume" in str(line.way_out)
    world.spark.sql(f"DROP TABLE {sql_name((f'{world.name}__shop', 'a'))}")
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert world.keys("a") == {1, 2}
