"""Updated rows keep the identity that Iceberg's format 3 gives them, where a table asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from applier.commands.plan.command import plan
from applier.errors import ConfigError
from tests.spark.feeds import sql_name
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def keep(world: World, **layout: Any) -> None:
    """Let updated rows of all tables keep their ids."""
    world.settings.setdefault("tables", {})["shop.*"] = {"row_ids": "keep", **layout}


def ids(world: World, name: str = "a") -> dict[int, tuple[int, str]]:
    """Of each row, by its key, its id and its value, as Spark shows them."""
    rows = world.spark.table(sql_name((f"{world.name}__shop", name))).select("id", "_row_id", "v").collect()
    assert len({row["id"] for row in rows}) == len({row["_row_id"] for row in rows}) == len(rows)
    return {row["id"]: (row["_row_id"], row["v"]) for row in rows}


@pytest.mark.parametrize("layout", [{}, {"partition_by": ["truncate(2, v)"]}], ids=["plain", "partitioned"])
def test_an_updated_row_keeps_its_id(make: Make, layout: dict[str, Any]) -> None:
    """Again and again, with rows that come and go beside it, through restarts, compaction and DDL."""
    world = make()
    world.settings["maintenance"] = {"small_files": 3, "share": 1.0}
    keep(world, **layout)
    world.create("a")
    world.put("a", *range(1, 7))
    world.resolve()
    world.start()
    first = ids(world)
    for turn in range(5):
        world.put("a", 1 + turn % 2, 3, op="UPDATE")
        world.put("a", 10 + turn)
        world.put("a", 4 if turn == 1 else 20, op="DELETE" if turn == 1 else "INSERT")
        world.put("a", 10 + turn, op="UPDATE")
        world.put("a", 20, op="DELETE") if turn != 1 else None
        if turn == 3:
            world.ddl("ALTER TABLE a ADD COLUMN w INT")
        world.resolve()
        if turn % 2:
            world.start()
        else:
            world.run()
        now = ids(world)
        assert {key: now[key][0] for key in first if key in now} == {
            key: first[key][0] for key in first if key != 4 or turn < 1
        }
        first |= {key: found for key, found in now.items() if key not in first}
        first.pop(4 if turn >= 1 else -1, None)
    assert now[3][1] != "r1"
    frame = world.spark.table(sql_name((f"{world.name}__shop", "a")))
    sequences = {row[0]: row[1] for row in frame.select("id", "_last_updated_sequence_number").collect()}
    assert sequences[3] == max(sequences.values())
    assert sequences[5] == min(sequences.values())


def test_a_living_table_keeps_ids_from_the_next_start_on(make: Make) -> None:
    """And without the key in its pattern it goes on to; "new" ends it. Each is a change of metadata alone."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.start()
    first = ids(world)
    keep(world)
    (due,) = plan(world.config).layouts
    assert due.change == "applier-row-ids = keep"
    assert due.note == "It costs a change of metadata, which counts for each row from its next change on."
    for row_ids, is_kept in (("keep", True), (None, True), ("new", False)):
        world.settings["tables"]["shop.*"] = {"row_ids": row_ids} if row_ids else {}
        world.put("a", 1, op="UPDATE")
        world.resolve()
        world.start()
        assert (ids(world)[1][0] == first[1][0]) is is_kept
        assert ids(world)[2] == first[2]


def test_a_table_of_format_2_has_no_ids(make: Make) -> None:
    """A new one is refused with its file, a living one keeps its rows and is named."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run(format_version=2)
    world.settings["tables"]["format_version"] = 3
    keep(world)
    (due,) = plan(world.config).layouts
    assert due.note.startswith(f"Table {world.name}__shop.a cannot keep the ids of its rows: it is of format 2, and 3")
    world.settings["tables"]["format_version"] = 2
    with pytest.raises(ConfigError, match="row_ids: is for format 3, and tables.format_version or tables.readers"):
        _ = world.config


def test_an_upgraded_table_keeps_the_ids_that_its_first_commit_gives(make: Make) -> None:
    """The steps of one process, the first of which adds no file: the ids of files of before are new to it, too."""
    world = make()
    world.create("a")
    world.put("a", *range(1, 4))
    world.resolve()
    world.run(format_version=2)
    table = sql_name((f"{world.name}__shop", "a"))
    world.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    world.settings["tables"] = {"format_version": 3}
    world.settings["source"] = {"messages_per_step": 2}
    keep(world)
    world.put("a", 3, op="DELETE")
    world.resolve()
    world.put("a", 2, op="UPDATE")
    world.resolve()
    world.start()
    (made, deleted) = world.spark.table(f"{table}.snapshots").orderBy("committed_at").take(2)
    given = world.spark.sql(f"SELECT id, _row_id FROM {table} VERSION AS OF {deleted['snapshot_id']}").collect()
    assert made["operation"] == "append"
    assert {key: number for key, (number, _) in ids(world).items()} == dict(given)
