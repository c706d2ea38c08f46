"""The table of changes beside a table: each change once, compared with the messages that were sent."""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from applier.commands.follower import Follower
from applier.commands.load.command import load
from applier.config import settings
from applier.errors import ConfigError
from applier.pipeline.requests import Requests
from applier.runtime import failpoints
from applier.sink.control.rows import TableRequest
from tests.few import few
from tests.spark.feeds import read
from tests.spark.test_paths import export
from tests.spark.test_shapes_page import PAGE, table_of
from tests.spark.world import START, Make, World

pytestmark = pytest.mark.spark

Cells = tuple[tuple[str, Any], ...]
SECTION = PAGE.partition("\n## Every change")[2]
ROWS = ("INSERT", "UPDATE", "DELETE")


def keeping(make: Make, **more: Any) -> World:
    """A changefeed that keeps the changes of all tables."""
    world = make()
    world.settings["tables"] = {"shop.*": {"history": "images", **more}}
    return world


def changes(world: World, table: str = "a") -> Counter[Cells]:
    """The rows of a table of changes, without what a row does not hold."""
    rows = read(world.spark, (f"{world.name}__shop", f"{table}__changes")).to_pylist()
    return Counter(_cells(row) for row in rows)


def sent(world: World, table: str = "a", since: int = 0, *also: str) -> Counter[Cells]:
    """What the messages of a table, and of its other names, say: each image of each change once."""
    found = set()
    for message in world.messages:
        ts = message["_tidb"].get("commitTs", 0)
        if message["table"] not in (table, *also) or message["type"] not in ROWS or ts <= since:
            continue
        own = {"_commit_ts": ts, "_commit_time": datetime.fromtimestamp((ts >> 18) / 1000, UTC)}
        own["_op"] = message["type"].lower()
        for number, row in enumerate(message["data"]):
            images = {"before" if message["type"] == "DELETE" else "after": row}
            if message["type"] == "UPDATE":
                images["before"] = {**row, **message["old"][number]}
            for image, values in images.items():
                typed = {name: int(value) if name in ("id", "w") else value for name, value in values.items()}
                found.add(_cells({**typed, **own, "_image": image}))
    return Counter(found)


def _cells(row: dict[str, Any]) -> Cells:
    return tuple(sorted((name, value) for name, value in row.items() if value is not None))


def test_each_change_is_a_row_once(make: Make) -> None:
    """Ten updates of a key in one step, messages that are sent again, deletes, and several runs."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2, 3)
    for number in range(10):
        world.put("a", 1, op="UPDATE", v=f"n{number}")
    again = world.messages[-3:]
    world.messages += again
    world._topics += ["shop"] * 3
    world.put("a", 2, op="DELETE")
    world.resolve()
    world.start()
    assert changes(world) == sent(world)
    assert sum(changes(world).values()) == 3 + 20 + 1

    world.messages += again
    world._topics += ["shop"] * 3
    world.put("a", 2)
    world.put("a", 2, 3, op="UPDATE", v="late")
    world.resolve()
    world.start()
    assert changes(world) == sent(world)
    assert world.keys("a") == {1, 2, 3}
    assert begin_of(world) is None


def test_columns_follow_and_rows_stay(make: Make) -> None:
    """Columns that come, and a table that is renamed or emptied: its changes stay."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.put("a", 3, w="7")
    world.put("a", 1, op="UPDATE", w="8")
    world.resolve()
    world.start()
    assert changes(world) == sent(world)
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 4, w="9")
    world.ddl("TRUNCATE TABLE b", "b")
    world.put("b", 4, w="9")
    world.resolve()
    world.start()
    assert changes(world, "b") == sent(world, "b", 0, "a")
    assert world.keys("b") == {4}


