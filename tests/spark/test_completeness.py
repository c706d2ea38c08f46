"""Tables that may lack rows: they are refused or marked, leave the cut, and become whole by the printed command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.completeness import Reason, Why
from applier.changefeed.table import TableName
from applier.commands.adopt import adopt
from applier.errors import ConfigError, TableIncomplete, TableMismatch, TerminalError
from applier.pipeline.state import State
from applier.sink.iceberg.catalog import Catalog
from applier.watch.board import Board
from applier.ways_out import WaysOut
from tests.few import few
from tests.spark.test_paths import export
from tests.spark.world import KINDS, Make, World

pytestmark = pytest.mark.spark


def loaded(world: World, table: str, rows: dict[int, str]) -> None:
    """A table that was loaded by other means."""
    identifier = (f"{world.name}__shop", table)
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())]
    columns = pa.schema(fields)
    Catalog(world.spark, "lake").create(identifier, columns, key=["id"], sort=["id"])
    values = ", ".join(f"({key}, '{value}')" for key, value in rows.items())
    world.spark.sql(f"INSERT INTO lake.{'.'.join(identifier)} VALUES {values}")


def test_a_table_without_its_create_is_refused_before_anything_is_written(make: Make) -> None:
    """If the configuration says so, all such tables are named at once, with the ways out, and no table is made."""
    world = make()
    world.put("a", 1, op="UPDATE")
    world.put("b", 1)
    world.create("c")
    world.put("c", 1)
    world.resolve()

    with pytest.raises(TableIncomplete) as refusal:
        world.run(incomplete="refuse")

    assert refusal.value.what == (
        "Rows arrive of tables whose CREATE TABLE the feed does not hold, so earlier rows may be missing: "
        "shop.a, shop.b."
    )
    assert 'set changefeed.start = "midstream"' in refusal.value.hint
    assert 'tables.incomplete = "allow"' in refusal.value.hint
    assert Catalog(world.spark, "lake").list((f"{world.name}__shop",)) == []


def test_an_incomplete_table_says_so_everywhere(make: Make) -> None:
    """It is in no cut, `status` names it with the reason and exits with 1, and a restart changes nothing."""
    world = make()
    world.put("a", 1)
    world.create("c")
    world.put("c", 1)
    world.resolve()

    world.run(incomplete="allow")
    world.run()

    assert world.keys("a") == world.keys("c") == {1}
    assert world.table("a").state == "incomplete"
    assert world.table("a").cut_snapshot_id is None
    assert world.table("c").state == "in step"
    assert world.in_cut() == {"c"}
    report = world.status()
    assert report.exit_code == 1
    (found,) = report.stale
    load = WaysOut(str(world.path)).load([TableName("shop", "a")])
    assert str(found) == (
        "Table shop.a is incomplete: the feed does not hold its CREATE TABLE, so earlier rows may be missing. Hint: "
        f"{load}."
    )


def test_a_feed_without_watermarks_marks_what_it_cannot_prove(make: Make) -> None:
    """In offset order a table without its CREATE TABLE is made and marked: such feeds may carry no DDL at all."""
    world = make(order="offset")
    world.put("a", 1)
    world.create("c")
    world.put("c", 1)

    world.run()

    assert world.table("a").state == "incomplete"
    assert world.table("c").state == "in step"


def test_a_truncate_makes_an_incomplete_table_whole(make: Make) -> None:
    """Every row that can be in it comes after the TRUNCATE."""
    world = make()
    world.put("a", 1)
    world.resolve()
    world.run(incomplete="allow")
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 2)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.in_cut()) == ("in step", {"a"})
    assert world.keys("a") == {2}


def test_a_table_that_was_left_out_is_not_taken_for_whole(make: Make) -> None:
    """Left out, it leaves the cut and `status` names the way back; taken in again, it reads what it missed."""
    world = make()
    for table in ("a", "b"):
        world.create(table)
        world.put(table, 1, 2)
    world.resolve()
    world.run()
    before = world.rows("a")
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()

    world.run(include=["*.*", "!shop.a"])

    left_out = world.table("a")
    assert (left_out.state, world.in_cut(), world.rows("a")) == ("parked", {"b"}, before)
    assert world.status().exit_code == 1
    assert left_out.because is not None
    assert "is parked since resolved ts" in left_out.because
    assert left_out.way_out == (
        f"admit it in tables.include again, and `applier run -c {world.path}` resumes it; or run "
        f"`applier forget -c {world.path} --tables 'shop.a'`."
    )
    world.put("a", 4)
    world.put("a", 1, op="DELETE")
    world.put("b", 4)
    world.resolve()
    world.run(include=["*.*"])
    assert (world.table("a").state, world.in_cut(), world.status().exit_code) == ("in step", {"a", "b"}, 0)
    assert world.keys("a") == {2, 3, 4}
    world.put("a", 5)
    world.resolve()
    world.run()
    assert world.keys("a") == {2, 3, 4, 5}


@pytest.mark.soak
def test_an_incomplete_table_that_was_left_out_is_incomplete_again(make: Make) -> None:
    """What it lacked before it was left out, it lacks afterwards, with rows in between and without."""
    world = make()
    world.put("a", 1)
    world.resolve()
    world.run(incomplete="allow")
    for rows in ((), (2,)):
        world.run(include=["*.*", "!shop.a"])
        world.put("a", *rows)
        world.resolve()
        world.run()
        assert world.table("a").state == "parked"
        world.run(include=["*.*"])
        assert (world.table("a").state, world.in_cut()) == ("incomplete", set())
    assert world.keys("a") == {1, 2}


def test_a_table_that_was_left_out_while_nothing_came_is_whole(make: Make) -> None:
    """Without a step in between no row can be missing."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    world.run(include=["*.*", "!shop.a"])
    world.run(include=["*.*"])
    world.put("a", 2)
    world.resolve()

    world.run()

    assert world.table("a").state == "in step"
    assert world.keys("a") == {1, 2}


