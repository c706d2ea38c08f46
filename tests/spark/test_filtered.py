"""Feeds that leave out deletes: the next INSERT of a key replaces the row that is still there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.commands.follower import Follower
from tests.lab import Lab
from tests.spark.test_ways_out import commands, obey
from tests.spark.world import Make
from tests.ticdc import TOPIC, Changefeed, Habits, Record
from tests.upstream import Change, Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_NAME = Name("shop", "orders")


def _again(way: str) -> tuple[Changefeed, list[int]]:
    """A table whose rows 1 and 2 go, and of which row 1 comes again; and where each of three steps ends."""
    database = Database()
    database.create(_NAME, [Column("id"), Column("v", "varchar(20)")], ["id"])
    feed, ends = Changefeed(database, Habits(partitions=1)), []
    database.insert(_NAME, {"id": 1, "v": "old"}, {"id": 2, "v": "old"})
    ends.append(len(feed.send()))
    if way == "truncate":
        database.truncate(_NAME)
    else:
        database.transact({_NAME: [Change({"id": number, "v": "old"}, None) for number in (1, 2)]})
    ends.append(ends[-1] + len(feed.send()))
    database.insert(_NAME, {"id": 1, "v": "new"})
    ends.append(ends[-1] + len(feed.send()))
    return feed, ends


def _touched(feed: Changefeed, touch: Callable[[dict[str, Any]], bytes | None]) -> list[Record]:
    """The records of a feed with other deletes; in the place of one without a value is a watermark of before."""
    records = []
    for record in feed.records:
        message = json.loads(record["value"])
        value = touch(message) if message["type"] == "DELETE" else record["value"]
        if value is None:
            value = json.dumps({"version": 1, "type": "WATERMARK", "commitTs": message["commitTs"] - 1, "buildTs": 0})
        records.append(record | {"value": value if isinstance(value, bytes) else value.encode()})
    return records


def _described(record: Record) -> Record:
    """A message of a feed that begins behind the CREATE TABLE, which describes the table in its place."""
    message = json.loads(record["value"])
    if message["type"] != "CREATE":
        return record
    shown = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 0, "tableSchema": message["tableSchema"]}
    return record | {"value": json.dumps(shown).encode()}


def _rows(lab: Lab) -> list[tuple[int, str]]:
    found = lab.tables()[_NAME].scan().to_arrow().to_pylist()
    return sorted((row["id"], row["v"]) for row in found)


def _apply(lab: Lab, *ends: int) -> None:
    """Apply up to each end, in a process of its own."""
    for end in ends:
        pipeline = lab.start()
        assert pipeline.step({TopicPartition(TOPIC, 0): end}).moved
        pipeline.state.control.release()


_FILTERED: Mapping[str, Mapping[str, Any]] = {"changefeed": {"filtered": True}}
_LETTERS: Mapping[str, Mapping[str, Any]] = {"changefeed": {"on_bad_message": "dead_letter"}}
_IGNORED: Mapping[str, Mapping[str, Any]] = {"ddl": {"truncate-table": "ignore"}}


def test_an_insert_replaces_the_row_whose_delete_was_filtered(spark: SparkSession) -> None:
    """With `changefeed.filtered` a key that comes again is there once, also after the key was taken out again."""
    feed, ends = _again("delete")
    lab = Lab(spark, "filtered", feed.database, _touched(feed, lambda _: None), more=_FILTERED)
    _apply(lab, *ends[:2])
    lab.more = {}
    _apply(lab, ends[2])

    assert _rows(lab) == [(1, "new"), (2, "old")]


def test_an_insert_replaces_the_row_that_an_ignored_truncate_left(spark: SparkSession) -> None:
    """A DDL that removes rows and is ignored by policy lets no later key of the table count as new."""
    feed, ends = _again("truncate")
    lab = Lab(spark, "ignored_truncate", feed.database, feed.records, more=_IGNORED)
    _apply(lab, *ends[:2])
    lab.more = {}
    _apply(lab, ends[2])

    assert _rows(lab) == [(1, "new"), (2, "old")]


def test_an_ignored_truncate_makes_no_incomplete_table_whole(spark: SparkSession) -> None:
    """A table without its CREATE TABLE may lack rows that a TRUNCATE would remove: under the policy they stay."""
    feed, ends = _again("truncate")
    records = [_described(record) for record in feed.records]
    lab = Lab(spark, "ignored_incomplete", feed.database, records, more=_IGNORED)
    _apply(lab, ends[0], ends[2])

    assert not lab.is_live(lab.start(), _NAME)
    assert _rows(lab) == [(1, "new"), (2, "old")]


@pytest.mark.soak
def test_a_table_that_was_left_out_takes_the_policies_of_the_run_that_brings_it_back(spark: SparkSession) -> None:
    """It is read from its CREATE TABLE, and a TRUNCATE in that range is ignored as one that comes now."""
    feed, ends = _again("truncate")
    lab = Lab(spark, "ignored_left_out", feed.database, feed.records, more={"tables": {"include": ["mart.*"]}})
    _apply(lab, ends[0])
    lab.more = _IGNORED
    follower = Follower(lab.start())
    while (step := follower.turn()).moved or step.resuming:
        pass

    assert _rows(lab) == [(1, "new"), (2, "old")]


@pytest.mark.parametrize("together", [False, True])
def test_an_insert_replaces_the_row_whose_delete_is_a_dead_letter(spark: SparkSession, together: bool) -> None:
    """A message that was set aside may be a delete of any table, also of one that the same step makes."""
    feed, ends = _again("delete")
    lab = Lab(spark, f"letters_{together}", feed.database, _touched(feed, lambda _: b"{"), more=_LETTERS)
    _apply(lab, *(ends[1:] if together else ends))

    assert _rows(lab) == [(1, "new"), (2, "old")]


def test_an_insert_of_a_row_that_is_there_parks_its_table_and_the_printed_way_out_brings_it_back(make: Make) -> None:
    """Nobody said that deletes are left out: another version of the row must not stand beside the first one."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1, 2)
    world.resolve()
    world.run()
    world.put("a", 2)
    world.put("b", 1)
    world.resolve()

    world.run()

    found = world.table("a")
    assert (found.state, world.in_cut(), world.keys("b")) == ("parked", {"b"}, {1})
    assert "holds a row that the feed inserts, as if deletes were left out (changefeed.filtered)" in (
        found.because or ""
    )
    world.settings["changefeed"] = {"filtered": True}
    obey(world, commands(found.way_out)["load"])
    world.start()
    assert (world.table("a").state, world.keys("a")) == ("in step", {1, 2})