def test_a_parked_table_comes_back_with_its_changes(make: Make) -> None:
    """The job that brings it back writes them beside the table that readers see."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 1, op="UPDATE", v="x")
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.put("a", 5, w="3")
    world.resolve()
    world.start()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert changes(world) == sent(world)
    world.put("a", 1, op="DELETE", w="3")
    world.resolve()
    world.start()
    assert changes(world) == sent(world)


def test_a_living_table_says_where_its_changes_begin(make: Make) -> None:
    """Those of before are lacking, and a property of the table of changes says up to where."""
    world = make()
    world.create("a")
    last = world.put("a", 1, 2)
    since = world.resolve()
    world.start()
    world.settings["tables"] = {"shop.*": {"history": "images"}}
    world.put("a", 1, op="UPDATE", v="x")
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", last)
    assert last <= (begin_of(world) or 0) <= since
    shown = f"lake.{world.name}__shop.a__changes".removeprefix("lake.")
    (note,) = [each.because for each in world.status().notes if "may lack earlier ones." in each.because]
    assert note.startswith(f"Table {shown} has the changes above commit ts {begin_of(world)} (2026-11-21T")


def test_changes_that_were_not_kept_for_a_while_are_a_gap(make: Make) -> None:
    """Off and on again: the table of changes says above which commit ts it has all, and `status` shows it."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    assert begin_of(world) is None
    world.settings["tables"] = {}
    last = world.put("a", 1, op="UPDATE", v="lost")
    since = world.resolve()
    world.start()
    world.settings["tables"] = {"shop.*": {"history": "images"}}
    world.put("a", 2)
    world.resolve()
    world.start()
    assert last <= (begin_of(world) or 0) <= since
    assert "may lack earlier ones" in str([each.because for each in world.status().notes])
    assert sorted(dict(row)["id"] for row in changes(world).elements()) == [1, 2]
    world.start()
    assert last <= (begin_of(world) or 0) <= since


def test_a_table_whose_create_table_is_not_in_the_feed_keeps_its_columns(make: Make) -> None:
    """What is known of it are its own columns, and not those of its changes."""
    world = keeping(make)
    world.settings["tables"]["incomplete"] = "allow"
    world.put("a", 1)
    world.put("a", 1, op="UPDATE", v="x")
    since = world.resolve()
    world.start()
    world.put("a", 2)
    world.resolve()
    world.start()
    assert [table.table for table in world.status().tables] == ["shop.a"]
    assert world.table("a").state == "incomplete"
    assert changes(world) == sent(world)
    assert since > (begin_of(world) or 0)


def test_old_changes_may_be_removed(make: Make) -> None:
    """By whole days, as the page says; later ones follow, and the table itself does not mind."""
    world = keeping(make)
    world.create("a")
    last = world.put("a", 1, 2)
    world.resolve()
    world.start()
    own = f"lake.`{world.name}__shop`.a__changes"
    world.spark.sql(f"DELETE FROM {own} WHERE _commit_time < TIMESTAMP '2126-11-01 00:00:00Z'")
    world.put("a", 1, op="UPDATE", v="x")
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", last)
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2})


def test_changes_that_another_writer_drops_are_a_gap(make: Make) -> None:
    """Also where the table has no row left: it has had some."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.put("a", 2)
    world.resolve()
    world.start()
    world.put("a", 1, op="DELETE")
    last = world.put("a", 2, op="DELETE")
    since = world.resolve()
    world.start()
    world.spark.sql(f"DROP TABLE lake.`{world.name}__shop`.a__changes")
    world.put("a", 3)
    world.resolve()
    world.start()
    assert last <= (begin_of(world) or 0) <= since


@pytest.mark.parametrize("begin", ["beginning", f"{START + 3}"])
def test_dropped_changes_of_which_a_backfill_brings_some_are_a_gap(make: Make, begin: str) -> None:
    """The range ends before the table does, as a branch may: what it leaves out is lacking."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.put("a", 2)
    end = world.resolve()
    world.start()
    world.put("a", 4)
    since = world.resolve()
    world.start()
    world.spark.sql(f"DROP TABLE lake.`{world.name}__shop`.a__changes")
    world.obey(f"applier backfill -c {world.path} --from {begin} --to {end} --tables shop.a --branch x --take-over")
    world.put("a", 3)
    world.resolve()
    world.start()
    assert (begin_of(world), world.table("a").state) == (since, "in step")
    assert changes(world) == sent(world, "a", 0 if begin == "beginning" else START + 3) - sent(world, "a", end) + sent(
        world, "a", since
    )


