"""Parked tables: what parks one, what stays as it was for all others, and how each comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import cast

import pyarrow as pa
import pytest

from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.commands.tables.command import ask
from applier.errors import CheckpointConflict, ConfigError, SchemaChangeRefused, TerminalError
from applier.pipeline.jobs.resumption import Resumption
from applier.pipeline.requests import Requests
from applier.runtime import failpoints
from applier.sink.control.control import Control
from applier.sink.control.rows import TableRequest, request_rows
from applier.sink.control.tables import REQUESTS
from applier.sink.iceberg.catalog import Catalog
from applier.sink.upkeep import Thresholds, Upkeep
from tests.few import few
from tests.spark.feeds import read
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

PARTITIONED = "(id BIGINT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))"  # noqa: E501 - one statement


class Crash(BaseException):
    """The process is gone."""


def begun(make: Make, *tables: str, **changefeed: str) -> World:
    """A changefeed with tables of two rows each, applied."""
    world = make(**changefeed)
    for table in tables:
        world.create(table)
        world.put(table, 1, 2)
    world.resolve()
    world.run()
    return world


def values(world: World, table: str) -> list[dict[str, object]]:
    """All rows of a table, in order of the key."""
    rows = read(world.spark, (f"{world.name}__shop", table)).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


# ---- what happens while a table is parked


def type_changes(world: World) -> list[dict[str, object]]:
    """A column is dropped and made anew with another type."""
    world.ddl("ALTER TABLE a DROP COLUMN v")
    world.ddl("ALTER TABLE a ADD COLUMN w INT DEFAULT 7")
    world.send_row("a", {"id": "3", "w": "8"})
    return [{"id": 1, "w": 7}, {"id": 2, "w": 7}, {"id": 3, "w": 8}]


def column_swaps(world: World) -> list[dict[str, object]]:
    """Two columns trade their names."""
    world.ddl("ALTER TABLE a ADD COLUMN w VARCHAR(9) DEFAULT 'w'")
    world.ddl("ALTER TABLE a RENAME COLUMN v TO x")
    world.ddl("ALTER TABLE a RENAME COLUMN w TO v")
    world.ddl("ALTER TABLE a RENAME COLUMN x TO w")
    found = values(world, "a")
    return [{"id": row["id"], "w": row["v"], "v": "w"} for row in found]


def truncate(world: World) -> list[dict[str, object]]:
    """All rows go, and one comes."""
    world.put("a", 7)
    world.ddl("TRUNCATE TABLE a")
    world.send_row("a", {"id": "3", "v": "new"})
    return [{"id": 3, "v": "new"}]


def widening(world: World) -> list[dict[str, object]]:
    """Values are rewritten by a new type."""
    found = values(world, "a")
    world.ddl("ALTER TABLE a MODIFY COLUMN v CHAR(20)")
    world.put("a", 2, op="DELETE")
    return [row for row in found if row["id"] != 2]


@pytest.mark.parametrize(
    ("missed", "how"),
    [
        (type_changes, "include"),
        *(
            pytest.param(missed, how, marks=pytest.mark.soak)
            for missed, how in (
                (column_swaps, "command"),
                (type_changes, "command"),
                (column_swaps, "include"),
                (truncate, "include"),
                (truncate, "command"),
                (widening, "include"),
                (widening, "command"),
            )
        ),
    ],
)
def test_a_parked_table_takes_the_ddl_that_it_missed(
    make: Make, missed: Callable[[World], list[dict[str, object]]], how: str
) -> None:
    """Each DDL is applied in its place among the rows, and readers see nothing of it before the table is up to date."""
    world = begun(make, "a", "b")
    before = values(world, "a")
    if how == "include":
        world.run(include=["*.*", "!shop.a"])
    else:
        world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    expected = missed(world)
    world.put("b", 3)
    world.resolve()
    world.run()
    assert (values(world, "a"), world.table("a").state, world.in_cut()) == (before, "parked", {"b"})

    if how == "include":
        world.run(include=["*.*"])
    else:
        assert "Resumed: shop.a." in world.heal(world.table("a").way_out)

    assert values(world, "a") == expected
    assert (world.table("a").state, world.in_cut(), world.status().exit_code) == ("in step", {"a", "b"}, 0)
    world.put("b", 4)
    world.resolve()
    world.run()
    assert (values(world, "a"), world.table("a").state) == (expected, "in step")


@pytest.mark.soak
def test_a_renamed_table_stays_parked_and_its_name_is_free(make: Make) -> None:
    """It resumes under its new name, and the table that took the former one was never touched."""
    world = begun(make, "a")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 4)
    world.create("a")
    world.put("a", 9)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.table("b").state, world.in_cut()) == ("in step", "parked", {"a"})
    assert (world.keys("a"), world.keys("b")) == ({9}, {1, 2})
    world.heal(world.table("b").way_out)
    assert (world.keys("a"), world.keys("b"), world.in_cut()) == ({9}, {1, 2, 3, 4}, {"a", "b"})


@pytest.mark.soak
def test_a_parked_table_whose_topic_a_rename_leaves_resumes_at_once(make: Make) -> None:
    """Nothing follows the RENAME that holds the job back, and no later message has to."""
    world = make()
    for topic, table in (("ta", "a"), ("to", "o")):
        world.topic = topic
        world.create(table)
        world.put(table, 1)
    for topic in ("ta", "to"):
        world.topic = topic
        world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look' --take-over")
    world.topic = "ta"
    world.put("a", 2)
    world.ddl("RENAME TABLE a TO b")
    world.topic = "to"
    world.put("o", 2)
    world.resolve()
    world.run()
    assert world.table("b").state == "parked"

    world.obey(f"applier resume -c {world.path} --tables shop.b --take-over")

    assert (world.table("b").state, world.keys("b"), world.in_cut()) == ("in step", {1, 2}, {"b", "o"})


@pytest.mark.soak
def test_tables_that_trade_names_while_one_is_parked(make: Make) -> None:
    """The parked one resumes under the name of the other."""
    world = begun(make, "a", "b")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.resolve()
    world.run()
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        world.ddl(f"RENAME TABLE {old} TO {new}")
    world.put("a", 4)
    world.put("b", 5)
    world.resolve()
    world.run()
    assert (world.keys("a"), world.keys("b")) == ({1, 2, 4}, {1, 2})

    world.heal(world.table("b").way_out)

    assert (world.keys("a"), world.keys("b")) == ({1, 2, 4}, {1, 2, 3, 5})
    assert world.in_cut() == {"a", "b"}


def test_an_exchange_with_a_parked_table_parks_the_other_and_both_come_back(make: Make) -> None:
    """Rows of the parked one would be missing in the other, so both resume at their places and exchange then."""
    world = make()
    world.ddl(f"CREATE TABLE p {PARTITIONED}", "p")
    world.put("p", 1, 50)
    world.create("a")
    world.put("a", 2)
    world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.put("p", 51)
    world.resolve()
    world.run()
    world.ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", "p")
    world.put("p", 4)
    world.resolve()
    world.run()
    assert (world.table("p").state, world.keys("p"), world.keys("a")) == ("parked", {1, 50, 51}, {2})

    world.heal(world.table("p").way_out)

    assert (world.keys("p"), world.keys("a")) == ({2, 3, 4, 50, 51}, {1})
    assert (world.in_cut(), world.status().exit_code) == ({"a", "p"}, 0)


@pytest.mark.soak
def test_a_table_that_is_dropped_while_it_is_left_out_is_gone(make: Make) -> None:
    """Nothing brings it back, and a new one of its name is read from its CREATE TABLE."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a"])
    world.put("a", 3)
    world.ddl("DROP TABLE a")
    world.put("b", 3)
    world.resolve()
    world.run()
    assert "shop.a" not in {table.table for table in world.status().tables}
    world.run(include=["*.*"])
    assert (world.in_cut(), world.status().exit_code) == ({"b"}, 0)
    world.run(include=["*.*", "!shop.a"])
    world.create("a")
    world.put("a", 9)
    world.resolve()
    world.run()

    world.run(include=["*.*"])

    assert (world.keys("a"), world.in_cut()) == ({9}, {"a", "b"})


