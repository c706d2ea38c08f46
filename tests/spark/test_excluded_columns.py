"""Excluded columns: their values are in no file, through DDL, on living tables and where they tell rows apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.shape import SHAPE
from applier.commands.plan.command import plan
from applier.sink.iceberg.catalog import Catalog
from tests.secret_watch import SecretWatch
from tests.spark.feeds import read, sql_name
from tests.spark.world import Make, World
from tests.unit.decode.dump import dumpling

pytestmark = pytest.mark.spark

SECRET = "hush-7781"
CREATE = "CREATE TABLE a (id BIGINT PRIMARY KEY, c VARCHAR(9), v VARCHAR(9))"


def ask(world: World, *columns: str, pattern: str = "shop.*", **more: Any) -> None:
    """Let tables lack columns."""
    world.settings.setdefault("tables", {})[pattern] = {"columns": {"exclude": list(columns)}, **more}


def shown(world: World, name: str = "a") -> list[dict[str, Any]]:
    """The rows of a table, sorted, with their columns in order."""
    return sorted(
        read(world.spark, (f"{world.name}__shop", name)).to_pylist(), key=lambda row: str(sorted(row.items()))
    )


def all_files(world: World, warehouse: Path) -> Iterator[Path]:
    """The files of the lake that are of this changefeed: of its tables, and its control tables."""
    folders = [path for path in (warehouse / "tables").iterdir() if world.name in path.name]
    assert len(folders) > 1
    return (path for folder in folders for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_values_of_an_excluded_column_are_nowhere(
    make: Make, warehouse: Path, order: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in tables, control tables, catalog or logs; what cannot be read in it does no harm."""
    world = make()
    world.settings["changefeed"] = {"order": order}
    ask(world, "C", "w")
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, c VARCHAR(9), w INT, v VARCHAR(9))")
    world.put("a", 1, 2, 3, c=SECRET, w="1")
    world.put("a", 4, c=SECRET, w=SECRET)
    world.resolve()
    logs = world.obey(f"applier run -c {world.path} --once --take-over")
    world.put("a", 2, op="UPDATE", c=SECRET, w="2")
    world.put("a", 3, op="DELETE", c=SECRET, w="2")
    world.resolve()
    logs += world.obey(f"applier run -c {world.path} --once --take-over")

    values = {message["data"][0]["id"]: message["data"][0]["v"] for message in world.messages if message["data"]}
    assert shown(world) == [{"id": key, "v": values[str(key)]} for key in (1, 2, 4)]
    watch = SecretWatch({"value": SECRET})
    for path in all_files(world, warehouse):
        watch.look_into(path.read_bytes(), str(path))
    watch.look((logs + "".join(capfd.readouterr())).encode(), "logs")
    assert any(place.endswith(".parquet") for place in watch.places)
    assert watch.found == set()


@pytest.mark.parametrize("columns", [{"exclude": ["c"]}, {"mask": {"c": "redact"}}])
def test_a_table_without_a_key_hides_no_difference_of_rows(make: Make, columns: dict[str, Any]) -> None:
    """Two changes of one transaction would pass for one that was sent twice: it is parked."""
    world = make()
    world.settings["tables"] = {"shop.*": {"columns": columns}}
    world.ddl("CREATE TABLE a (id BIGINT, c VARCHAR(9))")
    kinds = {"id": "bigint", "c": "varchar(9)"}
    row = {"id": "1", "c": "x"}
    message = {"table": "a", "type": "INSERT", "pkNames": None, "mysqlType": kinds, "sqlType": dict.fromkeys(row, 12)}
    world.send({**message, "data": [row]})
    world.resolve()
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "Table shop.a has no key, and rows of it may differ in column c alone, which is hidden" in str(line.because)