@pytest.mark.parametrize(
    "point", ["table-ensured", "commit-sent", "commit-done", "changes-evolved", "ddl-applied", "changes-renamed"]
)
@pytest.mark.parametrize("turn", [1, 2])
def test_a_process_that_dies_leaves_each_change_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, point: str, turn: int
) -> None:
    """Between the commits of the changes and of the table, and among those of DDL."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.put("a", 1, op="UPDATE", v="x")
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.put("a", 3, w="7")
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 1, op="UPDATE", v="y", w="1")
    world.resolve()
    reach, left = failpoints.reach, [turn]

    def dies(reached: str) -> None:
        if reached == point and left:
            left[0] -= 1
            if not left[0]:
                left.pop()
                raise SystemExit(9)
        reach(reached)

    monkeypatch.setattr(failpoints, "reach", dies)
    with suppress(SystemExit), world.applier() as pipeline:
        Follower(pipeline).turn()
    assert not left or point.startswith("changes-")
    world.put("b", 2, op="DELETE", w="2")
    world.resolve()
    world.start()
    assert changes(world, "b") == sent(world, "b", 0, "a")
    assert (world.table("b").state, world.keys("b")) == ("in step", {1, 3})


def test_a_column_goes_and_a_process_dies_before_its_table_has_lost_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes have: rows of before, which come again for the table, do not fit them any more."""
    world = keeping(make)
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT)", "a")
    world.put("a", 1, w="7")
    world.resolve()
    world.start()
    world.put("a", 2, w="8")
    world.ddl("ALTER TABLE a DROP COLUMN w", "a")
    world.put("a", 3)
    world.resolve()
    _die_at(world, monkeypatch, "changes-evolved")
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2, 3})
    assert changes(world) == Counter(_cells({k: v for k, v in row if k != "w"}) for row in sent(world))


def _die_at(world: World, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def dies(reached: str) -> None:
        if reached == point:
            raise SystemExit(9)

    with monkeypatch.context() as patch, suppress(SystemExit), world.applier() as pipeline:
        patch.setattr(failpoints, "reach", dies)
        Follower(pipeline).turn()
        pytest.fail(f"it did not come to {point}")


def test_a_parked_table_is_renamed_with_its_changes(make: Make) -> None:
    """Its former name is another table's, with changes of its own, before it comes back."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 1, op="UPDATE", v="x")
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 3)
    world.resolve()
    world.start()
    begin = world.create("a")
    world.put("a", 9)
    world.resolve()
    world.start()
    world.obey(f"applier resume -c {world.path} --tables shop.b")
    world.start()
    assert (world.table("a").state, world.table("b").state) == ("in step", "in step")
    assert changes(world) == sent(world, "a", begin)
    assert changes(world, "b") == sent(world, "b", 0, "a") - sent(world, "a", begin)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE TABLE a (id BIGINT, v VARCHAR(9))", "The changes of table shop.a cannot be kept: it has no key"),
        (
            "CREATE TABLE a (id BIGINT PRIMARY KEY, _image INT)",
            "The changes of table shop.a cannot be kept: its column _image has the name of one of theirs",
        ),
        (
            "CREATE TABLE a__changes (id BIGINT PRIMARY KEY, v VARCHAR(9))",
            "Upstream table shop.a__changes has the name of the table of changes of shop.a",
        ),
    ],
)
def test_what_cannot_be_kept_parks_its_table(make: Make, sql: str, why: str) -> None:
    """With a way out; other tables go on."""
    world = keeping(make)
    name = sql.split()[2]
    world.create("other")
    world.put("other", 1)
    world.ddl(sql, name)
    world.resolve()
    world.start()
    shown = world.table(name)
    assert shown.state == "parked"
    assert why in str(shown.because)
    assert "history" in str(shown.way_out)
    assert changes(world, "other") == sent(world, "other")


def test_a_load_leaves_a_gap_that_is_shown(make: Make, tmp_path: Path) -> None:
    """The changes that the export holds are not among those of the table, which says from where on it has all."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 2, op="DELETE")
    lost = world.put("a", 1, op="UPDATE", v="one")
    tso = world.resolve()
    load(world.config, export(tmp_path / "export", tso), (), lambda _: None)
    world.resolve()
    world.start()
    assert (world.table("a").state, begin_of(world)) == ("in step", tso)
    world.put("a", 7)
    world.put("a", 1, op="UPDATE", v="two")
    world.resolve()
    world.start()
    assert world.table("a").state == "in step"
    had = sent(world) - sent(world, "a", START + 3)
    assert changes(world) == had + sent(world, "a", lost)
    assert begin_of(world) == tso


def test_a_load_without_rows_leaves_a_gap_too(make: Make, tmp_path: Path) -> None:
    """A row came and went while its table was parked: the load brings none, and no change was kept."""
    world = keeping(make)
    world.create("a")
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 1)
    world.put("a", 1, op="DELETE")
    tso = world.resolve()
    folder = export(tmp_path / "export", tso)
    (tmp_path / "export" / "shop.a.000000000.csv").unlink()
    load(world.config, folder, (), lambda _: None)
    last = world.ts
    world.put("a", 7)
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", last)
    assert begin_of(world) == tso