@pytest.mark.soak
def test_a_name_that_a_parked_table_had_is_free_for_a_new_one(make: Make) -> None:
    """A DROP ends the parked table, and of the new one every row is there, also in the same window."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.run()
    world.run(include=["*.*", "!shop.a"])
    world.create("z")
    world.put("a", 3)
    world.resolve()
    world.run()
    world.put("a", 4)
    world.ddl("DROP TABLE a")
    world.create("a")
    world.put("a", 9)
    world.resolve()

    world.run(include=["*.*"])

    assert (world.table("a").state, world.in_cut()) == ("in step", {"a"})
    assert world.keys("a") == {9}
    (kept,) = world.status().dropped or ()
    assert (kept.table, kept.rows) == ("shop.a", 2)
    rename, remove = re.findall("`(.*?)`", kept.way_out)
    world.spark.sql(rename.replace("NAME", "mine"))
    assert (world.keys("mine"), world.status().dropped) == ({1, 2}, ())
    world.spark.sql(remove.replace(kept.iceberg.rpartition(".")[2], "mine"))
    assert Catalog(world.spark, "lake").load((f"{world.name}__shop", "mine")) is None


def test_a_table_that_is_taken_in_late_is_read_from_its_create(make: Make) -> None:
    """Its CREATE TABLE was passed over while it was left out: once it is taken in, all of it is read."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.create("b")
    world.put("b", 1, 2)
    world.resolve()
    world.run(include=["shop.a"])
    world.put("b", 3)
    world.put("b", 1, op="DELETE")
    world.resolve()

    world.run(include=["*.*"], incomplete="refuse")

    assert (world.table("b").state, world.in_cut()) == ("in step", {"a", "b"})
    assert world.keys("b") == {2, 3}


