"""Changes that are older than their table keeps them go by whole days, and those that stay are all there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from applier.commands.follower import Follower
from applier.runtime import failpoints
from applier.sink.upkeep import Upkeep
from tests.spark.test_history import SECTION, begin_of, changes, keeping, sent
from tests.spark.world import START, Make, World

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
BEGIN = datetime.fromtimestamp((START >> 18) / 1000, UTC)
MIDNIGHT = BEGIN.replace(hour=0, minute=0, second=0, microsecond=0)


def pass_days(world: World, days: int) -> None:
    """Let the database go on some days later."""
    world.ts += int(days * DAY / timedelta(milliseconds=1)) << 18


def since(days: int) -> int:
    """The commit ts just below the begin of the day that comes some days after the first one."""
    return (int((MIDNIGHT + days * DAY).timestamp() * 1000) << 18) - 1


def four_days(make: Make, **more: object) -> World:
    """A table with changes on four days in a row, those of each applied by a run of its own, and days to keep."""
    world = keeping(make, **more)
    world.create("a")
    for number in range(4):
        if number:
            pass_days(world, 1)
            world.put("a", 1, op="UPDATE", v=f"d{number}")
        world.put("a", 10 + number, *([1] if not number else []))
        world.resolve()
        world.start()
    return world


def files(world: World, of: str = "files") -> set[str]:
    """The data files of the changes, or all that any snapshot has."""
    shown = world.spark.sql(f"SELECT file_path FROM lake.`{world.name}__shop`.a__changes.{of}").collect()
    return {row.file_path for row in shown}


def properties(world: World) -> dict[str, str]:
    """Those of the table of changes."""
    shown = world.spark.sql(f"SHOW TBLPROPERTIES lake.`{world.name}__shop`.a__changes").collect()
    return {row.key: row.value for row in shown}


def test_days_that_are_over_go_and_later_changes_stay(make: Make) -> None:
    """By the clock of the feed; no file is written anew, `status` says from where on, and the feed goes on."""
    world = four_days(make)
    before = files(world)
    world.settings["tables"]["shop.*"]["history_days"] = 2
    world.start()
    assert changes(world) == sent(world, "a", since(1))
    assert changes(world) != sent(world)
    assert files(world) < before
    assert begin_of(world) == since(1)
    (note,) = [each.because for each in world.status().notes if "a__changes" in each.because]
    assert note.endswith(
        f"has the changes above commit ts {since(1)} ({(MIDNIGHT + DAY).isoformat(timespec='milliseconds')}), and may "
        "lack earlier ones: those of days more than history_days = 2 back are removed."
    )

    again = world.messages[2:6]
    world.messages += again
    world._topics += ["shop"] * len(again)
    pass_days(world, 1)
    world.put("a", 1, op="UPDATE", v="late")
    world.put("a", 11, op="DELETE")
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", since(2))
    assert begin_of(world) == since(2)
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 10, 12, 13})
    assert "applier.foreign-rows" not in properties(world)


def test_a_feed_that_stands_still_loses_nothing(make: Make) -> None:
    """Watermarks alone, and the clock of this machine, make no change older."""
    world = four_days(make, history_days=4)
    for _ in range(2):
        pass_days(world, 400)
        world.resolve()
        world.start()
    assert changes(world) == sent(world)
    assert begin_of(world) is None


def test_rows_as_of_later_times_are_right_without_the_days_that_went(make: Make) -> None:
    """The view of docs/shapes.md: each key that changed since."""
    world = four_days(make, history_days=2)
    query = SECTION.partition("```sql\n")[2].partition("```")[0].partition(" AS\n")[2]
    query = query.replace("shop.orders__changes", f"lake.`{world.name}__shop`.a__changes")
    rows = world.spark.sql(query).toArrow().to_pylist()
    states: dict[int, dict[int, str]] = {world.ts: {}}
    for message in world.messages:
        ts = message["_tidb"].get("commitTs", 0)
        if message["type"] in ("INSERT", "UPDATE") and ts > since(1):
            (row,) = message["data"]
            states[ts] = {**(list(states.values())[-1] if len(states) > 1 else {}), int(row["id"]): row["v"]}
    states[world.ts] = list(states.values())[-1]
    for ts, wanted in states.items():
        here = [row for row in rows if row["valid_from"] <= ts and (row["valid_to"] is None or row["valid_to"] > ts)]
        assert {row["id"]: row["v"] for row in here} == wanted
    assert len(states) == 7


@pytest.mark.parametrize("point", ["data-files-staged", "commit-sent", "commit-done"])
def test_a_process_that_dies_calls_no_lacking_table_complete(
    make: Make, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The days go in the commit that says so, or both are yet to come."""
    world = four_days(make)
    world.settings["tables"]["shop.*"]["history_days"] = 2
    drop, reach, under_way = Upkeep.drop_days, failpoints.reach, list[str]()

    def dropping(upkeep: Upkeep) -> dict[str, int]:
        under_way.append("now")
        return drop(upkeep)

    def dies(reached: str) -> None:
        if reached == point and under_way:
            raise SystemExit(9)
        reach(reached)

    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "drop_days", dropping)
        patch.setattr(failpoints, "reach", dies)
        with suppress(SystemExit), world.applier() as pipeline:
            follower = Follower(pipeline)
            while not under_way:
                follower.turn()
    is_made = point == "commit-done"
    assert begin_of(world) == (since(1) if is_made else None)
    assert changes(world) == sent(world, "a", since(1) if is_made else 0)
    world.put("a", 2)
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", since(1))
    assert begin_of(world) == since(1)
    assert "applier.foreign-rows" not in properties(world)


def test_a_later_gap_stays_and_dead_rows_go_with_their_files(make: Make) -> None:
    """Changes that were not kept for a while; and another writer has deleted a row of a day that goes."""
    world = four_days(make)
    world.spark.sql(f"DELETE FROM lake.`{world.name}__shop`.a__changes WHERE id = 10")
    had = sent(world, "a", since(1))
    world.settings["tables"] = {}
    lost = world.put("a", 1, op="UPDATE", v="lost")
    world.resolve()
    world.start()
    world.settings["tables"] = {"shop.*": {"history": "images", "history_days": 2}}
    world.put("a", 1, op="UPDATE", v="kept")
    world.resolve()
    world.start()
    begin = begin_of(world) or 0
    assert lost <= begin < world.ts
    assert changes(world) == had + sent(world, "a", begin)
    own = f"lake.`{world.name}__shop`.a__changes"
    assert world.spark.sql(f"SELECT count(*) FROM {own}.delete_files").collect()[0][0] == 0
    world.start()
    assert begin_of(world) == begin


def test_removed_changes_leave_storage_with_their_snapshots(make: Make, days_later: Callable[[World], None]) -> None:
    """By the expiry of snapshots, as all files do."""
    world = four_days(make, history_days=2)
    assert files(world, "all_files") > files(world)
    days_later(world)
    assert files(world, "all_files") == files(world)


@pytest.fixture
def days_later() -> Callable[[World], None]:
    """Lets all snapshots expire but the newest."""

    def expire(world: World) -> None:
        world.settings["maintenance"] = {"snapshot_hours": 0, "snapshots": 1}
        for _ in range(2):
            world.put("a", 1, op="UPDATE", v="x")
            world.resolve()
            world.start()

    return expire
