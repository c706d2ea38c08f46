"""How tables lie: partitions, order and properties by the configuration, on new tables, living ones and through DDL."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from applier.commands.plan.command import plan
from applier.commands.plan.report import render
from applier.config.tables import TablesSection
from applier.pipeline.tables import layouts
from applier.sink.iceberg.catalog import Catalog, Table
from applier.sink.iceberg.layout import partition_of
from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.feeds import read, sql_name
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

DATED = "CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT, d DATETIME)"
TYPES = {"id": "bigint", "v": "varchar(9)", "w": "int", "d": "datetime"}


def table(world: World, lake: Catalog, name: str = "a") -> Table:
    """An Iceberg table as it is now."""
    found = lake.load((f"{world.name}__shop", name))
    assert found is not None
    return found


def spec(found: Table) -> list[str]:
    """Its partition fields, as the configuration writes them."""
    return [str(part) for part in partition_of(found).values()]


def lie(world: World, pattern: str = "shop.a", **layout: Any) -> None:
    """Give tables a layout."""
    world.settings.setdefault("tables", {})[pattern] = layout


def send(world: World, op: str, key: int, v: str = "x", w: int = 1, d: str = "2024-02-29 01:30:00") -> None:
    """A change of a row of a table with dates."""
    row = {"id": str(key), "v": v, "w": str(w), "d": d}
    told = {"table": "a", "type": op, "pkNames": ["id"], "mysqlType": TYPES, "sqlType": dict.fromkeys(row, 12)}
    world.send({**told, "data": [row], **({"old": [{"v": "before"}]} if op == "UPDATE" else {})})


def contents(world: World, spark: SparkSession) -> dict[int, tuple[str, int, str]]:
    """Rows of that table as Spark reads them, each once."""
    rows = read(spark, (f"{world.name}__shop", "a")).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["v"], row["w"], str(row["d"])) for row in rows}


def keys_where(world: World, spark: SparkSession, condition: str) -> list[int]:
    """Keys of some rows, which Spark looks for in their partitions alone."""
    frame = spark.table(sql_name((f"{world.name}__shop", "a"))).where(condition)
    return sorted(row["id"] for row in frame.collect())


@pytest.mark.parametrize("version", few([3, 2]))
def test_a_row_that_moves_between_partitions_is_right(
    make: Make, lake: Catalog, spark: SparkSession, version: int
) -> None:
    """An update that changes every partition value leaves the row once, where its new values belong."""
    world = make()
    by = ["month(d)", "bucket(4, v)", "truncate(10, w)", "v"]
    lie(world, "shop.*", partition_by=by, sort_by=["d desc", "v"], properties={"write.parquet.page-row-limit": "100"})
    world.ddl(DATED)
    for key in range(6):
        send(world, "INSERT", key, f"v{key % 2}", key * 7)
    world.resolve()
    world.run(format_version=version)
    send(world, "UPDATE", 1, "moved", 99, "1969-12-31 23:59:59")
    send(world, "UPDATE", 2, "v0", 14)
    send(world, "DELETE", 3)
    world.resolve()
    world.run()

    day = "2024-02-29 01:30:00"
    wanted = {key: (f"v{key % 2}", key * 7, day) for key in (0, 2, 4, 5)} | {1: ("moved", 99, "1969-12-31 23:59:59")}
    assert contents(world, spark) == wanted
    for where in ("d < '1970-01-01'", "v = 'moved'", "w BETWEEN 90 AND 99"):
        assert keys_where(world, spark, where) == [1]
    assert keys_where(world, spark, "v = 'v1'") == [5]
    found = table(world, lake)
    assert (spec(found), [*map(str, found.file_layout.sort or ())]) == (by, ["d desc", "v"])
    assert found.properties["write.parquet.page-row-limit"] == "100"

    world.ddl("TRUNCATE TABLE a")
    send(world, "INSERT", 8)
    world.resolve()
    world.run()
    assert contents(world, spark) == {8: ("x", 1, day)}


def test_a_living_table_follows_its_layout_once(make: Make, lake: Catalog, spark: SparkSession) -> None:
    """At the next start; old files stay and their rows are changed and compacted as before, and nothing comes twice."""
    world = make()
    world.settings["maintenance"] = {"small_files": 2, "share": 1.0}
    world.ddl(DATED)
    world.create("b")
    for key in range(4):
        send(world, "INSERT", key, f"v{key}")
    world.put("b", 1)
    world.resolve()
    world.start()
    other = table(world, lake, "b").handle.operations().current().metadataFileLocation()
    lie(world, partition_by=["day(d)", "v"], sort_by=["v desc"], properties={"commit.retry.num-retries": "7"})
    told = plan(world.config)
    shown = io.StringIO()
    render(told, Console(file=shown, width=400))
    (due,) = told.layouts
    assert due.change == "partitioned by day(d), v; sorted by v desc; commit.retry.num-retries = 7"
    assert "the 1 data files of now stay" in due.note
    assert f"CALL lake.system.rewrite_data_files(table => '{world.name}__shop.a'" in shown.getvalue()

    world.start()
    found = table(world, lake)
    assert (spec(found), [*map(str, found.file_layout.sort or ())]) == (["day(d)", "v"], ["v desc"])
    assert found.properties["commit.retry.num-retries"] == "7"
    assert plan(world.config).layouts == []
    before = len(found.specs_json)
    send(world, "UPDATE", 1, "new")
    for key in (5, 6):
        send(world, "INSERT", key, "new")
    send(world, "DELETE", 2)
    world.resolve()
    world.start()
    wanted = {0: "v0", 1: "new", 3: "v3", 5: "new", 6: "new"}
    assert {key: row[0] for key, row in contents(world, spark).items()} == wanted
    assert {file.spec_id for file in table(world, lake).scan(table(world, lake).snapshot_id or 0)} == {0, 1}

    for by in (["bucket(3, id)"], ["day(d)", "v"], []):
        lie(world, partition_by=by)
        send(world, "UPDATE", 0, f"by {len(by)}")
        world.resolve()
        world.start()
        assert spec(table(world, lake)) == by
        assert {key: row[0] for key, row in contents(world, spark).items()} == wanted | {0: f"by {len(by)}"}
    assert len(table(world, lake).specs_json) <= before + 2
    assert [*map(str, table(world, lake).file_layout.sort or ())] == ["v desc"]
    assert table(world, lake, "b").handle.operations().current().metadataFileLocation() == other


@pytest.mark.parametrize("point", ["layout-due", "layout-done"])
def test_a_kill_at_the_change_leaves_all_of_it_or_nothing(
    make: Make, lake: Catalog, crash: Callable[[str], None], point: str
) -> None:
    """One version of the metadata carries partitions, order and properties; the next start finds or makes it."""
    world = make()
    world.ddl(DATED)
    send(world, "INSERT", 1)
    world.resolve()
    world.start()
    lie(world, partition_by=["hour(d)"], sort_by=["w"], properties={"a.b": "c"})
    crash(point)
    with world.applier() as pipeline, pytest.raises(Crash):
        layouts.bring(pipeline.state, pipeline.targets, pipeline.config.tables)
    found = table(world, lake)
    is_done = point == "layout-done"
    assert (spec(found), "a.b" in found.properties) == ((["hour(d)"], True) if is_done else ([], False))

    send(world, "INSERT", 2)
    world.resolve()
    world.start()
    found = table(world, lake)
    assert (spec(found), found.properties["a.b"], len(found.specs_json)) == (["hour(d)"], "c", 2)
    assert world.keys("a") == {1, 2}


@pytest.mark.parametrize(
    ("layout", "reason"),
    few(
        [
            (
                {"partition_by": ["day(v)"]},
                r"partitioned by day\(v\): column v is string, and day takes date and timestamp",
            ),
            ({"partition_by": ["day(x)"]}, r"Table shop\.a cannot be partitioned by day\(x\): it has no column x"),
            ({"sort_by": ["nothing"]}, r"cannot be sorted by nothing: it has no column nothing"),
        ]
    ),
)
def test_a_layout_that_does_not_fit_parks_its_table_alone(
    make: Make, lake: Catalog, layout: dict[str, Any], reason: str
) -> None:
    """The others go on; once the layout is right, the next start brings the table back with it."""
    world = make()
    lie(world, **layout)
    world.create("a")
    world.create("b")
    world.put("a", 1, 2)
    world.put("b", 1)
    world.resolve()
    world.start()
    assert world.table("a").state == "parked"
    assert re.search(reason, str(world.table("a")))
    assert world.keys("b") == {1}

    lie(world, partition_by=["bucket(4, ID)"])
    world.resolve()
    world.start()
    assert (world.table("a").state, spec(table(world, lake)), world.keys("a")) == ("in step", ["bucket(4, id)"], {1, 2})


def test_a_partition_column_is_renamed(make: Make, lake: Catalog) -> None:
    """The partitions follow; the layout by the former name is reported and changes nothing until it is corrected."""
    world = make()
    lie(world, partition_by=["truncate(1, v)"], sort_by=["v"])
    world.create("a")
    world.put("a", 1)
    world.ddl("ALTER TABLE a RENAME COLUMN v TO w")
    world.send_row("a", {"id": "2", "w": "new"}, {"w": "varchar(9)"})
    world.resolve()
    world.start()
    found = table(world, lake)
    assert (spec(found), [*map(str, found.file_layout.sort or ())]) == (["truncate(1, w)"], ["w"])

    (due,) = plan(world.config).layouts
    assert (due.change, "it has no column v" in due.note) == ("", True)
    with world.applier() as pipeline:
        former = pipeline.config.tables
        assert layouts.misfits(pipeline.state, pipeline.targets, former, former) == []
        (sentence,) = layouts.misfits(pipeline.state, pipeline.targets, former, TablesSection())
        assert 'Correct partition_by in [tables."shop.a"], where columns are id, w;' in sentence
    world.send_row("a", {"id": "3", "w": "more"}, {"w": "varchar(9)"})
    world.resolve()
    world.start()
    rows = {row["id"]: row["w"] for row in read(world.spark, (f"{world.name}__shop", "a")).to_pylist()}
    assert (world.table("a").state, rows) == ("in step", {1: "r1", 2: "new", 3: "more"})
    lie(world, partition_by=["truncate(1, w)"], sort_by=["w"])
    assert plan(world.config).layouts == []


@pytest.mark.parametrize("version", few([3, 2]))
def test_a_partition_column_is_dropped(make: Make, lake: Catalog, spark: SparkSession, version: int) -> None:
    """It leaves partitions and order, and its files are written anew: their partitions would have no type."""
    world = make()
    lie(world, partition_by=["v", "bucket(2, id)"], sort_by=["v", "id desc"])
    world.ddl(DATED)
    for key in range(5):
        send(world, "INSERT", key, f"v{key % 2}")
    send(world, "DELETE", 4)
    world.ddl("ALTER TABLE a DROP COLUMN v")
    world.resolve()
    world.run(format_version=version)
    assert spec(table(world, lake)) == ["bucket(2, id)"]
    row = {"id": "1", "w": "8", "d": "2024-02-29 01:30:00"}
    kinds = {name: TYPES[name] for name in row}
    told = {"table": "a", "pkNames": ["id"], "mysqlType": kinds, "sqlType": dict.fromkeys(row, 12)}
    world.send({**told, "type": "UPDATE", "data": [row], "old": [{"w": "1"}]})
    world.send({**told, "type": "DELETE", "data": [{**row, "id": "2"}]})
    world.resolve()
    world.run()
    world.start()
    found = table(world, lake)
    rows = {row["id"]: row["w"] for row in read(spark, found.identifier).to_pylist()}
    assert rows == {0: 1, 1: 8, 3: 1}
    assert [*map(str, found.file_layout.sort or ())] == ["id desc"]
    name = f"{found.identifier[0]}.{found.identifier[1]}"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert {row["id"]: row["w"] for row in read(spark, found.identifier).to_pylist()} == rows


@pytest.mark.parametrize(("by", "after"), few([(by, [by]) for by in ("truncate(1, w)", "bucket(4, w)")]))
def test_a_partition_column_changes_its_type(
    make: Make, lake: Catalog, spark: SparkSession, by: str, after: list[str]
) -> None:
    """A column that is made anew partitions again where its new type allows, and the rows are in their partitions."""
    world = make()
    lie(world, partition_by=[by, "day(d)"])
    world.ddl(DATED)
    for key in range(5):
        send(world, "INSERT", key, w=key + 7)
    world.ddl("ALTER TABLE a MODIFY COLUMN w VARCHAR(9)")
    world.ddl("ALTER TABLE a MODIFY COLUMN d VARCHAR(30)")
    world.resolve()
    world.start()
    assert spec(table(world, lake)) == after
    assert keys_where(world, spark, "w = '10'") == [3]
    assert world.table("a").state == "in step"


def test_a_new_column_with_the_name_of_a_partition_field_is_refused(make: Make, lake: Catalog) -> None:
    """Iceberg keeps the names of all its specs; the table is parked with the name that is taken."""
    world = make()
    lie(world, partition_by=["bucket(4, id)"])
    world.create("a")
    world.put("a", 1)
    world.ddl("ALTER TABLE a ADD COLUMN id_bucket_4 INT")
    world.create("b")
    world.put("b", 1)
    world.resolve()
    world.start()
    assert (world.table("a").state, world.keys("b")) == ("parked", {1})
    assert "sourced from different field in schema: id_bucket_4" in str(world.table("a").because)
    assert spec(table(world, lake)) == ["bucket(4, id)"]
