"""Ways out that are printed for control tables: the command as it is printed, and then all tables are true."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from applier.sink.iceberg.catalog import Catalog
from tests.few import few
from tests.spark.ways_out import database, export
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def commands(hint: str | None) -> dict[str, str]:
    """The commands of a way out, by their verb."""
    found = re.findall(r"`(applier [^`]*)`", hint or "")
    return {command.split()[1]: command for command in found}


def obey(world: World, command: str) -> str:
    """Give a command as it is printed, with an export, a reason and an end."""
    if " DIR" in command:
        command = command.replace("--from DIR", f"--from {export(world)}")
        world.put("b", 8)
        world.resolve()
    if command.startswith("applier run "):
        command = f"{command} --once --take-over"
    return world.obey(command.replace("--why TEXT", "--why 'it is so'"))


def is_true(world: World, *, without: tuple[str, ...] = ()) -> None:
    """All tables are what upstream has, and `status` is content."""
    expected = {table: rows for table, rows in database(world).items() if table not in without}
    assert {table: world.rows(table) for table in expected} == expected
    assert world.status().exit_code == 0, world.status().stale


def other_column(world: World) -> None:
    """A control table lacks a column."""
    world.spark.sql(f"ALTER TABLE lake.applier_{world.name}.schema_changes DROP COLUMN job")


def rewrite(world: World, change: Callable[[str], str]) -> None:
    """Write the newest checkpoint as something else."""
    table = f"lake.applier_{world.name}.checkpoints"
    newest = max(world.spark.table(table).collect(), key=lambda row: row["step"])
    text = change(newest["checkpoint"]).replace("'", "\\'")
    world.spark.sql(f"UPDATE {table} SET checkpoint = '{text}' WHERE step = {newest['step']}")


def world_of_two(make: Make) -> World:
    """A changefeed of two tables, one of which was altered."""
    world = make()
    for table in ("a", "b"):
        world.create(table)
        world.put(table, 1, 2)
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.resolve()
    world.run()
    world.put("a", 3)
    world.resolve()
    return world


@pytest.mark.parametrize("begins", few(["run", "load"]))
def test_control_tables_of_another_form_are_left_alone(begins: str, make: Make) -> None:
    """Each command says so in one sentence; a changefeed of a new name, into a new namespace, has all rows."""
    world = world_of_two(make)
    other_column(world)
    told = {
        world.obey(f"applier {command} -c {world.path}", code=3).replace("\n", " ").partition("Hint: ")[2]
        for command in ("run --once --take-over", "status", "plan", "resume --tables shop.a", "forget")
    }
    assert len(told) == 1, told
    printed = commands(told.pop())
    former = world.rows("a")

    world.name += "_2"
    world.settings["tables"] = {"route": f"{world.name}__{{database}}.{{table}}"}
    obey(world, printed[begins])
    world.start()

    is_true(world)
    world.name = world.name.removesuffix("_2")
    assert world.rows("a") == former


def test_a_downgrade_is_refused_before_anything_is_written(make: Make) -> None:
    """The sentence names the format, no table gets a snapshot, and the release that wrote it goes on."""
    world = world_of_two(make)
    rewrite(world, lambda text: text.replace('{"format":2,', '{"format":99,', 1))
    names = [f"lake.applier_{world.name}.checkpoints", f"lake.applier_{world.name}.table_versions"]
    names += [f"lake.{world.name}__shop.{table}" for table in ("a", "b")]
    before = [world.spark.table(f"{name}.snapshots").count() for name in names]

    told = " ".join(world.obey(f"applier run -c {world.path} --once --take-over", code=3).split())

    assert "was written by a newer release of applier, in format 99; applier " in told
    assert "Hint: start that release again, or a newer one: nothing was written" in told
    assert [world.spark.table(f"{name}.snapshots").count() for name in names] == before
    rewrite(world, lambda text: text.replace('{"format":99,', '{"format":2,', 1))
    world.start()
    is_true(world)


def test_a_damaged_checkpoint_costs_a_replay(make: Make) -> None:
    """The sentence says which table to drop; the tables know what they have."""
    world = world_of_two(make)
    rewrite(world, lambda text: text[:-9])
    told = world.obey(f"applier run -c {world.path} --once --take-over", code=3)
    assert "damaged" in told

    assert "drop the control table checkpoints in namespace applier_" in " ".join(told.split())
    Catalog(world.spark, "lake").drop((f"applier_{world.name}", "checkpoints"))
    obey(world, commands(" ".join(told.split()))["run"])

    is_true(world)