@pytest.mark.soak
def test_a_table_that_was_dropped_and_kept_stays_beside_the_one_that_is_read_from_its_create(make: Make) -> None:
    """The new table takes neither its rows nor its mark, and what was kept can be looked at."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a"])
    ts = world.ddl("DROP TABLE a")
    world.create("a")
    world.put("a", 9)
    world.resolve()
    world.run()

    world.run(include=["*.*"])

    assert (world.keys("a"), world.in_cut()) == ({9}, {"a", "b"})
    assert world.keys(f"a_dropped_{ts}") == {1, 2}
    table = Catalog(world.spark, "lake").load((f"{world.name}__shop", "a"))
    assert table is not None
    assert table.setting("applier.dropped-at") is None


def test_a_process_that_lost_the_changefeed_leaves_the_copies_of_the_next_alone(make: Make) -> None:
    """It would begin to bring tables back itself, and first forgets the copies of jobs before it."""
    world = begun(make, "a", "b")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.resolve()
    world.run()
    with suppress(CheckpointConflict), world.applier() as zombie:
        Requests(zombie).carry_out(TableRequest("one", "resume", ("shop.a",), "", "me"))
        with world.applier() as pipeline:
            copy = (f"applier_{world.name}__resume", "of_the_next")
            Catalog(world.spark, "lake").create(copy, pa.schema([("id", pa.int64())]))
            with pytest.raises(CheckpointConflict):
                Resumption(zombie).advance(is_busy=False)
            assert Catalog(world.spark, "lake").load(copy) is not None
            Catalog(world.spark, "lake").drop(copy)
            follower = Follower(pipeline)
            while follower.turn().resuming:
                pass
    assert world.keys("a") == {1, 2, 3}


def test_a_table_that_is_being_brought_back_can_be_parked(make: Make) -> None:
    """It stays parked at the next start, though `tables.include` had been the first cause."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a"])
    world.put("a", 3)
    world.resolve()
    world.run()
    world.settings["tables"]["include"] = ["*.*"]
    with world.applier() as pipeline:
        Requests(pipeline).carry_out(TableRequest("one", "park", ("shop.a",), "a look", "me"))

    world.run()

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("parked", {1, 2}, {"b"})


