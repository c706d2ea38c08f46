"""Columns that others drop, rename or make anew in a table of the changefeed: no value is lost unseen."""

from __future__ import annotations

from contextlib import suppress

import pytest

from applier.commands.follower import Follower
from applier.runtime import failpoints
from tests.few import few
from tests.spark.test_resume import begun, values
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def alter(world: World, *changes: str) -> None:
    """Others change the columns of table `a` in Iceberg."""
    for change in changes:
        world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a {change}")


def go_on(world: World) -> None:
    """A row for each table, and a start."""
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.start()


@pytest.mark.parametrize(
    "changes",
    few(
        [
            ["DROP COLUMN v", "ADD COLUMN v STRING"],
            ["DROP COLUMN v"],
            ["RENAME COLUMN v TO x", "ADD COLUMN v STRING"],
        ]
    ),
    ids=["made anew", "dropped", "renamed"],
)
def test_a_column_that_others_changed_parks_its_table_and_the_printed_command_rebuilds_it(
    make: Make, changes: list[str]
) -> None:
    """Older rows would be NULL in it; the way out of `status` brings every value back."""
    world = begun(make, "a", "b")
    before = values(world, "a")
    alter(world, *changes)

    go_on(world)
    for _ in range(2):
        world.start()
        found = world.table("a")
        assert (found.state, world.in_cut(), world.status().exit_code) == ("parked", {"b"}, 1)
        assert "column v" in str(found.because)

    world.heal(found.way_out)
    assert (world.table("a").state, world.in_cut()) == ("in step", {"a", "b"})
    rows = values(world, "a")
    assert (rows[:2], [row["id"] for row in rows]) == (before, [1, 2, 3])
    assert world.status().exit_code == 0


@pytest.mark.soak
def test_columns_that_others_give_each_others_names_park_their_table(make: Make) -> None:
    """Rows would have the values of the other column; given their names back, they go on at the next start."""
    world = begun(make, "b")
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), c VARCHAR(9))")
    world.put("a", 1, 2, c="c")
    world.resolve()
    world.start()
    before = values(world, "a")
    swap = ["RENAME COLUMN v TO x", "RENAME COLUMN c TO v", "RENAME COLUMN x TO c"]
    alter(world, *swap)

    world.put("a", 3, c="c")
    world.resolve()
    world.start()
    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})
    assert "columns v, c of table" in str(world.table("a").because)

    alter(world, *swap)
    world.start()
    rows = values(world, "a")
    assert (world.table("a").state, rows[:2], rows[2]["c"]) == ("in step", before, "c")


def test_a_column_that_others_make_anew_while_the_applier_runs_parks_its_table(make: Make) -> None:
    """The next commit of rows finds it, and so does a start where no row came."""
    world = begun(make, "a", "b")
    with world.applier() as pipeline:
        follower = Follower(pipeline)
        while follower.turn().moved:
            pass
        alter(world, "DROP COLUMN v", "ADD COLUMN v STRING")
    alter(world, "DROP COLUMN v", "ADD COLUMN v STRING")
    assert world.keys("a") == {1, 2}
    world.start()
    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})


@pytest.mark.soak
def test_a_statement_that_comes_behind_a_change_of_others_does_not_hide_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others did to the columns just before is not taken for the work of the statement."""
    world = begun(make, "a", "b")
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.resolve()
    reach, due = failpoints.reach, ["decoded"]

    def others(point: str) -> None:
        reach(point)
        if point in due:
            due.remove(point)
            alter(world, "DROP COLUMN v", "ADD COLUMN v STRING")

    monkeypatch.setattr(failpoints, "reach", others)
    world.start()
    assert not due
    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})


@pytest.mark.parametrize("point", few(["ddl-applied", "commit-sent", "commit-done", "ddl-recorded"]))
def test_columns_that_upstream_drops_and_adds_again_are_no_damage(
    make: Make, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Also where the process dies between its writes, and where others have columns of their own meanwhile."""
    world = begun(make, "a", "b")
    alter(world, "ADD COLUMN note STRING")
    world.ddl("ALTER TABLE a DROP COLUMN v")
    world.ddl("ALTER TABLE a ADD COLUMN v VARCHAR(9) DEFAULT 'new'")
    world.resolve()
    reach, left = failpoints.reach, [1, 1]

    def dies(reached: str) -> None:
        if reached == point and left:
            left.pop()
            raise SystemExit(9)
        reach(reached)

    monkeypatch.setattr(failpoints, "reach", dies)
    for _ in range(2):
        with suppress(SystemExit), world.applier() as pipeline:
            Follower(pipeline).turn()
    alter(world, "DROP COLUMN note", "ADD COLUMN note STRING")
    go_on(world)
    alter(world, "DROP COLUMN note")
    world.put("a", 4)
    world.resolve()
    world.start()

    assert not left
    assert (world.table("a").state, world.in_cut(), world.status().exit_code) == ("in step", {"a", "b"}, 0)
    assert [row["v"] for row in values(world, "a")][:2] == ["new", "new"]


@pytest.mark.soak
def test_columns_that_a_user_gives_a_table_for_a_skipped_ddl_are_its_own_once_it_is_adopted(make: Make) -> None:
    """The way out of `status` is walked; afterwards a change of them counts, and one of a column of others does not."""
    world = begun(make, "b")
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(30))")
    world.send_row("a", {"id": "1", "v": "2023-01-02 10:00:00+08:00"}, {"v": "varchar(30)"})
    ts = world.ddl("ALTER TABLE a MODIFY COLUMN v DATE")
    world.resolve()
    world.start()
    world.obey(f"applier ddl skip {ts} -c {world.path} --why TEXT")
    world.start()
    alter(world, "DROP COLUMN v", "ADD COLUMN v DATE", "ADD COLUMN note STRING")
    world.spark.sql(f"UPDATE lake.{world.name}__shop.a SET v = DATE'2023-01-02'")
    world.heal(str(world.table("a").way_out).partition("; or stop the running applier")[2])
    assert (world.table("a").state, world.in_cut()) == ("in step", {"a", "b"})

    alter(world, "DROP COLUMN note")
    world.send_row("a", {"id": "2", "v": "2023-01-05"}, {"v": "date"})
    world.resolve()
    world.start()
    assert (world.table("a").state, world.status().exit_code) == ("in step", 0)
    assert [str(row["v"]) for row in values(world, "a")] == ["2023-01-02", "2023-01-05"]

    alter(world, "DROP COLUMN v", "ADD COLUMN v DATE")
    world.start()
    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})
