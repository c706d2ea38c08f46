"""DDL that do not fit what is known of their table: each parks that table alone, and each printed way out works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.world import Make, World

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


@pytest.mark.parametrize("policy", ["park", "stop"])
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