def test_ddl_of_an_excluded_column_does_nothing(make: Make) -> None:
    """ADD, MODIFY and DROP; those of other columns in the same statement do."""
    world = make()
    ask(world, "c", "d")
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    for sql in (
        "ALTER TABLE a MODIFY COLUMN c INT NOT NULL",
        "ALTER TABLE a ADD COLUMN d INT NOT NULL DEFAULT 7 FIRST, ADD COLUMN w INT DEFAULT 8 AFTER c",
        "ALTER TABLE a DROP COLUMN c",
        "ALTER TABLE a RENAME COLUMN d TO c",
    ):
        world.ddl(sql)
    world.resolve()
    world.start()
    assert world.table("a").state == "in step"
    assert [list(row.items()) for row in shown(world)] == [[("id", 1), ("w", 8), ("v", shown(world)[0]["v"])]]


@pytest.mark.parametrize(
    ("sql", "because"),
    [
        ("RENAME COLUMN c TO w", "`exclude` leaves out column c and not w"),
        ("RENAME COLUMN v TO d", "`exclude` leaves out column d and not v"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)", "Column c of table shop.a is part of its key"),
    ],
)
def test_ddl_that_would_show_or_need_an_excluded_column_parks_its_table(make: Make, sql: str, because: str) -> None:
    """Before a row with the new column is written; the configuration can be changed, and the way out is printed."""
    world = make()
    ask(world, "c", "d")
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    world.create("b")
    world.ddl(f"ALTER TABLE a {sql}")
    world.put("b", 1)
    world.resolve()
    assert because in str(plan(world.config).ddl)
    world.start()
    line = world.table("a")
    assert (line.state, world.keys("b")) == ("parked", {1})
    assert because in str(line.because)
    assert "applier load" in str(line.way_out) or "Take it off `exclude`" in str(line.way_out)


def test_a_key_column_cannot_be_excluded(make: Make) -> None:
    """Its table is parked, also by a start that tries again, and says which key of the configuration to correct."""
    world = make()
    ask(world, "ID")
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "Column id of table shop.a is part of its key, which no table is without" in str(line.because)
    assert 'Take it off `exclude` of [tables."shop.*".columns]' in str(line.way_out)
    world.settings["tables"].clear()
    world.start()
    assert world.keys("a") == {1}


def test_a_living_table_loses_the_column_at_the_next_start(make: Make, lake: Catalog) -> None:
    """By a change of its metadata; off the list again, its rows lack the values, and it is parked."""
    world = make()
    world.ddl(CREATE)
    world.put("a", 1, 2, c="x")
    world.resolve()
    world.start()
    before = lake.load((f"{world.name}__shop", "a"))
    assert before is not None
    ask(world, "c")
    (due,) = plan(world.config).layouts
    assert due.change == "without c"
    assert due.note.startswith("It costs a change of metadata: files of now, and older snapshots, hold the values")
    world.start()
    found = lake.load(before.identifier)
    assert found is not None
    assert (found.snapshot_id, sorted(found.schema.names)) == (before.snapshot_id, ["id", "v"])
    assert found.properties[SHAPE] == '{"exclude": ["c"]}'
    assert plan(world.config).layouts == []
    last = world.put("a", 2, op="UPDATE", c="y")
    world.put("a", 3, c="y")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step"
    assert {row["id"] for row in shown(world)} == {1, 2, 3}
    assert last

    ask(world)
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    assert "applier load" in str(line.way_out)
    ask(world, "c")
    world.start()
    assert world.table("a").state == "in step"


@pytest.mark.parametrize("layout", [{"partition_by": ["c"]}, {"sort_by": ["c"]}])
def test_a_living_table_that_lies_by_the_column_is_parked(make: Make, layout: dict[str, Any]) -> None:
    """Iceberg would list no file of it, or sort by nothing; the table keeps what it has until it is loaded."""
    world = make()
    ask(world, **layout)
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    world.resolve()
    world.start()
    ask(world, "c")
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "cannot lose column c: it is, or was, partitioned by it, or is sorted by it" in str(line.because)
    assert shown(world)[0]["c"] == "x"


