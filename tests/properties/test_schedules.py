"""Random schedules of the whole job: no row is lost, doubled or ahead of the stamp at any checkpoint.

SCHEDULES says how many, SEED_FROM with which seed they begin; SEED runs one again: `make soak SEED=17`.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.lab import Lab
from tests.properties.elements import Elements
from tests.properties.schedules import Schedule, feed_of
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEED = os.environ.get("SEED")
_FROM = int(os.environ.get("SEED_FROM") or 0)
SEEDS = [int(_SEED)] if _SEED else range(_FROM, _FROM + int(os.environ.get("SCHEDULES") or 2))
_EACH_BY_OFFSET = 1 if _SEED else 5


@pytest.mark.parametrize("seed", SEEDS)
def test_every_checkpoint_is_the_database(seed: int, spark: SparkSession, disasters: Disasters) -> None:
    """Whatever happens on the way, each checkpoint shows what the database held, and the last one all of it."""
    _run(Schedule(seed, spark, disasters))


@pytest.mark.parametrize("seed", SEEDS[::_EACH_BY_OFFSET])
def test_every_end_in_offset_order_is_the_database(seed: int, spark: SparkSession, disasters: Disasters) -> None:
    """The same without a watermark, where the tables are right once all messages are read."""
    _run(Schedule(seed, spark, disasters, order="offset"))


def _run(schedule: Schedule) -> None:
    try:
        schedule.run()
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={schedule.seed}. It went: {'; '.join(schedule.story)}")
        raise

    assert schedule.checkpoints > 0


def test_a_partition_that_ran_ahead_counts_once_it_was_read_again(spark: SparkSession) -> None:
    """Rows above the watermark that do not fit into one window are all there when the watermark has passed them."""
    database, name = Database(), Name("shop", "orders")
    database.create(name, [Column("id"), Column("v", "varchar(20)")], ["id"])
    for key in range(40):
        database.insert(name, {"id": key, "v": str(key)})
    feed = Changefeed(database, Habits(partitions=2, dispatcher="table", resolve=1.0))
    feed.send()
    lab = Lab(spark, "held_rows", database, feed.records, messages=10_000)
    full, quiet = sorted(lab.source().bounds(), key=lambda place: lab.source().bounds()[place].end)[::-1]
    ends = {place: span.end for place, span in lab.source().bounds().items()}

    pipeline = lab.start()
    # One partition is read to its end, the other one not far: what the first holds above the watermark has to wait.
    assert pipeline.step({full: ends[full], quiet: 5}).moved
    pipeline.state.control.release()
    lab.messages = 10
    pipeline = lab.start()
    steps = [pipeline.step({full: ends[full], quiet: 30})]
    while not (steps[-1].complete and not steps[-1].moved):
        if steps[-1].moved:
            lab.check(pipeline)
        steps.append(pipeline.step())

    assert pipeline.state.resolved_ts == database.ts
    assert sum(step.moved for step in steps) > 1


@pytest.mark.parametrize("seed", range(20))
def test_the_feed_keeps_the_promise_of_ticdc(seed: int) -> None:
    """No row comes for the first time after a resolved ts that covers it, and in the end all have come."""
    feed = feed_of(random.Random(seed), elements=Elements.drawn(seed))
    rows: set[str] = set()
    resolved = 0
    for message in (json.loads(record["value"]) for record in feed.records):
        if message["type"] == "WATERMARK":
            resolved = max(resolved, message["commitTs"])
        elif message["type"] in {"INSERT", "UPDATE", "DELETE"}:
            assert message["commitTs"] > resolved or json.dumps(message) in rows
            rows.add(json.dumps(message))

    assert resolved == feed.database.ts
    sent = [item for item in feed.database.log if isinstance(item, Rows)]
    if feed.database.filtered:
        sent = [item for item in sent if any(change.new is not None for change in item.changes)]
    wanted = {(item.ts, item.schema.name) for item in sent}
    assert {(row["commitTs"], Name(row["database"], row["table"])) for row in map(json.loads, rows)} == wanted


@pytest.mark.parametrize("seed", [*range(20), 200_112])
def test_in_offset_order_the_last_message_of_a_key_is_its_newest_change(seed: int) -> None:
    """Whatever a restart sends again, later changes of the same key follow it: the rule that offset order needs."""
    last: dict[tuple[int, str], int] = {}
    newest: dict[tuple[int, str], int] = {}
    for message in (json.loads(record["value"]) for record in feed_of(random.Random(seed), order="offset").records):
        rows = [message[member] for member in ("old", "data") if member in message]
        for key in {(message["tableID"], str(row.get("id"))) for row in rows}:
            last[key] = message["commitTs"]
            newest[key] = max(newest.get(key, 0), last[key])

    assert last == newest