@pytest.mark.parametrize("statement", ["ADD COLUMN w INT DEFAULT 5", "DROP COLUMN c", "MODIFY COLUMN c BIGINT"])
def test_a_load_behind_a_ddl_keeps_the_changes(make: Make, tmp_path: Path, statement: str) -> None:
    """The statement is in the export: the feed does not bring it to the changes, which take the columns of then."""
    world = keeping(make)
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), c INT)", "a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.ddl(f"ALTER TABLE a {statement}", "a")
    tso = world.resolve()
    folder = export(tmp_path / "export", tso)
    columns = {"ADD": "`c` int, `w` int DEFAULT 5, ", "DRO": "", "MOD": "`c` bigint, "}[statement[:3]]
    declared = f"CREATE TABLE `a` (`id` bigint NOT NULL, `v` varchar(9), {columns}PRIMARY KEY (`id`));\n"
    (tmp_path / "export" / "shop.a-schema.sql").write_text(declared)
    names = ["id", "v", *re.findall("`([cw])`", columns)]
    rows = [",".join(f'"{name}"' for name in names), ",".join(["1", '"one"', *["5"] * (len(names) - 2)])]
    (tmp_path / "export" / "shop.a.000000000.csv").write_text("".join(f"{line}\n" for line in rows))
    load(world.config, folder, (), lambda _: None)
    world.put("a", 7)
    world.resolve()
    world.start()
    assert (world.table("a").state, begin_of(world)) == ("in step", tso)
    assert changes(world) == sent(world, "a", tso)
    (aside,) = [name for name in _names(world) if "__changes_dropped_" in name]
    assert [row["id"] for row in read(world.spark, (f"{world.name}__shop", aside)).to_pylist()] == [1]


def _names(world: World) -> list[str]:
    return [row.tableName for row in world.spark.sql(f"SHOW TABLES IN lake.`{world.name}__shop`").collect()]


def test_a_ddl_behind_a_load_does_not_hide_the_gap(make: Make, tmp_path: Path) -> None:
    """The statement is the first that comes to the changes behind the load."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 2)
    tso = world.resolve()
    load(world.config, export(tmp_path / "export", tso), (), lambda _: None)
    world.ddl("ALTER TABLE a ADD COLUMN w INT", "a")
    world.put("a", 7, w="3")
    world.resolve()
    world.start()
    assert (world.table("a").state, begin_of(world)) == ("in step", tso)
    assert changes(world) == sent(world) - sent(world, "a", START + 2) + sent(world, "a", tso)


def test_changes_that_were_not_kept_while_a_table_was_parked_are_a_gap(make: Make) -> None:
    """It comes back in a run without history, which found it parked at its start, and the next one keeps changes."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.settings["tables"] = {}
    last = world.put("a", 1, op="UPDATE", v="lost")
    since = world.resolve()
    with world.applier() as pipeline:
        follower = Follower(pipeline)
        Requests(pipeline).ask(TableRequest("one", "resume", ("shop.a",), "", "a test"))
        while (step := follower.turn()).moved or step.resuming:
            pass
    assert world.table("a").state == "in step"
    world.settings["tables"] = {"shop.*": {"history": "images"}}
    world.put("a", 2)
    world.resolve()
    world.start()
    assert last <= (begin_of(world) or 0) <= since


def test_a_table_comes_back_with_its_first_changes(make: Make) -> None:
    """It was parked before it had any: the job that brings it back makes the table of changes where readers see it."""
    world = keeping(make)
    made = world.create("a")
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.put("a", 1, 2)
    world.put("a", 1, op="UPDATE", v="x")
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert changes(world) == sent(world)
    assert (world.table("a").state, begin_of(world)) == ("in step", made)


