"""The consistent cut: money that moves between two tables is neither lost nor found at any recorded checkpoint."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest
from duckdb_extensions import import_extension  # type: ignore[import-untyped]

from applier.commands.follower import Follower
from applier.pipeline.requests import Requests
from applier.sink.control.rows import TableRequest
from applier.sink.iceberg.catalog import Catalog
from applier.sink.upkeep import Upkeep
from tests.disasters import Crash, Disasters
from tests.lab import CATALOG, Lab
from tests.ticdc import Changefeed, Habits
from tests.upkeep import EAGER
from tests.upstream import Change, Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from applier.pipeline.step import Pipeline

CHECKING, SAVINGS = Name("bank", "checking"), Name("bank", "savings")
ACCOUNTS, TRANSFERS, START = 20, 1000, 1000
TOTAL = 2 * ACCOUNTS * START


def test_total_is_the_same_at_every_recorded_cut(spark: SparkSession, disasters: Disasters) -> None:
    """Steps commit the tables apart and die in between; `VERSION AS OF` the snapshots of a checkpoint shows one cut."""
    feed = Changefeed(_bank(), Habits(partitions=2, resolve=0.1), seed=3)
    # One thread, so that the second table is never under way when the process dies behind the first.
    lab = Lab(spark, "transfers", feed.database, feed.send(), messages=300, more={"sink": {"threads": 1}})
    torn = []

    pipeline: Pipeline | None = None
    for turn in range(1000):
        disasters.mend()
        if turn % 3 == 1:
            # After the first of the two tables: the catalog shows money that is nowhere, or twice.
            disasters.crash("commit-done", 1)
        try:
            pipeline = pipeline or lab.start()
            step = pipeline.step()
        except Crash:
            pipeline = None
            torn.append(_total_of_heads(lab))
            continue
        if step.complete and not step.moved:
            break

    cuts = _cuts(spark, lab.name)
    assert [total for total in (_total_of_cut(spark, lab, cut) for cut in cuts) if total != TOTAL] == []
    assert len(cuts) > 5
    assert any(total != TOTAL for total in torn), "no crash ever fell between the tables: the test shows nothing"


def test_total_is_the_same_as_of_the_moment_of_every_checkpoint(spark: SparkSession, disasters: Disasters) -> None:
    """Plain time travel, one timestamp for both tables: over crashes between commits, each followed by a process that
    knows the checkpoint alone, over compaction, and over a table that is parked and brought back in a copy.
    """
    feed = Changefeed(_bank(300), Habits(partitions=2, resolve=0.4), seed=3)
    lab = Lab(spark, "moments", feed.database, feed.send(), messages=200, more={"sink": {"threads": 1}})
    follower: Follower | None = None
    moments: dict[int, int] = {}

    for turn in range(1000):
        disasters.mend()
        if turn % 3 == 1 and turn < _CRASHES:
            disasters.crash("commit-done", 1)
        try:
            follower = follower or Follower(lab.start())
            step = follower.turn()
            if turn % 4 == 2:
                _maintain(follower.pipeline)
        except Crash:
            follower, lab.catalog = None, Catalog(spark, CATALOG)
            # What the crash has left is above the moment of the newest checkpoint.
            moments |= _checked(lab, moments)
            continue
        if turn in _ASKED:
            assert not follower.requests.carry_out(_request(turn)).is_refused
        moments |= _checked(lab, moments)
        if turn > max(_ASKED) and step.complete and not step.moved and not step.resuming:
            break

    assert [total for total in moments.values() if total != TOTAL] == []
    assert len(moments) > 5
    # Checkpoints of before are still shown.
    assert {at: _total_as_of(spark, lab, at) for at in moments} == moments
    _check_printed(spark, lab)


def test_a_checkpoint_between_a_torn_step_and_its_repetition_keeps_the_cut(
    spark: SparkSession, disasters: Disasters
) -> None:
    """A process that comes after a crash carries out a request before it steps: no cut has what the crash left."""
    feed = Changefeed(_bank(100), Habits(partitions=2, resolve=0.4), seed=3)
    lab = Lab(spark, "torn_requests", feed.database, feed.send(), messages=100, more={"sink": {"threads": 1}})
    pipeline = lab.start()
    while not _lists_both(pipeline):
        pipeline.step()
    disasters.crash("commit-done", 1)
    with pytest.raises(Crash):
        pipeline.step()
    disasters.mend()
    assert _total_of_heads(lab) != TOTAL, "the crash did not fall between the tables: the test shows nothing"

    lab.catalog = Catalog(spark, CATALOG)
    pipeline = lab.start()
    Requests(pipeline).carry_out(TableRequest("torn", "resume", ("bank.checking",), "", "me"))

    assert pipeline.state.ahead
    assert _lists_both(pipeline)
    _check_cuts(lab)
    _check_printed(spark, lab)
    while not pipeline.step().moved:
        pass
    assert not pipeline.state.ahead
    _check_cuts(lab)


def _lists_both(pipeline: Pipeline) -> bool:
    return {"checking", "savings"} <= {place[-1] for place in pipeline.state.checkpoint.cut.heads}


def _check_cuts(lab: Lab) -> None:
    """Of every checkpoint that lists both tables: by their snapshots, and as of its moment."""
    cuts = _cuts(lab.spark, lab.name)
    assert [total for total in (_total_of_cut(lab.spark, lab, cut) for cut in cuts) if total != TOTAL] == []
    assert [total for total in _checked(lab, {}).values() if total != TOTAL] == []


_CRASHES = 12
"""Turns in which the process may die: a job that dies in every third turn never ends."""

_ASKED = {6: "park", 9: "resume"}
"""What is asked for after some turns."""


def _request(turn: int) -> TableRequest:
    return TableRequest(f"request-{turn}", cast("Any", _ASKED[turn]), ("bank.savings",), "a look", "me")


def _maintain(pipeline: Pipeline) -> None:
    """Merge files and manifests; nothing expires, as the moments of old checkpoints are read again."""
    for writer in pipeline.targets.writers:
        if writer.head is not None and writer.table.identifier in pipeline.targets.snapshots:
            upkeep = Upkeep(writer, EAGER)
            assert upkeep.compact() or upkeep.rewrite_manifests()
            pipeline.targets.follow(writer)


def _checked(lab: Lab, known: dict[int, int]) -> dict[int, int]:
    """The total at the moment of each checkpoint that lists both tables, where it is not known yet."""
    found = lab.spark.table(f"{CATALOG}.applier_{lab.name}.checkpoints").collect()
    listed = [json.loads(row["checkpoint"]) for row in found]
    both = {"checking", "savings"}
    full = [each for each in listed if both <= {item["table"][-1] for item in each["snapshots"]}]
    moments = {each["cut_at"] for each in full} - known.keys()
    return {at: _total_as_of(lab.spark, lab, at) for at in moments}


def _total_as_of(spark: SparkSession, lab: Lab, at: int) -> int:
    moment = datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    tables = [f"{CATALOG}.{lab.namespace('bank')}.{name.table}" for name in (CHECKING, SAVINGS)]
    for table in tables:
        spark.sql(f"REFRESH TABLE {table}")
    rows = [row for table in tables for row in spark.sql(f"SELECT * FROM {table} TIMESTAMP AS OF '{moment}'").collect()]
    assert len(rows) == 2 * ACCOUNTS
    return sum(int(row["balance"]) for row in rows)


def _check_printed(spark: SparkSession, lab: Lab) -> None:
    """The queries of `applier status --cut`, to the letter, in each engine that runs here."""
    printed = {engine: lab.status(engine).cut for engine in ("spark", "duckdb", "pyiceberg")}
    assert all("TIMESTAMP AS OF" in query for query in printed["spark"])
    rows = [row.asDict() for query in printed["spark"] for row in spark.sql(query.rstrip(";")).collect()]
    assert (len(rows), sum(row["balance"] for row in rows)) == (2 * ACCOUNTS, TOTAL)

    assert all("snapshot_as_of_timestamp" in line for line in printed["pyiceberg"][-2:])
    names: dict[str, Any] = {}
    exec("\n".join(printed["pyiceberg"]), names)  # noqa: S102 - it is what a user pastes
    assert sum(sum(table["balance"].to_pylist()) for table in names["tables"].values()) == TOTAL
    names["catalog"].close()

    import_extension("avro")
    import_extension("iceberg")
    with duckdb.connect() as duck:
        found = [row for query in printed["duckdb"] for row in _rows(duck, query)]
    assert (len(found), sum(row["balance"] for row in found)) == (2 * ACCOUNTS, TOTAL)
    assert any("snapshot_from_timestamp" in query for query in printed["duckdb"])


def _rows(duck: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    answer = duck.execute(query)
    return answer.to_arrow_table().to_pylist() if query.startswith("SELECT") else []


def _bank(transfers: int = TRANSFERS) -> Database:
    """Transfers between accounts of two tables, each in one transaction."""
    database, chance = Database(), random.Random(7)
    for name in (CHECKING, SAVINGS):
        database.create(name, [Column("id"), Column("balance", "bigint")], ["id"])
    rows = [Change(None, {"id": number, "balance": START}) for number in range(ACCOUNTS)]
    database.transact({CHECKING: rows, SAVINGS: rows})
    balances = {name: [START] * ACCOUNTS for name in (CHECKING, SAVINGS)}
    for _ in range(transfers):
        source, target = chance.sample([CHECKING, SAVINGS], 2)
        amount = chance.randint(1, 50)
        changes = {}
        for name, change in ((source, -amount), (target, amount)):
            number = chance.randrange(ACCOUNTS)
            old = balances[name][number]
            balances[name][number] = old + change
            changes[name] = [Change({"id": number, "balance": old}, {"id": number, "balance": old + change})]
        database.transact(changes)
    return database


def _cuts(spark: SparkSession, changefeed: str) -> list[dict[str, int]]:
    """The snapshots of both tables at each recorded checkpoint, once each."""
    found = spark.table(f"{CATALOG}.applier_{changefeed}.checkpoints").orderBy("step").collect()
    listed = [json.loads(row["checkpoint"])["snapshots"] for row in found]
    cuts = [{item["table"][-1]: item["snapshot_id"] for item in snapshots} for snapshots in listed]
    distinct = {tuple(sorted(cut.items())): cut for cut in cuts if {"checking", "savings"} <= cut.keys()}
    return list(distinct.values())


def _total_of_cut(spark: SparkSession, lab: Lab, cut: dict[str, int]) -> int:
    where = f"{CATALOG}.{lab.namespace('bank')}"
    checking = spark.sql(f"SELECT * FROM {where}.checking VERSION AS OF {cut['checking']}")
    savings = spark.sql(f"SELECT * FROM {where}.savings VERSION AS OF {cut['savings']}")
    rows = checking.join(savings, "id").select(checking.balance + savings.balance).collect()
    assert len(rows) == ACCOUNTS
    return sum(int(row[0]) for row in rows)


def _total_of_heads(lab: Lab) -> int:
    tables = [table for table in lab.tables().values() if table.current_snapshot()]
    return sum(row["balance"] for table in tables for row in table.scan().to_arrow().to_pylist())
