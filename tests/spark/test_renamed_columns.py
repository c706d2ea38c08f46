"""Renamed columns: readers see the names of the configuration, through DDL, keys, layouts, loads and new files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from applier.commands.plan.command import plan
from applier.sink.format.types import RENAMED_COLUMNS
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from tests.spark.feeds import read, sql_name
from tests.spark.world import KINDS, Make, World
from tests.unit.decode.dump import dumpling

pytestmark = pytest.mark.spark

CREATE = "CREATE TABLE a (id BIGINT PRIMARY KEY, c VARCHAR(9), v VARCHAR(9))"
NAMES = {"ID": "order_id", "v": "value"}


def ask(world: World, names: dict[str, str], **more: Any) -> None:
    """Let columns of all tables have other names."""
    world.settings.setdefault("tables", {})["shop.*"] = {"columns": {"rename": names}, **more}


def shown(world: World, name: str = "a") -> list[dict[str, Any]]:
    """The rows of a table as Spark reads them, by its first column."""
    rows = read(world.spark, (f"{world.name}__shop", name)).to_pylist()
    return sorted(rows, key=lambda row: str(next(iter(row.values()))))


def loaded(world: World, lake: Catalog, name: str = "a") -> Table:
    """The Iceberg table."""
    found = lake.load((f"{world.name}__shop", name))
    assert found is not None
    return found


def columns_of(table: Table) -> list[str]:
    """Names as Iceberg has them."""
    return [field["name"] for field in json.loads(table.schema_json)["fields"]]


def expected(world: World, **names: str) -> list[dict[str, Any]]:
    """The newest row of each key of table `a` by the raw messages, deletes left out, under other names."""
    rows: dict[str, dict[str, Any]] = {}
    for message in world.messages:
        if message["data"] and message["table"] == "a":
            row = dict(message["data"][0])
            rows.pop(row["id"], None)
            if message["type"] != "DELETE":
                rows[row["id"]] = row
    named = [{names.get(key, key): value for key, value in row.items()} for _, row in sorted(rows.items())]
    numbers = {names.get("id", "id"), names.get("w", "w")}
    return [{key: int(value) if key in numbers else value for key, value in row.items()} for row in named]


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_rows_go_on_under_other_names(make: Make, lake: Catalog, order: str) -> None:
    """Through updates and deletes by a renamed key, partitions and a sort order by renamed columns, and restarts; data
    files have the names as well.
    """
    world = make()
    world.settings["changefeed"] = {"order": order}
    ask(world, NAMES, partition_by=["bucket(2, id)", "v"], sort_by=["v desc"], metadata=["_op"])
    world.ddl(CREATE)
    for key in range(1, 7):
        world.put("a", key, c="x", v=f"v{key % 2}")
    world.resolve()
    world.start()
    world.put("a", 2, op="UPDATE", c="y", v="v1")
    world.put("a", 3, op="DELETE", c="x", v="v1")
    world.put("a", 9, c="z")
    world.resolve()
    world.start()
    rows = shown(world)
    assert {row.pop("_op") for row in rows} == {"insert", "update"}
    assert rows == expected(world, id="order_id", v="value")
    table = loaded(world, lake)
    columns = columns_of(table)
    assert sorted(columns) == ["_op", "c", "order_id", "value"]
    assert [part["name"] for part in table.spec_json["fields"]] == ["order_id_bucket_2", "value"]
    head = table.snapshot_id
    assert head is not None
    for file in table.scan(head):
        assert pq.read_schema(file.path.removeprefix("file:")).names == columns
    assert json.loads(table.properties[RENAMED_COLUMNS]) == {"order_id": "id", "value": "v"}
    where = sql_name(table.identifier)
    assert world.spark.sql(f"SELECT c FROM {where} WHERE value = 'v1' AND order_id = 2").collect()[0][0] == "y"


def test_a_living_table_gets_other_and_former_names_at_a_start(make: Make, lake: Catalog) -> None:
    """By a change of its metadata alone, which `plan` shows with its cost; a swap of two names as well."""
    world = make()
    world.ddl(CREATE)
    world.put("a", 1, 2, c="x")
    world.resolve()
    world.start()
    head = loaded(world, lake).snapshot_id
    for names, change, columns in (
        ({"v": "value", "c": "code"}, "column c called code, column v called value", ["id", "code", "value"]),
        ({"v": "code", "c": "value"}, "column c called value, column v called code", ["id", "value", "code"]),
        ({"id": "ID", "c": "value"}, "column id called ID, column v called v", ["ID", "value", "v"]),
        ({}, "column c called c, column id called id", ["id", "c", "v"]),
    ):
        ask(world, names)
        (due,) = plan(world.config).layouts
        assert (due.change, due.note) == (
            change,
            "It costs a change of metadata: files stay, and older snapshots keep their names.",
        )
        world.start()
        assert columns_of(loaded(world, lake)) == columns
        assert loaded(world, lake).snapshot_id == head
        assert plan(world.config).layouts == []
    ask(world, NAMES)
    world.start()
    world.put("a", 2, op="UPDATE", c="y")
    world.put("a", 3, c="y")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step"
    assert shown(world) == expected(world, id="order_id", v="value")


@pytest.mark.parametrize(
    ("sql", "columns", "values"),
    [
        ("ADD COLUMN w INT DEFAULT 8 AFTER v", ["order_id", "c", "value", "weight"], ["1", "x", "r1", 8]),
        ("DROP COLUMN v", ["order_id", "c"], ["1", "x"]),
        ("DROP COLUMN v, ADD COLUMN w INT DEFAULT 8 FIRST", ["weight", "order_id", "c"], [8, "1", "x"]),
        ("RENAME COLUMN v TO w", ["order_id", "c", "weight"], ["1", "x", "r1"]),
        ("RENAME COLUMN v TO z", ["order_id", "c", "z"], ["1", "x", "r1"]),
        ("MODIFY COLUMN v VARCHAR(20) COMMENT 'n' FIRST", ["value", "order_id", "c"], ["r1", "1", "x"]),
        ("MODIFY COLUMN v INT", ["order_id", "c", "value"], ["1", "x", 5]),
        ("RENAME COLUMN id TO k", ["key", "c", "value"], ["1", "x", "r1"]),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", ["order_id", "c", "value"], ["1", "x", "r1"]),
    ],
)
def test_ddl_of_renamed_columns(make: Make, lake: Catalog, sql: str, columns: list[str], values: list[Any]) -> None:
    """A column keeps its name in Iceberg while it has its name upstream, and else gets that of its new one."""
    world = make()
    ask(world, {**NAMES, "w": "weight", "k": "key"})
    world.ddl(CREATE)
    world.put("a", 1, c="x", v="5" if "INT" in sql and "w INT" not in sql else "r1")
    world.resolve()
    world.start()
    world.ddl(f"ALTER TABLE a {sql}")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    table = loaded(world, lake)
    assert columns_of(table) == columns
    rows = shown(world)
    assert [[str(cell) for cell in row.values()] for row in rows] == [list(map(str, values))]
    kinds = {"k": "bigint", "z": "varchar(9)"} | KINDS
    upstream = {"order_id": "id", "value": "v", "weight": "w", "key": "k"}
    names = [upstream.get(name, name) for name in columns]
    row = dict(zip(names, ["7"] * len(names), strict=True))
    if "MODIFY COLUMN v INT" in sql:
        kinds["v"] = "int"
    key = "k" if "k" in row else "id"
    message = {"table": "a", "type": "INSERT", "pkNames": [key], "mysqlType": {name: kinds[name] for name in row}}
    world.send({**message, "sqlType": dict.fromkeys(row, 12), "data": [row]})
    world.resolve()
    world.start()
    assert world.table("a").state == "in step", world.table("a")
    assert {"7"} in [set(map(str, row.values())) for row in shown(world)]
    assert plan(world.config).layouts == []


def test_a_column_upstream_with_the_name_of_another_in_iceberg_parks_its_table(make: Make) -> None:
    """A new table, and one that gets the column by a DDL; another name in the configuration heals both."""
    world = make()
    ask(world, {"v": "C"})
    world.ddl(CREATE)
    world.create("b")
    world.put("b", 1)
    world.put("a", 1, c="x")
    world.resolve()
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "Column v of table shop.a is called C in Iceberg, and it has a column c" in str(line.because)
    assert 'Choose a name that none has in `rename` of [tables."shop.*".columns]' in str(line.way_out)
    world.ddl("ALTER TABLE b ADD COLUMN c VARCHAR(9)", "b")
    world.resolve()
    world.start()
    line = world.table("b")
    assert line.state == "parked"
    assert "Column v of table shop.b is called C in Iceberg, and it has a column c" in str(line.because)


def test_a_column_of_others_with_the_name_is_reported(make: Make, lake: Catalog) -> None:
    """The layout is refused, and the table goes on under its former names."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.spark.sql(f"ALTER TABLE {sql_name((f'{world.name}__shop', 'a'))} ADD COLUMN Value INT")
    ask(world, NAMES)
    logs = world.obey(f"applier run -c {world.path} --once --take-over")
    assert "Column v of table" in logs
    assert "cannot be called value: it has a column Value" in logs
    world.put("a", 2)
    world.resolve()
    world.start()
    assert columns_of(loaded(world, lake)) == ["id", "v", "Value"]
    assert world.keys("a") == {1, 2}