@pytest.mark.soak
def test_a_table_that_is_renamed_out_of_the_included_names_is_not_whole(make: Make) -> None:
    """Its Iceberg table is dropped, so it lacks its rows when `tables.include` admits its new name later."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run(include=["*.*", "!shop.gone"])
    world.ddl("RENAME TABLE a TO gone")
    world.put("gone", 2)
    world.resolve()
    world.run()
    assert (world.table("gone").state, world.in_cut()) == ("parked", set())

    world.run(include=["*.*"])

    assert (world.table("gone").state, world.in_cut()) == ("parked", set())


def test_a_table_that_was_loaded_before_is_carried_on(make: Make) -> None:
    """With `start = "midstream"` a table that had rows before counts as loaded; one that is not there does not."""
    world = make(start="midstream")
    loaded(world, "a", {1: "old", 2: "old"})
    world.put("a", 3)
    world.put("b", 3)
    world.resolve()

    world.run()
    world.run()

    assert (world.table("a").state, world.table("b").state) == ("in step", "incomplete")
    assert world.keys("a") == {1, 2, 3}


def test_the_user_may_vouch_for_a_table(make: Make) -> None:
    """`applier adopt` makes it live, keeps the reason in the checkpoint, and asks for one."""
    world = make()
    world.put("a", 1)
    world.resolve()
    world.run(incomplete="allow")
    with pytest.raises(ConfigError, match="--why is empty"):
        adopt(world.config, ["shop.a"], " ")
    before = world.status().holder
    for rule in ("shop.nothing", "["):
        with pytest.raises(ConfigError, match="--tables"):
            adopt(world.config, [rule], "it is")
    assert world.status().holder == before

    assert adopt(world.config, ["shop.a"], "the table was new") == [TableName("shop", "a")]

    assert (world.table("a").state, world.in_cut(), world.status().exit_code) == ("in step", {"a"}, 0)
    with world.applier() as pipeline:
        known = pipeline.state.checkpoint.tables[TableName("shop", "a")].completeness
    assert known is not None
    assert known.reason == Reason(Why.ADOPTED, "the table was new")
    assert adopt(world.config, ["shop.a"], "again") == []


def test_a_table_that_is_not_there_cannot_be_adopted(make: Make) -> None:
    """Nothing can be whole that holds no rows."""
    world = make()
    world.put("a", 1)
    world.resolve()
    world.run(incomplete="allow")
    Catalog(world.spark, "lake").drop((f"{world.name}__shop", "a"), purge=True)

    with pytest.raises(TableMismatch, match="is not in the catalog") as refused:
        adopt(world.config, ["shop.a"], "it is")
    assert f"`applier load -c {world.path} --from DIR --tables 'shop.a'`; that makes it live" in refused.value.hint


def test_a_table_that_nothing_was_written_to_becomes_live_by_an_empty_export(make: Make, tmp_path: Path) -> None:
    """A person cannot vouch for it: rows may be yet to be loaded. The hint of the refusal leads there."""
    world = make()
    world.put("a", 1)
    ts = world.resolve()
    world.run(incomplete="allow")
    identifier = (f"{world.name}__shop", "a")
    columns = world.spark.table(f"lake.{identifier[0]}.a").schema.toDDL()
    Catalog(world.spark, "lake").drop(identifier, purge=True)
    world.spark.sql(f"CREATE TABLE lake.{identifier[0]}.a ({columns}) USING iceberg")
    with pytest.raises(TableMismatch, match="holds no rows: nothing was ever written to it") as refused:
        adopt(world.config, ["shop.a"], "it is")

    address = Path(export(tmp_path / "export", ts))
    (address / "shop.a.000000000.csv").unlink()
    world.heal(refused.value.hint.replace("--from DIR", f"--from {address}"))
    world.run()

    assert (world.table("a").state, world.status().exit_code) == ("in step", 0)


def test_a_rename_keeps_what_a_table_lacks(make: Make) -> None:
    """An incomplete table is incomplete under its new name, and a new one of the old name is whole."""
    world = make()
    world.put("a", 1)
    world.resolve()
    world.run(incomplete="allow")
    world.ddl("RENAME TABLE a TO b")
    world.create("a")
    world.put("a", 9)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.table("b").state, world.in_cut()) == ("in step", "incomplete", {"a"})


def test_a_table_that_comes_back_lacks_what_it_lacked(make: Make) -> None:
    """RECOVER TABLE after a restart brings an incomplete table back as incomplete, and a whole one as whole."""
    world = make()
    world.put("a", 1)
    world.create("c")
    world.put("c", 1)
    world.resolve()
    world.run(incomplete="allow")
    at = {table: world.ddl(f"DROP TABLE {table}", table) for table in ("a", "c")}
    world.resolve()
    world.run()
    assert {(it.table, it.dropped_ts) for it in world.status().dropped or ()} == {
        (f"shop.{table}", ts) for table, ts in at.items()
    }
    with world.applier() as pipeline:
        board = Board(world.config)
        board.begin(pipeline)
        own = board.view().report.dropped
    assert [replace(it, rows=1, files=1) for it in own or ()] == [*(world.status().dropped or ())]
    for table in ("a", "c"):
        world.ddl(f"RECOVER TABLE {table}", table)
    world.resolve()

    world.run()

    assert (world.table("a").state, world.table("c").state) == ("incomplete", "in step")
    assert world.status().dropped == ()


def test_a_step_that_failed_leaves_the_state_of_tables_as_it_was(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the checkpoint loses no mark: the next start finds the same."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.put("b", 1)
    world.resolve()
    world.settings["tables"] = {"incomplete": "allow"}

    def lost(*_: object, **__: object) -> None:
        raise TerminalError("the process is gone")

    with monkeypatch.context() as patch:
        patch.setattr(State, "advance", lost)
        with pytest.raises(TerminalError, match="the process is gone"):
            world.run()
    assert world.keys("b") == {1}

    world.run()
    assert world.in_cut() == {"a"}
    world.put("b", 2)
    world.resolve()
    world.run()

    assert (world.table("a").state, world.table("b").state) == ("in step", "incomplete")
    assert world.in_cut() == {"a"}


@pytest.mark.parametrize("op", few(["DELETE", "UPDATE"]))
def test_a_change_of_a_row_that_a_live_table_lacks_stops_the_feed(make: Make, op: str) -> None:
    """An update and a delete of a row that no INSERT brought show that the feed left rows out: nothing is committed."""
    world = make(on_table_error="stop")
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.run()
    world.put("a", 2, 9, op=op)
    world.resolve()

    with pytest.raises(TableIncomplete) as refused:
        world.run(incomplete="refuse")

    table = f"{world.name}__shop.a"
    assert refused.value.what == f"Table {table} does not hold 1 row that the feed updates or deletes."
    assert "set changefeed.filtered = true" in refused.value.hint
    assert sorted(world.rows("a")) == [1, 2]


@pytest.mark.parametrize("op", few(["UPDATE", "DELETE"]))
def test_a_change_of_a_row_that_a_live_table_lacks_parks_it(make: Make, op: str) -> None:
    """Readers keep its last true snapshot; read again from its CREATE TABLE, as no hint says, it comes no further."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.create("b")
    world.resolve()
    world.run()
    world.put("a", 2, 9, op=op)
    world.put("b", 1)
    world.resolve()

    world.run()

    parked = world.table("a")
    assert (parked.state, world.in_cut(), world.keys("a")) == ("parked", {"b"}, {1, 2})
    world.run()
    assert world.table("a").state == "parked", "a restart alone changes nothing"
    command = f"applier resume -c {world.path} --tables 'shop.a'"
    assert "applier resume" not in (parked.way_out or "")
    assert "does not hold 1 row that the feed updates or deletes" in world.obey(command, code=3)
    assert (world.table("a").state, world.in_cut(), world.keys("a")) == ("parked", {"b"}, {1, 2})