def test_an_exchange_with_an_incomplete_table_leaves_both_incomplete(make: Make) -> None:
    """Rows that the incomplete one lacks would be missing in the other: neither is in the cut."""
    world = make()
    world.ddl(f"CREATE TABLE p {PARTITIONED}", "p")
    world.put("p", 1, 50)
    world.put("a", 2)
    world.resolve()
    world.run()
    assert (world.table("p").state, world.table("a").state) == ("in step", "incomplete")
    world.ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", "p")
    world.resolve()

    world.run()

    assert (world.table("p").state, world.table("a").state, world.in_cut()) == ("incomplete", "incomplete", set())


@pytest.mark.soak
def test_a_column_that_is_renamed_while_its_table_is_left_out(make: Make) -> None:
    """The rename finds its place, and a row behind it has the new name."""
    world = begun(make, "a")
    world.run(include=["*.*", "!shop.a"])
    world.ddl("ALTER TABLE a RENAME COLUMN v TO w")
    world.ddl("ALTER TABLE a MODIFY COLUMN w VARCHAR(20)")
    world.send_row("a", {"id": "3", "w": "new"}, kinds={"w": "varchar(20)"})
    world.resolve()
    world.run()

    world.run(include=["*.*"])

    assert [sorted(row) for row in values(world, "a")] == [["id", "w"]] * 3
    assert (values(world, "a")[-1], world.table("a").state) == ({"id": 3, "w": "new"}, "in step")


