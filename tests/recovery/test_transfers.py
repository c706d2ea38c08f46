"""The consistent cut: money that moves between two tables is neither lost nor found at any recorded checkpoint."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from tests.disasters import Crash, Disasters
from tests.lab import CATALOG, Lab
from tests.ticdc import Changefeed, Habits
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


def _bank() -> Database:
    """Transfers between accounts of two tables, each in one transaction."""
    database, chance = Database(), random.Random(7)
    for name in (CHECKING, SAVINGS):
        database.create(name, [Column("id"), Column("balance", "bigint")], ["id"])
    rows = [Change(None, {"id": number, "balance": START}) for number in range(ACCOUNTS)]
    database.transact({CHECKING: rows, SAVINGS: rows})
    balances = {name: [START] * ACCOUNTS for name in (CHECKING, SAVINGS)}
    for _ in range(TRANSFERS):
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
    distinct = {tuple(sorted(cut.items())): cut for cut in cuts if len(cut) == 2}
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