def test_renamed_by_hand_is_parked(make: Make) -> None:
    """As any column is."""
    world = make()
    ask(world, NAMES)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.spark.sql(f"ALTER TABLE {sql_name((f'{world.name}__shop', 'a'))} RENAME COLUMN value TO other")
    world.put("a", 2)
    world.resolve()
    world.start()
    assert world.table("a").state == "parked"
    assert "Others have dropped or renamed column v of table" in str(world.table("a").because)


def test_compaction_and_a_table_that_is_built_anew(make: Make, lake: Catalog) -> None:
    """Files that Spark rewrites are read on, and `applier resume` builds a table under the names."""
    world = make()
    ask(world, NAMES)
    world.ddl(CREATE)
    for key in (1, 2, 3):
        world.put("a", key, c="x")
        world.resolve()
        world.start()
    table = loaded(world, lake)
    name = ".".join(table.identifier)
    options = "map('rewrite-all', 'true')"
    world.spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})")
    world.put("a", 2, op="UPDATE", c="y")
    world.resolve()
    world.start()
    assert shown(world) == expected(world, id="order_id", v="value")
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.spark.sql(f"DROP TABLE {sql_name(table.identifier)}")
    world.put("a", 4, c="y")
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert columns_of(loaded(world, lake)) == ["order_id", "c", "value"]
    assert shown(world) == expected(world, id="order_id", v="value")