@pytest.mark.soak
def test_names_that_trade_tables_while_both_are_left_out(make: Make) -> None:
    """Each Iceberg table follows its upstream table, and both are whole once they are taken in again."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a", "!shop.b", "!shop.tmp"])
    world.put("a", 3)
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        world.ddl(f"RENAME TABLE {old} TO {new}")
    world.put("a", 4)
    world.resolve()
    world.run()

    world.run(include=["*.*"])

    assert (world.keys("a"), world.keys("b"), world.in_cut()) == ({1, 2, 4}, {1, 2, 3}, {"a", "b"})


@pytest.mark.soak
def test_a_skipped_exchange_is_made_good_by_hand(make: Make) -> None:
    """Both tables miss it and say so; once they are what their upstream is, the printed commands end that."""
    world = make()
    world.ddl(f"CREATE TABLE p {PARTITIONED}", "p")
    world.put("p", 1)
    world.create("a")
    world.put("a", 2)
    world.resolve()
    world.run()
    world.settings["changefeed"] = {"on_table_error": "stop"}
    world.settings["ddl"] = {"exchange-partition": "stop"}
    ts = world.ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE a", "p")
    world.resolve()
    with pytest.raises(SchemaChangeRefused):
        world.run()
    world.obey(f"applier ddl skip {ts} -c {world.path} --why 'by hand'")
    world.run()
    assert (world.table("p").state, world.table("a").state) == ("incomplete", "incomplete")

    for table in ("p", "a"):
        told = world.table(table).way_out or ""
        _, told = told.split("; or stop the running applier, bring the Iceberg table to what upstream has, and run ")
        world.heal(told.replace("TEXT", "'by hand'"))

    assert (world.in_cut(), world.status().exit_code) == ({"a", "p"}, 0)


@pytest.mark.soak
def test_a_table_that_is_renamed_into_the_included_names_is_read_from_its_create(make: Make) -> None:
    """Until its rows so far are here nothing is applied to it; the next start reads them under its former name."""
    world = make()
    world.create("b")
    world.create("old")
    world.put("old", 1, 2)
    world.resolve()
    world.run(include=["*.*", "!shop.old"])
    world.ddl("RENAME TABLE old TO a")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.run()
    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})

    world.run()

    assert (world.keys("a"), world.table("a").state, world.in_cut()) == ({1, 2, 3}, "in step", {"a", "b"})


# ---- dead letters


def test_a_dead_letter_leaves_its_table_incomplete_until_none_is_left(make: Make) -> None:
    """The row that it holds is missing, so the table is not in the cut; made up for, or discarded, it is again."""
    for way in ("backfill", "discard"):
        world = make(on_bad_message="dead_letter")
        world.name += way
        world.create("b")
        world.put("b", 1)
        world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w DATE)")
        for key, day in (("1", "2026-01-01"), ("2", "0000-00-00")):
            world.send_row("a", {"id": key, "v": "x", "w": day}, kinds={"w": "date"})
        world.resolve()
        world.run(zero_dates="stop")
        lacking = world.table("a")
        assert (lacking.state, world.in_cut(), world.status().exit_code) == ("incomplete", {"b"}, 1)
        assert "was set aside as a dead letter" in (lacking.because or "")
        world.settings["tables"]["zero_dates"] = "null"

        if way == "backfill":
            assert "1 dead letters are made up for" in world.heal(lacking.way_out)
        else:
            world.obey(f"applier dead-letters discard -c {world.path} --all --why 'a test row'")

        assert (world.in_cut(), world.status().exit_code) == ({"a", "b"}, 0)
        assert world.keys("a") == ({1, 2} if way == "backfill" else {1})


def test_a_dead_letter_of_which_nothing_shows_the_table_doubts_all(make: Make) -> None:
    """It may hold a row of any of them."""
    world = make(on_bad_message="dead_letter")
    world.create("a")
    world.put("a", 1)
    world.send({"type": "nonsense", "data": "no rows"})
    world.resolve()

    world.run()

    assert (world.table("a").state, world.in_cut()) == ("incomplete", set())


def test_a_dead_letter_of_a_table_that_was_renamed_names_the_way(make: Make) -> None:
    """Its rows have no table of that name any more: the table is read again through its rename."""
    world = make(on_bad_message="dead_letter")
    world.create("a")
    world.put("a", 1)
    world.send_row("a", {"id": "2", "v": "x", "w": "0000-00-00"}, kinds={"w": "date"})
    world.ddl("ALTER TABLE a ADD COLUMN w DATE")
    world.resolve()
    world.run(zero_dates="stop")
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 3)
    world.resolve()
    world.run()
    world.settings["tables"]["zero_dates"] = "null"

    told = world.obey(f"applier backfill -c {world.path} --dead-letters", code=1)

    assert "which was renamed or dropped since: run `applier resume" in told


def test_a_feed_in_offset_order_brings_its_tables_back_by_their_offsets(make: Make) -> None:
    """Rows and ALTER find their places by the offsets; a table that left elsewhere follows in a job of its own."""
    world = begun(make, "a", "b", order="offset")
    world.run(include=["*.*", "!shop.a"])
    world.put("a", 2, op="DELETE")
    world.put("b", 3)
    world.run()
    world.run(include=["*.*", "!shop.a", "!shop.b"])
    world.ddl("ALTER TABLE a DROP COLUMN v")
    world.ddl("ALTER TABLE a ADD COLUMN w INT DEFAULT 7")
    world.send_row("a", {"id": "3", "w": "8"})
    world.put("b", 4)
    world.run()

    world.run(include=["*.*"])

    assert values(world, "a") == [{"id": 1, "w": 7}, {"id": 3, "w": 8}]
    assert (world.keys("b"), world.in_cut(), world.status().exit_code) == ({1, 2, 3, 4}, {"a", "b"}, 0)
    world.send_row("a", {"id": "4", "w": "9"})
    world.run()
    assert values(world, "a")[-1] == {"id": 4, "w": 9}


@pytest.mark.soak
def test_a_rename_in_offset_order_has_no_place_among_the_rows(make: Make) -> None:
    """The table stays parked under its new name, with its rows; the sentence names the DDL; others come back."""
    world = begun(make, "a", "b", order="offset")
    world.obey(f"applier park -c {world.path} --tables 'shop.*' --why 'a look'")
    world.put("a", 3)
    world.ddl("RENAME TABLE a TO c")
    world.put("c", 4)
    world.put("b", 4)
    world.run()

    told = world.obey(f"applier resume -c {world.path} --tables 'shop.*'", code=3)

    assert "holds a DDL of kind rename-table" in told
    assert (world.table("c").state, world.keys("c"), world.in_cut()) == ("parked", {1, 2}, {"b"})
    assert world.keys("b") == {1, 2, 4}


@pytest.mark.parametrize("point", [pytest.param("resume-taken-in", marks=pytest.mark.soak), "resume-range-read"])
def test_what_others_change_in_a_table_while_its_copy_is_under_way_stays(
    make: Make, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A column, a partition field and a property that came meanwhile have numbers that those of the copy have, too."""
    world = begun(make, "a")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.ddl("ALTER TABLE a ADD COLUMN c VARCHAR(9)")
    world.send_row("a", {"id": "3", "v": "y", "c": "of c"})
    world.resolve()
    world.run()
    table, reach, due = f"lake.{world.name}__shop.a", failpoints.reach, [point]

    def others(reached: str) -> None:
        if reached in due:
            due.remove(reached)
            world.spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
            world.spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id)")
            world.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('kept-by' = 'me')")
        reach(reached)

    monkeypatch.setattr(failpoints, "reach", others)
    world.obey(f"applier resume -c {world.path} --tables shop.a")

    assert due == []
    assert world.table("a").state == "in step"
    assert [(row["id"], row["c"], row["note"]) for row in values(world, "a")] == [
        (1, None, None),
        (2, None, None),
        (3, "of c", None),
    ]
    shown = world.spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    assert any("bucket(4, id)" in str(row) for row in shown)
    assert any("kept-by=me" in str(row) for row in shown)