def test_rows_do_not_move_to_a_table_of_another_shape(make: Make) -> None:
    """A RENAME to a name of another pattern, whose rows would hold values that these lack."""
    world = make()
    ask(world, "c", pattern="shop.a")
    world.ddl(CREATE)
    world.put("a", 1, c="x")
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 2, c="x")
    world.resolve()
    world.start()
    line = world.table("b")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    assert [row["id"] for row in shown(world, "b")] == [1]


def test_a_load_does_not_read_the_column_and_verify_does_not_compare_it(make: Make, tmp_path: Path) -> None:
    """As a load brings a table back in its new shape, and as an export has other values in the column."""
    world = make()
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, c INT, v VARCHAR(9))")
    world.put("a", 1, c="1")
    world.resolve()
    world.start()
    ask(world, "c")
    world.start()
    ask(world, "v")
    world.start()
    way_out = str(world.table("a").way_out)
    folder, tso = tmp_path / "export", world.resolve()
    folder.mkdir()
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    declared = "CREATE TABLE `a` (`id` bigint NOT NULL, `c` int, `v` varchar(9), PRIMARY KEY (`id`));\n"
    (folder / "shop.a-schema.sql").write_text(declared)
    (folder / "shop.a.000000000.csv").write_text('"id","c","v"\n1,5,"none"\n2,6,"none"\n')
    world.obey(re.findall(r"`(applier load[^`]*)`", way_out.replace("DIR", str(folder)))[0])
    world.start()
    assert world.table("a").state == "in step"
    assert shown(world) == [{"id": 1, "c": 5}, {"id": 2, "c": 6}]

    ask(world, "v", "c")
    world.start()
    (folder / "shop.a.000000000.csv").write_text('"id","c","v"\n1,7,"other"\n2,8,"other"\n')
    assert "equal" in world.obey(f"applier verify -c {world.path} --against {folder}")
    assert shown(world) == [{"id": 1}, {"id": 2}]


def test_rows_that_are_applied_again_lack_the_column_too(make: Make, lake: Catalog) -> None:
    """By a backfill, and as a table that was parked comes back."""
    world = make()
    ask(world, "c")
    world.ddl(CREATE)
    world.put("a", 1, 2, c="x")
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 2, op="UPDATE", c="y")
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    rows = shown(world)
    assert [(row["id"], sorted(row)) for row in rows] == [(1, ["id", "v"]), (2, ["id", "v"])]
    world.spark.sql(f"DELETE FROM {sql_name((f'{world.name}__shop', 'a'))} WHERE id = 1")
    world.obey(f"applier backfill -c {world.path} --from beginning --repair --take-over")
    assert shown(world) == rows
    found = lake.load((f"{world.name}__shop", "a"))
    assert found is not None
    assert found.properties[SHAPE] == '{"exclude": ["c"]}'


def test_partitions_are_not_moved_to_a_table_of_other_columns(make: Make) -> None:
    """An exchange parks both tables."""
    world = make()
    ask(world, "c", pattern="shop.a")
    by_id = "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))"
    for name, by in (("a", by_id), ("b", "")):
        world.ddl(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v VARCHAR(9), c VARCHAR(9)) {by}", name)
    for name in "ab":
        world.put(name, 1, c="x")
    world.ddl("ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE b")
    world.resolve()
    world.start()
    assert {name: world.table(name).state for name in "ab"} == dict.fromkeys("ab", "parked")
    assert "become those of table shop.b, to which [tables] gives another shape" in str(world.table("a").because)
    assert [row.keys() for row in shown(world)] == [{"id", "v"}]


def test_a_parked_table_is_built_anew_without_the_column(make: Make) -> None:
    """From its CREATE TABLE, as its rows so far are of another shape."""
    world = make()
    world.ddl(CREATE)
    world.put("a", 1, 2, c="x")
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    ask(world, "c")
    world.put("a", 1, op="UPDATE", c="y")
    world.resolve()
    assert "Resumed: shop.a" in world.obey(f"applier resume -c {world.path} --tables shop.a")
    assert [(row["id"], sorted(row)) for row in shown(world)] == [(1, ["id", "v"]), (2, ["id", "v"])]
    world.start()
    assert world.table("a").state == "in step"