def test_a_load_brings_rows_under_other_names(make: Make, tmp_path: Path, lake: Catalog) -> None:
    """With a key that is renamed, which Spark looks at; `verify` compares them by their names upstream."""
    world = make()
    ask(world, NAMES)
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    world.resolve()
    world.start()
    folder, tso = tmp_path / "export", world.resolve()
    folder.mkdir()
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    declared = "CREATE TABLE `a` (`id` bigint NOT NULL, `c` varchar(9), `v` varchar(9), PRIMARY KEY (`id`));\n"
    (folder / "shop.a-schema.sql").write_text(declared)
    (folder / "shop.a.000000000.csv").write_text('"id","c","v"\n1,"x","one"\n2,"y","two"\n')
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.obey(f"applier load -c {world.path} --from {folder} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert columns_of(loaded(world, lake)) == ["order_id", "c", "value"]
    rows = [{"order_id": 1, "c": "x", "value": "one"}, {"order_id": 2, "c": "y", "value": "two"}]
    assert shown(world) == rows
    assert "equal" in world.obey(f"applier verify -c {world.path} --against {folder}")


def test_changes_and_kept_ids_follow_the_names(make: Make, lake: Catalog) -> None:
    """A table of changes has the names of its table, through a start with other ones and RENAME TABLE to a pattern of
    its own; updated rows keep their ids.
    """
    world = make()
    more = {"history": "images", "row_ids": "keep"}
    ask(world, NAMES, **more)
    world.settings["tables"]["shop.b"] = {"columns": {"rename": {"c": "code"}}, **more}
    world.ddl(CREATE)
    world.put("a", 1, 2, c="x")
    world.put("a", 1, op="UPDATE", c="y")
    world.resolve()
    world.start()
    ids = row_ids(world)
    ask(world, {"id": "number"}, **more)
    world.start()
    world.put("a", 2, op="UPDATE", c="z")
    world.resolve()
    world.start()
    assert row_ids(world) == ids
    for name in ("a", "a__changes"):
        assert columns_of(loaded(world, lake, name))[:3] == ["number", "c", "v"]
    assert kept(world, "a__changes", "number", "c") == [(1, "x"), (1, "y"), (1, "y"), (2, "x"), (2, "z"), (2, "z")]
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 3, c="w")
    world.put("b", 2, op="DELETE", c="z")
    world.resolve()
    world.start()
    world.put("b", 1, op="UPDATE", c="u")
    world.resolve()
    world.start()
    for name in ("b", "b__changes"):
        assert columns_of(loaded(world, lake, name))[:3] == ["id", "code", "v"]
    assert kept(world, "b", "id", "code") == [(1, "u"), (3, "w")]
    shown_changes = kept(world, "b__changes", "id", "code")
    assert shown_changes[:5] == [(1, "u"), (1, "u"), (1, "x"), (1, "y"), (1, "y")]
    assert len(shown_changes) == 10
    assert {world.table("b").state} == {"in step"}
    assert plan(world.config).layouts == []


def row_ids(world: World) -> dict[Any, int]:
    """The id of each row of table `a`, by its key."""
    name = sql_name((f"{world.name}__shop", "a"))
    rows = world.spark.sql(f"SELECT *, _row_id FROM {name}").collect()
    return {row[0]: row["_row_id"] for row in rows}


def kept(world: World, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of all rows, in order."""
    rows = read(world.spark, (f"{world.name}__shop", table)).select(list(columns)).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_a_table_of_format_2_is_read_and_repaired_under_other_names(make: Make, lake: Catalog) -> None:
    """`applier backfill --repair` compares and puts right what another writer removed, by the names upstream."""
    world = make()
    ask(world, NAMES)
    world.settings["tables"]["format_version"] = 2
    world.ddl(CREATE)
    world.put("a", 1, 2, 3, c="x")
    world.put("a", 2, op="UPDATE", c="y")
    world.resolve()
    world.start()
    world.put("a", 3, op="DELETE", c="x")
    world.resolve()
    world.start()
    wanted = expected(world, id="order_id", v="value")
    assert shown(world) == wanted
    world.spark.sql(f"DELETE FROM {sql_name((f'{world.name}__shop', 'a'))} WHERE order_id = 2")
    world.obey(f"applier backfill -c {world.path} --from beginning --repair --tables shop.a")
    assert shown(world) == wanted
    assert columns_of(loaded(world, lake)) == ["order_id", "c", "value"]