# ---- what parks a table


@pytest.mark.soak
def test_a_refused_ddl_parks_its_table_alone(make: Make) -> None:
    """Rows before it are applied, all other tables go on in the same step, and `ddl skip` heals at the next start."""
    world = begun(make, "a", "b")
    world.put("a", 3)
    ts = world.ddl("ALTER TABLE a FROBNICATE")
    world.put("a", 4)
    world.put("b", 3)
    world.resolve()

    world.run()

    parked = world.table("a")
    assert (parked.state, parked.since, world.in_cut()) == ("parked", ts, {"b"})
    assert (world.keys("a"), world.keys("b")) == ({1, 2, 3}, {1, 2, 3})
    assert world.status().exit_code == 1
    world.run()
    assert world.table("a").state == "parked", "the cause is still there"
    world.obey(f"applier ddl skip {ts} -c {world.path} --why 'no effect on rows'")
    world.run()
    assert world.keys("a") == {1, 2, 3, 4}
    assert world.table("a").state == "incomplete", "a DDL was skipped"
    world.heal(world.table("a").way_out)
    assert (world.table("a").state, world.in_cut()) == ("in step", {"a", "b"})


@pytest.mark.soak
def test_a_refused_ddl_of_a_table_that_was_renamed_since_can_be_skipped(make: Make) -> None:
    """The statement stands under the former name; the place of the parked table tells that it waits for it."""
    world = begun(make, "a")
    ts = world.ddl("ALTER TABLE a FROBNICATE")
    world.put("a", 3)
    world.resolve()
    world.run()
    world.ddl("RENAME TABLE a TO c", "c")
    world.resolve()
    world.run()
    assert world.table("c").state == "parked"

    world.obey(f"applier ddl skip {ts} -c {world.path} --why 'no effect on rows'")
    world.run()

    assert (world.keys("c"), world.table("c").state) == ({1, 2, 3}, "incomplete")


def test_a_refused_ddl_stops_the_feed_where_that_is_configured(make: Make) -> None:
    """With `on_table_error = "stop"` the run ends at the statement, as for a DDL that stops by its policy."""
    world = begun(make, "a", on_table_error="stop")
    world.ddl("ALTER TABLE a FROBNICATE")
    world.resolve()
    with pytest.raises(SchemaChangeRefused, match="applier ddl skip"):
        world.run()

    world = begun(make, "a")
    world.settings["ddl"] = {"truncate-table": "stop"}
    world.ddl("TRUNCATE TABLE a")
    world.resolve()
    with pytest.raises(SchemaChangeRefused, match="stops the feed, as configured"):
        world.run()


