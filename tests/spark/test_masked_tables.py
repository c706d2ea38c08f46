"""The life of tables with masks and casts: bad messages, DDL, and a configuration that changes."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest

from tests.secret_watch import SecretWatch
from tests.spark.feeds import read, sql_name
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

KEY = "a key of sixteen letters"
SECRET = "mallory@example.com"
KINDS = {"id": "bigint", "v": "varchar(99)"}


def masked(world: World, how: str = "hash", key: str = KEY) -> None:
    """Mask `v` in all tables of the database whose names begin with a."""
    world.settings["tables"] = {"mask_key": key, "shop.a*": {"columns": {"mask": {"v": how}}}}


def values(world: World, table: str) -> list[object]:
    """What the column `v` holds."""
    return read(world.spark, (f"{world.name}__shop", table))["v"].to_pylist()


def test_no_file_holds_a_hidden_value_of_a_bad_message(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor the log, nor what commands print; the dead letter says so, and is read again from the feed."""
    world = make()
    masked(world)
    world.settings["changefeed"] = {"on_bad_message": "dead_letter"}
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(99))")
    world.send_row("a", {"id": "1", "v": SECRET}, KINDS)
    world.send_row("a", {"id": SECRET, "v": SECRET}, KINDS)
    world.messages[-1]["data"] = [{"id": SECRET, "v": SECRET}]
    world.resolve()
    world.start()
    rows = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert [(row["id"], len(row["v"])) for row in rows] == [(1, 64)]

    (letter,) = json.loads(world.obey(f"applier dead-letters list -c {world.path} --json"))
    shown = world.obey(f"applier dead-letters show {letter['place']} -c {world.path} --show-values")
    assert "key: not kept, as columns are hidden under [tables]" in shown
    assert "value: not kept, as columns are hidden under [tables]" in shown

    watch = SecretWatch({"value": SECRET, "key": KEY})
    warehouse = Path(world.lake["warehouse"])
    files = [path for path in warehouse.rglob("*") if path.is_file() and world.name in str(path)]
    for path in files:
        watch.look_into(path.read_bytes(), path.name)
    printed = capsys.readouterr()
    watch.look((printed.out + printed.err + shown + repr(world.status())).encode(), "what is printed")
    assert len(files) > 10
    assert watch.found == set()


def test_another_key_or_mask_parks_the_table(make: Make) -> None:
    """The way out is printed; with the former key set back it goes on."""
    world = make()
    masked(world)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.start()
    before = values(world, "a")
    for how, key in (("hash", "another key of some letters"), ("redact", KEY)):
        masked(world, how, key)
        world.put("a", 2)
        world.resolve()
        world.start()
        line = world.table("a")
        assert line.state == "parked"
        assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
        assert "applier load" in str(line.way_out)
        assert values(world, "a") == before
    masked(world)
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    assert len(values(world, "a")) == 2


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("ALTER TABLE a RENAME COLUMN v TO w", "Column v becomes w, and their masks are not the same: hash, none"),
        ("ALTER TABLE a CHANGE v w VARCHAR(9)", "Column v becomes w, and their masks are not the same: hash, none"),
    ],
)
def test_a_ddl_that_takes_a_mask_away_parks_its_table(make: Make, sql: str, why: str) -> None:
    """Before a row of the new name is written."""
    world = make()
    masked(world)
    world.create("a")
    world.put("a", 1)
    world.ddl(sql)
    world.resolve()
    world.start()
    (line,) = world.status().tables
    assert line.state == "parked"
    assert why in str(line.because)
    assert [len(str(value)) for value in values(world, "a")] == [64]


def test_a_table_does_not_leave_its_mask_by_another_name(make: Make) -> None:
    """It is parked before a row is written under the new name; with the same mask there, it goes on."""
    world = make()
    masked(world)
    world.create("a")
    world.put("a", 1)
    world.ddl("RENAME TABLE shop.a TO shop.b")
    world.put("b", 2)
    world.resolve()
    world.start()
    line = world.table("b")
    assert line.state == "parked"
    assert "holds rows of another shape than its pattern under [tables] gives them now" in str(line.because)
    assert [len(str(value)) for value in values(world, "b")] == [64]
    world.settings["tables"]["shop.b"] = {"columns": {"mask": {"v": "hash"}}}
    world.start()
    assert [len(str(value)) for value in values(world, "b")] == [64, 64]


def test_a_cast_that_is_taken_away_parks_the_table(make: Make) -> None:
    """Once rows come that its column does not hold; set back, it goes on."""
    world = make()
    world.settings["tables"] = {"shop.*": {"types": {"int": "boolean"}}}
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, w INT)")
    world.send_row("a", {"id": "1", "w": "1"})
    world.resolve()
    world.start()
    world.settings["tables"] = {}
    world.send_row("a", {"id": "2", "w": "0"})
    world.resolve()
    world.start()
    line = world.table("a")
    assert line.state == "parked"
    assert "cannot hold upstream values (int32)" in str(line.because)
    world.settings["tables"] = {"shop.a": {"columns": {"cast": {"W": "boolean"}}}}
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    rows = read(world.spark, (f"{world.name}__shop", "a")).to_pylist()
    assert {row["id"]: row["w"] for row in rows} == {1: True, 2: False}


def test_rows_that_are_applied_again_are_masked_and_cast_alike(make: Make) -> None:
    """By a backfill, and as a table that was parked comes back."""
    world = make()
    shape = {"types": {"int": "string"}, "columns": {"mask": {"v": "hash"}}}
    world.settings["tables"] = {"mask_key": KEY, "shop.a": shape}
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(99), w INT)")
    world.send_row("a", {"id": "1", "v": SECRET, "w": "1"})
    world.resolve()
    world.start()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.send_row("a", {"id": "2", "v": SECRET, "w": "2"})
    world.resolve()
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.start()
    assert world.table("a").state == "in step"
    hidden = hmac.new(KEY.encode(), SECRET.encode(), hashlib.sha256).hexdigest()
    wanted = [{"id": 1, "v": hidden, "w": "1"}, {"id": 2, "v": hidden, "w": "2"}]
    place = (f"{world.name}__shop", "a")
    assert sorted(read(world.spark, place).to_pylist(), key=lambda row: row["id"]) == wanted
    world.spark.sql(f"UPDATE {sql_name(place)} SET v = 'wrong', w = '9' WHERE id = 1")
    printed = world.obey(f"applier backfill -c {world.path} --from beginning --repair --take-over")
    assert SECRET not in printed
    assert sorted(read(world.spark, place).to_pylist(), key=lambda row: row["id"]) == wanted