def test_a_change_of_a_row_that_a_live_table_lacks_marks_the_table_where_that_is_allowed(make: Make) -> None:
    """The change is applied, counted, and the table leaves the cut as an incomplete one."""
    world = make(on_table_error="stop")
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.run()
    world.put("a", 9, op="UPDATE")
    world.put("a", 2, 8, op="DELETE")
    world.resolve()
    world.settings.setdefault("tables", {})["incomplete"] = "allow"

    with world.applier() as pipeline:
        step = pipeline.step()

    assert step.status.notes["not_found"] == 2
    assert sorted(world.rows("a")) == [1, 9]
    assert world.table("a").state == "incomplete"


def test_a_row_that_moves_to_a_new_key_is_no_missing_row(make: Make) -> None:
    """An update that changes the key takes the old row away and adds one that the table did not have."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.run()
    row, kinds = {"id": "7", "v": "moved"}, {"id": KINDS["id"], "v": KINDS["v"]}
    types = dict.fromkeys(row, 12)
    message = {"table": "a", "type": "UPDATE", "pkNames": ["id"], "mysqlType": kinds, "sqlType": types}
    world.send({**message, "data": [row], "old": [{"id": "1"}]})
    world.resolve()
    world.run()

    assert world.rows("a") == {2: world.rows("a")[2], 7: "moved"}
    assert world.table("a").state == "in step"