def test_a_value_that_does_not_fit_parks_its_table_alone(make: Make) -> None:
    """The table stays where the step found it; once the column can hold the value, the next start brings it back."""
    world = begun(make, "a", "b")
    world.put("a", 3)
    world.send_row("a", {"id": "4", "v": "x", "w": "9999999999"}, kinds={"w": "int"})
    world.put("b", 3)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.in_cut()) == ("parked", {"b"})
    assert (world.keys("a"), world.keys("b")) == ({1, 2}, {1, 2, 3})


@pytest.mark.soak
def test_a_table_that_others_changed_is_parked_and_heals_once_it_is_mended(make: Make) -> None:
    """A column that another program renamed stops its table alone; named as before, the next start brings it back."""
    world = begun(make, "a", "b")
    before = values(world, "a")
    world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a RENAME COLUMN v TO x")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.run()
    assert (world.table("a").state, world.keys("b")) == ("parked", {1, 2, 3})
    world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a RENAME COLUMN x TO v")

    world.run()

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})
    assert values(world, "a")[:2] == before


@pytest.mark.soak
def test_a_table_that_was_rolled_back_is_parked_and_the_printed_command_rebuilds_it(make: Make) -> None:
    """Its stamp says more than its rows, so nothing is written to it; the feed brings it back from its CREATE TABLE."""
    world = begun(make, "a", "b")
    first = world.table("a").snapshot_id
    world.put("a", 3)
    world.resolve()
    world.run()
    world.spark.sql(f"CALL lake.system.rollback_to_snapshot('{world.name}__shop.a', {first})")
    world.put("b", 3)
    world.resolve()

    world.start()

    assert (world.table("a").state, world.keys("b"), world.in_cut()) == ("parked", {1, 2, 3}, {"b"})
    world.heal(world.table("a").way_out)
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


@pytest.mark.parametrize("oldest", few([True, False]))
def test_a_table_that_was_restored_from_a_backup_stays_parked_until_it_is_rebuilt(make: Make, oldest: bool) -> None:
    """Its metadata knows nothing of what came later, and at the first restart as at the second it lacks that."""
    world = begun(make, "a", "b")
    world.put("a", 3)
    world.resolve()
    world.run()
    catalog, identifier = Catalog(world.spark, "lake"), (f"{world.name}__shop", "a")
    table = catalog.load(identifier)
    assert table is not None
    former = [str(item.file()) for item in table.java.items(table.handle.operations().current().previousFiles())]
    catalog.drop(identifier)
    catalog.handle.registerTable(catalog._table(identifier), former[0 if oldest else -2])
    world.put("b", 3)
    world.resolve()

    for _ in range(3):
        world.start()

        assert (world.table("a").state, world.keys("b"), world.in_cut()) == ("parked", {1, 2, 3}, {"b"})
    world.heal(world.table("a").way_out)
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


@pytest.mark.parametrize("order", few(["resolved_ts", "offset"]))
def test_a_table_whose_snapshots_others_expired_behind_a_step_that_failed_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Its only snapshot is of a step that has no checkpoint: nothing is left of the one that the last one lists."""

    def die_applied(point: str) -> None:
        if point == "applied":
            raise Crash

    world = begun(make, "a", **({"order": order} if order == "offset" else {}))
    world.put("a", 3)
    world.ddl("ALTER TABLE a ADD COLUMN c VARCHAR(9)")
    world.put("a", 4)
    world.resolve()
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", die_applied)
        with pytest.raises(Crash):
            world.run()
    world.spark.sql(f"CALL lake.system.expire_snapshots('{world.name}__shop.a', TIMESTAMP '2100-01-01 00:00:00', 1)")

    world.start()

    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3, 4}, {"a"})


@pytest.mark.soak
def test_a_table_that_is_gone_is_parked_and_the_printed_command_rebuilds_it(make: Make) -> None:
    """It is not begun anew with a part of its rows."""
    world = begun(make, "a", "b")
    Catalog(world.spark, "lake").drop((f"{world.name}__shop", "a"), purge=True)
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()

    world.start()

    assert (world.table("a").state, world.keys("b")) == ("parked", {1, 2, 3})
    world.heal(world.table("a").way_out)
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("in step", {1, 2, 3}, {"a", "b"})


# ---- requests


@pytest.mark.soak
def test_one_command_parks_and_brings_back_many_tables_at_their_own_places(make: Make) -> None:
    """The feed is read once, and each table joins where it left."""
    world = begun(make, "a", "b", "c")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.b --why 'a look'")
    world.put("a", 4)
    world.put("b", 4)
    world.put("c", 4)
    world.resolve()
    world.run()
    assert (world.keys("a"), world.keys("b"), world.in_cut()) == ({1, 2}, {1, 2, 3}, {"c"})

    told = world.obey(f"applier resume -c {world.path} --tables 'shop.*'")

    assert "Resumed: shop.a, shop.b.\n" in told
    assert "table is not whole" not in told

    assert (world.keys("a"), world.keys("b")) == ({1, 2, 3, 4}, {1, 2, 3, 4})
    assert world.in_cut() == {"a", "b", "c"}


def test_a_table_that_is_left_out_is_not_said_to_wait_for_a_resume(make: Make) -> None:
    """Admitting it again brings it back, also after a `park` that found it parked."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a"])

    told = world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look' --plan")

    assert (
        told
        == "shop.a is left out by tables.include and so parked already: it resumes once it is admitted there again.\n"
    )