def test_changes_that_were_set_back_say_what_they_lack(make: Make) -> None:
    """A table whose changes show an older snapshot is parked; brought back, it has a gap in them, which is shown."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    first = world.resolve()
    world.start()
    own = f"{world.name}__shop.a__changes"
    (older,) = world.spark.sql(f"SELECT snapshot_id FROM lake.{own}.snapshots").collect()
    world.put("a", 2)
    since = world.resolve()
    world.start()
    world.spark.sql(f"CALL lake.system.rollback_to_snapshot('{own}', {older.snapshot_id})")
    world.put("a", 3)
    world.resolve()
    world.start()
    assert "a__changes was rolled back by hand" in str(world.table("a").because)
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.put("a", 4)
    world.resolve()
    world.start()
    assert world.table("a").state == "in step"
    assert changes(world) == sent(world) - sent(world, "a", first) + sent(world, "a", since)
    assert begin_of(world) == since


def test_a_gap_is_not_lost_where_a_process_dies(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Others drop the changes of a table that was loaded: the load is older than the gap."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    tso = world.resolve()
    load(world.config, export(tmp_path / "export", tso), (), lambda _: None)
    world.put("a", 3)
    since = world.resolve()
    world.start()
    assert begin_of(world) == tso
    world.spark.sql(f"DROP TABLE lake.{world.name}__shop.a__changes")
    world.put("a", 4)
    world.resolve()

    def dies(reached: str) -> None:
        if reached == "commit-sent":
            raise SystemExit(9)

    with monkeypatch.context() as patch, suppress(SystemExit), world.applier() as pipeline:
        patch.setattr(failpoints, "reach", dies)
        Follower(pipeline).turn()
    assert begin_of(world) == since
    world.start()
    assert begin_of(world) == since
    assert changes(world) == sent(world, "a", since)


def begin_of(world: World, table: str = "a") -> int | None:
    """Above which commit ts a table of changes has all; None where it has had all of them."""
    shown = world.spark.sql(f"SHOW TBLPROPERTIES lake.{world.name}__shop.{table}__changes").collect()
    begin = {row.key: row.value for row in shown}.get("applier-changes-from")
    return None if begin is None else int(begin)


def test_the_page_shows_the_changes_of_its_example(make: Make) -> None:
    """By the statements at its top."""
    world = make()
    world.settings["tables"] = tomllib.loads(SECTION.split("```")[1]).get("tables", {})
    world.ddl("CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(9))", "orders")
    for key in (1, 2):
        world.put("orders", key, v="new")
    world.send(
        {
            **{key: world.messages[-1][key] for key in ("table", "pkNames", "mysqlType", "sqlType")},
            "type": "UPDATE",
            "data": [{"id": "2", "v": "paid"}],
            "old": [{"v": "new"}],
        }
    )
    world.resolve()
    world.start()
    rows = read(world.spark, (f"{world.name}__shop", "orders__changes"))
    ordered = sorted(rows.to_pylist(), key=lambda row: (row["_commit_ts"], row["_image"] == "after"))
    shown = [list(map(str, row.values())) for row in ordered]
    assert [rows.column_names, *shown] == table_of(SECTION)


@pytest.mark.parametrize("seed", few(range(4)))
def test_the_view_of_the_page_shows_the_rows_as_of_any_time(make: Make, seed: int) -> None:
    """Against a dictionary that takes the same changes."""
    world, chance = keeping(make, history=("changes", "images")[seed % 2]), random.Random(seed)
    world.create("orders")
    rows: dict[int, str] = {}
    states = {world.ts: dict(rows)}
    for number in range(60):
        key = chance.randrange(6)
        kind = chance.choice(["UPDATE", "DELETE"]) if key in rows else "INSERT"
        world.put("orders", key, op=kind, v=f"n{number}")
        if kind == "DELETE":
            del rows[key]
        else:
            rows[key] = f"n{number}"
        states[world.ts] = dict(rows)
        if number % 25 == 24:
            world.resolve()
            world.start()
    world.resolve()
    world.start()
    query = SECTION.partition("```sql\n")[2].partition("```")[0].partition(" AS\n")[2]
    world.spark.sql(query.replace("shop.", f"lake.{world.name}__shop.")).createOrReplaceTempView("versions")
    found = world.spark.table("versions").toArrow().to_pylist()
    for ts, wanted in states.items():
        here = [row for row in found if row["valid_from"] <= ts and (row["valid_to"] is None or row["valid_to"] > ts)]
        assert sorted((row["id"], row["v"]) for row in here) == sorted(wanted.items())


def test_changes_have_the_columns_of_their_table(make: Make) -> None:
    """Excluded, cast and masked ones; the columns that only the changes have are as ever."""
    columns = {"exclude": ["w"], "mask": {"v": "redact"}, "cast": {"_commit_ts": "string"}}
    world = keeping(make, columns=columns, types={"bigint": "string"})
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w INT)")
    world.put("a", 1, 2, w="7")
    world.put("a", 1, op="UPDATE", v="secret", w="8")
    world.put("a", 2, op="DELETE", w="8")
    world.resolve()
    world.start()
    assert changes(world) == _shaped(sent(world))
    world.put("a", 1, op="UPDATE", v="secret", w="9")
    world.resolve()
    world.start()
    assert changes(world) == _shaped(sent(world))


def _shaped(rows: Counter[Cells]) -> Counter[Cells]:
    shown = [{**dict(row), "v": "***", "id": str(dict(row)["id"])} for row in rows.elements()]
    return Counter(_cells({name: value for name, value in row.items() if name != "w"}) for row in shown)


def test_an_excluded_column_leaves_the_changes_too(make: Make) -> None:
    """Of a living table, with its values, by a change of metadata; later changes follow."""
    world = keeping(make)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    world.settings["tables"]["shop.*"]["columns"] = {"exclude": ["v"]}
    world.put("a", 2)
    world.put("a", 1, op="UPDATE", v="late")
    world.resolve()
    world.start()
    shown = [{name: value for name, value in row if name != "v"} for row in sent(world).elements()]
    assert changes(world) == Counter(map(_cells, shown))
    assert world.table("a").state != "parked"
    columns = world.spark.table(f"lake.`{world.name}__shop`.a__changes").columns
    assert columns == ["id", "_commit_ts", "_commit_time", "_op", "_image"]


@pytest.mark.parametrize("on_drop", ["drop", "keep"])
def test_changes_of_a_dropped_table_are_not_those_of_the_next(make: Make, on_drop: str) -> None:
    """Another table gets the name: it has none of the changes of the former, which `keep` leaves until then."""
    world = keeping(make)
    world.settings["tables"]["on_drop"] = on_drop
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    former = sent(world)
    gone = world.ddl("DROP TABLE a")
    world.resolve()
    world.start()
    if on_drop == "keep":
        assert changes(world) == former
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    assert changes(world) == sent(world, "a", gone)


def test_offset_order_is_refused() -> None:
    """Before anything is written, with the key."""
    raw = {
        "changefeed": {"name": "a", "protocol": "canal-json", "order": "offset"},
        "source": {"archive": "x"},
        "catalog": {"name": "lake", "type": "hadoop", "warehouse": "x"},
        "tables": {"route": "{database}.{table}", "shop.*": {"history": "changes"}},
    }
    with pytest.raises(ConfigError) as refused:
        settings.parse(raw)
    assert 'tables.shop.*.history: needs changefeed.order = "resolved": without watermarks' in str(refused.value)


def test_an_export_from_before_a_rename_leaves_no_change_to_the_next_table(make: Make, tmp_path: Path) -> None:
    """Messages from before the RENAME are of the table that has left the name."""
    world = keeping(make)
    world.settings["source"] = {"messages_per_step": 2}
    for table in ("a", "b"):
        world.create(table)
    world.put("a", 1)
    world.put("b", 5)
    tso = world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.b --why test")
    for key in range(11, 17):
        world.put("a", key)
        world.resolve()
    world.ddl("RENAME TABLE a TO c")
    world.ddl("RENAME TABLE b TO a", "b")
    world.put("a", 6)
    world.resolve()
    world.start()
    load(world.config, export(tmp_path / "export", tso), ("shop.a",), lambda _: None)
    world.start()
    line = world.table("a")
    assert (line.state, "renamed to shop.c since" in str(line.because)) == ("parked", True), line
    kept = read(world.spark, (f"{world.name}__shop", "a__changes")).to_pylist()
    assert {row["id"] for row in kept} <= {5, 6}
