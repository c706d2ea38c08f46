"""DDL that do not fit what is known of their table: each parks that table alone, and each printed way out works."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from applier.commands.follower import Follower
from tests.few import few
from tests.spark.world import Make, World
from tests.unit.decode.dump import dumpling

pytestmark = pytest.mark.spark

UNFIT = {
    "a": ("ADD COLUMN v INT", "shop.a already has the column v, which a DDL adds"),
    "b": ("DROP COLUMN nope", "shop.b has no column nope, which a DDL names"),
    "c": ("MODIFY COLUMN nope INT", "shop.c has no column nope, which a DDL names"),
    "d": ("RENAME COLUMN id TO v", "shop.d already has the column v, which a DDL adds"),
    "e": ("ADD PRIMARY KEY (v)", "shop.e has the key id, and a DDL adds a primary key"),
    "f": ("ADD COLUMN w INT, ADD PRIMARY KEY (w)", "shop.f has the key id, and a DDL adds a primary key"),
}
"""By table what is done to it, and what the reason says."""


def skip_printed(text: str, path: Path) -> str:
    """The command that an error or a reason prints."""
    found = re.search(rf"applier ddl skip \d+ -c {re.escape(str(path))} --why TEXT", text)
    assert found is not None, text
    return found[0]


def begun(world: World, tables: str) -> None:
    """Tables with a row each, in a step of their own."""
    for table in tables:
        world.create(table)
        world.put(table, 1)
    world.resolve()
    world.run()


def test_each_parks_its_table_alone(make: Make) -> None:
    """All others go on in the same step; the rows below the statement are in, those behind it wait."""
    world: World = make()
    begun(world, "abcdefz")
    for table, (clause, _) in UNFIT.items():
        world.put(table, 2)
        world.ddl(f"ALTER TABLE {table} {clause}", table)
        world.put(table, 3)
    world.put("z", 2)
    world.resolve()
    world.run()

    found = {table: world.table(table) for table in UNFIT}
    assert {table: item.state for table, item in found.items()} == dict.fromkeys(UNFIT, "parked")
    for table, (_, reason) in UNFIT.items():
        assert reason in str(found[table].because)
        assert world.keys(table) == {1, 2}
    assert (world.table("z").state, world.keys("z")) == ("in step", {1, 2})


@pytest.mark.parametrize("policy", few(["stop", "park"]))
def test_the_printed_command_lets_the_statement_pass(policy: str, make: Make) -> None:
    """With `stop` the run ends and prints it; with `park` the table waits for it, and the next start goes on."""
    world: World = make()
    world.settings["changefeed"] = {"on_table_error": policy}
    begun(world, "az")
    ts = world.ddl("ALTER TABLE a ADD COLUMN v VARCHAR(9)")
    world.put("a", 2)
    world.put("z", 2)
    world.resolve()
    if policy == "stop":
        said = world.obey(f"applier run -c {world.path} --once --take-over", code=3)
        command = skip_printed(said, world.path)
        assert f"--filter 'shop.a' -o DIR` and run `applier load -c {world.path} --from DIR --tables 'shop.a'`" in said
        assert world.keys("z") == {1}
    else:
        world.start()
        command = f"applier ddl skip {ts} -c {world.path} --why TEXT"
    world.obey(command)
    world.start()

    assert (world.keys("a"), world.keys("z")) == ({1, 2}, {1, 2})
    assert world.table("a").state == "incomplete"
    assert "a DDL was skipped" in str(world.table("a").because)
    assert world.table("z").state == "in step"
    world.obey(f"applier adopt -c {world.path} --tables shop.a --why TEXT")
    assert world.table("a").state == "in step"


@pytest.mark.soak
def test_a_table_that_the_first_step_of_all_parks_in_offset_order_comes_back(make: Make) -> None:
    """Its place has the offsets at which that step began, as no checkpoint had any: a job would never come to it."""
    world: World = make(order="offset")
    for table in ("a", "z"):
        world.create(table)
        world.put(table, 1)
    ts = world.ddl("ALTER TABLE a ADD COLUMN v VARCHAR(9)")
    world.put("a", 2)
    world.run()
    assert (world.table("a").state, world.keys("a")) == ("parked", {1})
    world.obey(f"applier ddl skip {ts} -c {world.path} --why TEXT")

    with world.applier() as pipeline:
        follower = Follower(pipeline)
        turns = [follower.turn() for _ in range(5)]
    assert not turns[-1].resuming
    assert (world.table("a").state, world.keys("a"), world.keys("z")) == ("incomplete", {1, 2}, {1})


RELOADED = {
    "a": (
        "(id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "MODIFY COLUMN v DATE",
        "exact conversion to date is not known for the form of a value",
    ),
    "b": (
        "(id BIGINT PRIMARY KEY)",
        "ADD COLUMN v DATE DEFAULT '2024-01-02 10:00:00+08:00'",
        "no date that can be read",
    ),
    "c": (
        "(id BIGINT PRIMARY KEY, v DATE) PARTITION BY RANGE (QUARTER(v)) (PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (9))",  # noqa: E501 - one statement
        "DROP PARTITION p0",
        "the function QUARTER is not computed here",
    ),
}
"""By table how it is made, what is done to it, and what the reason says."""


@pytest.mark.soak
def test_a_load_brings_back_what_is_not_computed(make: Make, tmp_path: Path) -> None:
    """Each statement parks its table at the rows below it; an export from behind it makes all of them complete."""
    world: World = make()
    kinds = {"v": "varchar(20)"}
    for table, (form, _, _) in RELOADED.items():
        world.ddl(f"CREATE TABLE {table} {form}", table)
        # In an SQL mode that is not strict, TiDB makes a date of what begins as one.
        row = {"id": "1", "v": "2023-01-02 or so" if table == "a" else "2023-01-02"}
        world.send_row(table, row if table != "b" else {"id": "1"}, kinds if table == "a" else {"v": "date"})
    world.resolve()
    world.run()
    for table, (_, clause, _) in RELOADED.items():
        world.ddl(f"ALTER TABLE {table} {clause}", table)
    tso = world.resolve()
    for table in RELOADED:
        world.send_row(table, {"id": "2", "v": "2024-05-03"}, {"v": "date"})
    world.resolve()
    world.run()
    for table, (_, _, reason) in RELOADED.items():
        item = world.table(table)
        assert (item.state, reason in str(item.because)) == ("parked", True), item.because
        assert f"applier load -c {world.path} --from DIR --tables 'shop.{table}'" in str(item.way_out)

    (tmp_path / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    for table in RELOADED:
        declared = (
            f"CREATE TABLE `{table}` (\n  `id` bigint NOT NULL,\n  `v` date DEFAULT NULL,\n  PRIMARY KEY (`id`)\n);\n"
        )
        (tmp_path / f"shop.{table}-schema.sql").write_text(declared)
        if table != "c":  # Dumpling leaves no file of a table without rows.
            cells = [["1", "2023-01-02" if table == "a" else "2024-01-02"]]
            (tmp_path / f"shop.{table}.000000000.sql").write_bytes(dumpling.sql(cells, escapes=True))
    tables = ",".join(f"shop.{table}" for table in RELOADED)
    world.obey(f"applier load -c {world.path} --from {tmp_path} --tables {tables}")
    world.run()

    assert {world.table(table).state for table in RELOADED} == {"in step"}
    new = {2: date(2024, 5, 3)}
    assert world.rows("a") == {1: date(2023, 1, 2)} | new
    assert world.rows("b") == {1: date(2024, 1, 2)} | new
    assert world.rows("c") == new


@pytest.mark.parametrize("policy", few(["stop", "park"]))
def test_a_way_past_a_ddl_is_printed_only_where_it_leads_on(policy: str, make: Make) -> None:
    """A table that nothing is known of waits in front of no statement: only a run that ends can pass it."""
    world: World = make()
    world.settings["changefeed"] = {"on_table_error": policy}
    world.settings["tables"] = {"include": ["shop.*", "!shop._*"]}
    begun(world, "z")
    ts = world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY) FROBNICATE BY 7")
    world.put("z", 2)
    world.resolve()
    command = f"applier ddl skip {ts} -c {world.path} --why TEXT"
    if policy == "stop":
        assert command in world.obey(f"applier run -c {world.path} --once --take-over", code=3)
        world.obey(command)
        world.start()
    else:
        said = world.obey(f"applier run -c {world.path} --once --take-over")
        assert "ddl skip" not in said
        assert world.table("a").state == "parked"
        world.ddl("RENAME TABLE _n TO b", "b")
        world.resolve()
        said = world.obey(f"applier run -c {world.path} --once --take-over")
        assert "ddl skip" not in said
        assert world.table("b").state == "parked"
    assert (world.table("z").state, world.keys("z")) == ("in step", {1, 2})


@pytest.mark.parametrize("steps", few([1, 2]))
def test_a_database_that_comes_back_parks_its_tables_alone(steps: int, make: Make) -> None:
    """No message holds their rows; a table that takes the name of one afterwards is another table."""
    world: World = make()
    begun(world, "ab")
    other = {"database": "other"}
    world.send({**other, "isDdl": True, "type": "CREATE", "sql": "CREATE DATABASE other"})
    made = "CREATE TABLE z (id BIGINT PRIMARY KEY, v VARCHAR(9))"
    world.send({**other, "table": "z", "isDdl": True, "type": "CREATE", "sql": made})
    world.ddl("DROP DATABASE shop", "")
    if steps == 2:
        world.resolve()
        world.run()
    world.ddl("FLASHBACK DATABASE shop", "")
    world.put("a", 2)
    world.resolve()
    world.run()

    assert {name: world.table(name).state for name in "ab"} == dict.fromkeys("ab", "parked")
    assert "FLASHBACK DATABASE brings back rows" in str(world.table("a").because)
    assert "applier load" in str(world.table("a").way_out)
    world.ddl("DROP TABLE a")
    world.create("a")
    world.put("a", 3)
    world.resolve()
    world.run()
    assert (world.table("a").state, world.keys("a")) == ("in step", {3})
    assert world.table("b").state == "parked"


@pytest.mark.soak
def test_a_forgotten_table_in_the_way_of_a_rename_is_named_where_it_is_refused(make: Make) -> None:
    """What the refusal says makes way for the table, and the next start goes on."""
    world: World = make()
    begun(world, "ab")
    world.settings["tables"] = {"include": ["shop.*", "!shop.b"]}
    world.start()
    world.obey(f"applier forget -c {world.path} --tables shop.b")
    world.ddl("DROP TABLE b", "b")
    world.resolve()
    world.start()
    world.settings["tables"] = {"include": ["shop.*"]}
    world.ddl("RENAME TABLE a TO b", "b")
    world.resolve()

    said = world.obey(f"applier run -c {world.path} --once --take-over", code=3)

    assert "No changefeed writes the Iceberg table" in said
    world.spark.sql(f"DROP TABLE lake.{world.name}__shop.b")
    world.start()
    assert (world.table("b").state, world.keys("b")) == ("in step", {1})