def test_a_request_is_carried_out_once(make: Make) -> None:
    """The checkpoint has its outcome: read again after a crash, it changes nothing."""
    world = begun(make, "a")
    with world.applier() as pipeline:
        follower = Follower(pipeline)
        request = TableRequest("one", "park", ("shop.a",), "a look", "me")
        assert follower.requests.carry_out(request) == RequestOutcome("parked", (TableName("shop", "a"),))
        again = TableRequest("two", "resume", ("shop.a",), "", "me")
        follower.requests.carry_out(again)
        while follower.turn().resuming:
            pass
        assert follower.requests.carry_out(request) == RequestOutcome("parked", (TableName("shop", "a"),))
        assert pipeline.state.completeness[TableName("shop", "a")].is_live


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("park --tables shop.nope --why x", "--tables shop.nope: the changefeed has no such table"),
        ("park --tables shop --why x", "--tables: "),
        ("park --tables shop.a", "--why is missing: say why the table is parked"),
        ("resume --tables shop.a", "Nothing to resume: shop.a is live."),
        ("forget --tables shop.a", "leave it out first, with '!shop.a' in tables.include"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(make: Make, command: str, sentence: str) -> None:
    """Nothing is written, and the exit code is that of a wrong command line."""
    world = begun(make, "a")
    verb, _, rest = command.partition(" ")
    holder = world.status().holder

    assert sentence in world.obey(f"applier {verb} -c {world.path} {rest}", code=2)

    assert (world.table("a").state, world.in_cut()) == ("in step", {"a"})
    if verb == "park":
        assert world.status().holder == holder, "the lease was not taken"


def test_a_plan_changes_nothing(make: Make) -> None:
    """`--plan` says what each command would do."""
    world = begun(make, "a")
    holder = world.status().holder
    ts = world.status().resolved_ts
    assert f"keep what it shows at resolved ts {ts}" in world.obey(
        f"applier park -c {world.path} --tables shop.a --plan"
    )
    assert "shop.a is live" in world.obey(f"applier resume -c {world.path} --tables shop.a --plan")
    assert "its control tables" in world.obey(f"applier forget -c {world.path} --plan")
    told = world.obey(f"applier forget -c {world.path} --tables shop.a --plan")
    assert told == "shop.a is in tables.include, so it cannot be forgotten.\n"
    assert world.status().holder == holder


def test_a_range_that_the_source_has_lost_is_refused_with_its_offsets(make: Make) -> None:
    """The table stays parked at its true snapshot, and the way out needs no feed."""
    world = begun(make, "a", "b")
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()
    world.run()
    world.lose(len(world.messages) - 1)

    told = world.obey(f"applier resume -c {world.path} --tables shop.a", code=3)

    assert "are needed next, but were deleted from the source" in told
    assert (world.table("a").state, world.keys("a"), world.in_cut()) == ("parked", {1, 2}, {"b"})
    hint = world.table("a").way_out
    assert hint is not None
    assert f"applier load -c {world.path} --from DIR --tables 'shop.a'" in hint


def test_a_request_that_comes_while_another_is_carried_out_is_not_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands may ask in the same second: the outcome of one is not all that is new."""
    world = begun(make, "a", "b")
    asked = [TableRequest(name, "park", (f"shop.{name}",), "a look", "me") for name in "ab"]
    with world.applier() as pipeline:
        requests, control = Requests(pipeline), cast("Control", pipeline.state.control)
        requests.clock = count(step=10).__next__
        carry_out = Requests.carry_out

        def meanwhile(self: Requests, request: TableRequest) -> RequestOutcome:
            outcome = carry_out(self, request)
            if request.id == "a":
                control.write(REQUESTS, request_rows(asked[1]))
            return outcome

        monkeypatch.setattr(Requests, "carry_out", meanwhile)
        control.write(REQUESTS, request_rows(asked[0]))
        requests.take()
        requests.take()
        assert {str(name) for name in pipeline.state.parked} == {"shop.a", "shop.b"}


def test_a_table_is_forgotten_once_it_is_left_out(make: Make) -> None:
    """Checkpoint and properties lose it, its rows stay, and `status` is content again."""
    world = begun(make, "a", "b")
    world.run(include=["*.*", "!shop.a"])
    assert world.status().exit_code == 1

    told = world.obey(f"applier forget -c {world.path} --tables shop.a")

    assert "The Iceberg tables stay as they are" in told
    assert (world.status().exit_code, world.in_cut(), world.keys("a")) == (0, {"b"}, {1, 2})
    table = Catalog(world.spark, "lake").load((f"{world.name}__shop", "a"))
    assert table is not None
    assert not [key for key in table.properties if key.startswith("applier.")]


def test_a_changefeed_is_forgotten_as_a_whole(make: Make) -> None:
    """Control tables and properties go, tables and their rows stay, and the name is free for another changefeed."""
    world = begun(make, "a")

    told = world.obey(f"applier forget -c {world.path}")

    assert "The topics in Kafka and the changefeed in TiCDC stay, too." in told
    assert world.keys("a") == {1, 2}
    assert "no record of changefeed" in str(world.status().stale)
    assert "There is no changefeed" in world.obey(f"applier forget -c {world.path}", code=2)


def test_a_resume_that_fails_leaves_the_others_and_says_why(make: Make) -> None:
    """Of two tables one meets a DDL that is refused: it is parked there, and the other one is live."""
    world = begun(make, "a", "b")
    world.obey(f"applier park -c {world.path} --tables 'shop.*' --why 'a look'")
    world.put("a", 3)
    world.put("b", 3)
    ts = world.ddl("ALTER TABLE a FROBNICATE")
    world.put("a", 4)
    world.resolve()
    world.run()

    with pytest.raises(TerminalError, match="FROBNICATE"):
        ask(world.config, "resume", ["shop.*"], "", lambda _: None, take_over=True)

    parked = world.table("a")
    assert (parked.state, parked.since, world.in_cut()) == ("parked", ts, {"b"})
    assert (world.keys("a"), world.keys("b")) == ({1, 2, 3}, {1, 2, 3})


def test_a_reason_is_asked_for(make: Make) -> None:
    """A table is parked for a reason that whoever finds it can read."""
    world = begun(make, "a")
    with pytest.raises(ConfigError, match="--why is missing"):
        ask(world.config, "park", ["shop.a"], "", lambda _: None, take_over=True)


@pytest.mark.parametrize("suffix", [pytest.param("", marks=pytest.mark.soak), "_2"])
def test_a_changefeed_begins_anew_and_keeps_its_tables(make: Make, suffix: str) -> None:
    """The steps of docs/operations.md: forget it, begin one of any name midstream, and apply what came since."""
    world = begun(make, "a", "b")
    ended = world.status().resolved_ts
    world.obey(f"applier forget -c {world.path}")
    world.settings["changefeed"] = {"name": f"{world.name}{suffix}", "start": "midstream"}
    world.put("a", 4)
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 1, 2)
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.put("a", 3, w="5")
    world.put("b", 1, op="DELETE")
    world.resolve()

    world.obey(f"applier backfill -c {world.path} --from {ended}")
    world.obey(f"applier run -c {world.path} --once")

    assert (world.keys("a"), world.keys("b"), world.in_cut()) == ({1, 2, 3}, {2}, {"a", "b"})
    assert world.status().exit_code == 0


def test_a_table_whose_first_snapshots_expired_while_it_is_followed_is_no_damaged_one(make: Make) -> None:
    """A process that runs for days outlives the snapshot that the checkpoint listed at its start."""
    world = begun(make, "a")
    name = TableName("shop", "a")
    world.settings["source"] = {"messages_per_step": 2}
    for key in (3, 4, 5):
        world.put("a", key)
        world.resolve()
    with world.applier() as pipeline:
        for _ in range(3):
            assert pipeline.step().moved
        writer = pipeline.targets.writer(name)
        assert writer is not None
        assert Upkeep(writer, Thresholds(snapshots=1)).expire(writer.head)["expired"] > 1

        assert pipeline.targets.damage(name) is None

    world.run()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2, 3, 4, 5})
