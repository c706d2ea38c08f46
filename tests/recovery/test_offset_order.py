"""Tables without a key in offset order: steps that are repeated with other messages than those that failed had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.completeness import Why
from applier.changefeed.message import TopicPartition
from applier.errors import SourceLost, TableMismatch
from applier.pipeline.step import Pipeline
from applier.sink.commit.stamp import OFFSETS
from applier.sink.upkeep import Thresholds, Upkeep
from tests.disasters import Crash, Disasters
from tests.lab import Lab
from tests.recovery.cases import ITEMS, ORDERS, SPARE
from tests.recovery.extent import every
from tests.ticdc import TOPIC, Changefeed, Habits, Record
from tests.upstream import Column, Database, Name, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def _lab(spark: SparkSession, name: str, database: Database, records: Sequence[Record], **changefeed: str) -> Lab:
    return Lab(spark, name, database, records, order="offset", more={"changefeed": changefeed})


def _rows(number: int, value: str, times: int = 1) -> list[Row]:
    """Equal rows."""
    return [{"id": number, "v": value}] * times


def _finish(pipeline: Pipeline, lab: Lab) -> None:
    """Step until nothing is left, and compare."""
    while (step := pipeline.step()).moved or not step.complete:
        pass
    lab.check(pipeline)


def _of(records: Sequence[Record], name: Name, kind: str) -> list[Record]:
    """The messages of one kind of a table."""
    found = []
    for record in records:
        message = json.loads(record["value"])
        if message["type"] == kind and message.get("table", message.get("tableSchema", {}).get("table")) == name.table:
            found.append(record)
    return found


@pytest.mark.parametrize("point", every(["ddl-applied", "ddl-recorded", "applied"], 2))
def test_a_longer_window_after_a_crash_loses_nothing_before_its_ddl(
    point: str, spark: SparkSession, disasters: Disasters
) -> None:
    """One partition had come to the DDL, the other had not: its rows from before are new, those read twice are not."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    for number in range(12):
        database.insert(ORDERS, *_rows(number, "same", 2))
    database.add_index(ORDERS, "v")
    database.insert(ORDERS, *_rows(99, "after", 3))
    feed = Changefeed(database, Habits(partitions=2, dispatcher="scatter", resolve=0.0), seed=3)
    feed.send()
    lab = _lab(spark, f"longer_{point}".replace("-", "_"), database, feed.records)
    ends = {place: span.end for place, span in lab.source().bounds().items()}
    # The DDL after the last row is the index, but for the rows behind it.
    disasters.crash(point, 2 if point != "applied" else 1)

    with pytest.raises(Crash):
        lab.start().step({P0: ends[P0], P1: 4})
    disasters.mend()
    pipeline = lab.start()
    assert pipeline.state.covered
    _finish(pipeline, lab)


@pytest.mark.parametrize(
    ("point", "turn", "key"),
    every(list(product(["ddl-due", "ddl-applied", "ddl-recorded"], [4, 5, 6], [[], ["id"]])), 9),
)
def test_rows_of_before_an_index_stay_out_of_the_table_that_took_the_name(
    point: str, turn: int, key: list[str], spark: SparkSession, disasters: Disasters
) -> None:
    """A step dies between the renames of a swap: rows that it had applied before are not applied under the old name."""
    database = Database()
    for name in (ORDERS, ITEMS):
        database.create(name, [Column("id"), Column("v", "varchar(20)")], key)
    database.insert(ORDERS, *_rows(1, "orders"))
    database.add_index(ORDERS, "v")
    database.insert(ITEMS, *_rows(2, "items"))
    database.rename((ORDERS, SPARE), (ITEMS, ORDERS), (SPARE, ITEMS))
    database.insert(ORDERS, *_rows(3, "swapped"))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, f"swap_{point}_{turn}_{len(key)}".replace("-", "_"), database, feed.records)
    # The two tables and the index are DDL, too.
    disasters.crash(point, turn)

    with pytest.raises(Crash):
        lab.start().step()
    disasters.mend()
    _finish(lab.start(), lab)


@pytest.mark.parametrize("point", every(["ddl-applied", "ddl-due", "ddl-recorded"], 3))
def test_rows_of_before_a_truncate_do_not_come_back(point: str, spark: SparkSession, disasters: Disasters) -> None:
    """One partition was read to its end, the other one not: its rows of before the index lie before the TRUNCATE."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    for number in range(8):
        database.insert(ORDERS, *_rows(number, "same", 2))
    database.add_index(ORDERS, "v")
    database.truncate(ORDERS)
    database.insert(ORDERS, *_rows(99, "after"))
    feed = Changefeed(database, Habits(partitions=2, dispatcher="scatter", resolve=0.0), seed=5)
    feed.send()
    lab = _lab(spark, f"emptied_{point}".replace("-", "_"), database, feed.records)
    ends = {place: span.end for place, span in lab.source().bounds().items()}
    disasters.crash(point, 3)

    with pytest.raises(Crash):
        lab.start().step({P0: ends[P0], P1: 4})
    disasters.mend()
    _finish(lab.start(), lab)


@pytest.mark.parametrize(
    ("point", "kind"),
    every(
        [
            ("half-exchanged", "exchange"),
            ("ddl-applied", "exchange"),
            ("ddl-recorded", "exchange"),
            ("ddl-recorded", "empty"),
            ("ddl-applied", "empty"),
            ("applied", "empty"),
        ],
        3,
    ),
)
def test_rows_of_before_partitions_changed_leave_a_doubt_after_a_crash(
    point: str, kind: str, spark: SparkSession, disasters: Disasters
) -> None:
    """One partition was read to its end, the other one not: its rows of before come late, as without the crash."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")], ["id"], [("p0", 10), ("p1", 20)])
    database.create(ITEMS, [Column("id"), Column("v", "varchar(20)")], ["id"])
    for number in range(8):
        database.insert(ORDERS, *_rows(number, "before"))
    for number in range(10, 14):
        database.insert(ITEMS, *_rows(number, "before"))
    if kind == "exchange":
        database.exchange_partition(ORDERS, "p1", ITEMS)
    else:
        database.truncate_partition(ORDERS, "p0")
    database.insert(ORDERS, *_rows(19, "after"))
    feed = Changefeed(database, Habits(partitions=2, dispatcher="scatter", resolve=0.0), seed=5)
    feed.send()
    lab = _lab(spark, f"partitions_{kind}_{point}".replace("-", "_"), database, feed.records)
    lab.may_lack = lambda _: True
    ends = {place: span.end for place, span in lab.source().bounds().items()}
    # Both tables are DDL, too.
    disasters.crash(point, 3 if point.startswith("ddl-") else 1)

    with pytest.raises(Crash):
        lab.start().step({P0: ends[P0], P1: 4})
    disasters.mend()
    pipeline = lab.start()
    _finish(pipeline, lab)

    doubted = {name.table: known.why for name, known in pipeline.state.completeness.items()}
    both = kind == "exchange"
    assert doubted == {"orders": Why.LATE, "items": Why.LATE if both else Why.WHOLE}


def test_a_shorter_window_after_a_crash_applies_nothing_twice(spark: SparkSession, disasters: Disasters) -> None:
    """A smaller step is widened to what the failed one had read, and the checkpoint is never below a table."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    for number in range(20):
        database.insert(ORDERS, *_rows(number % 3, "same", 2))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, "shorter", database, feed.records)
    disasters.crash("applied")

    with pytest.raises(Crash):
        lab.start().step({P0: 30})
    disasters.mend()
    lab.messages = 5
    pipeline = lab.start()
    # An end that is asked for counts more: what lies beyond it stays known, whatever the checkpoint says.
    assert pipeline.step({P0: 10}).moved
    assert pipeline.state.next_offsets[P0] == 10
    assert pipeline.state.covered
    pipeline.state.control.release()
    pipeline = lab.start()
    assert pipeline.step().moved
    assert pipeline.state.next_offsets[P0] == 30
    assert not pipeline.state.covered
    _finish(pipeline, lab)


def test_rows_that_were_applied_beside_held_ones_count_once(spark: SparkSession) -> None:
    """A row waits for its schema, one behind it does not: both are read again once the schema has come."""
    database = Database()
    for name in (ORDERS, ITEMS):
        database.create(name, [Column("id"), Column("v", "varchar(20)")])
    database.insert(ORDERS, *_rows(1, "same", 2))
    database.insert(ITEMS, *_rows(2, "held", 2))
    database.insert(ORDERS, *_rows(3, "last"))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    here, there = _of(feed.records, ORDERS, "INSERT"), _of(feed.records, ITEMS, "INSERT")
    create, late = _of(feed.records, ORDERS, "CREATE"), _of(feed.records, ITEMS, "CREATE")
    sent = [*create, *there, *here[:2], *late, *here[2:]]
    lab = _lab(spark, "held_beside", database, [{**record, "offset": place} for place, record in enumerate(sent)])

    pipeline = lab.start()
    assert pipeline.step({P0: 5}).moved
    assert pipeline.state.next_offsets[P0] == 1
    step = pipeline.step({P0: 5})
    assert not step.moved
    assert [row.rows for row in step.waiting] == [2]
    _finish(pipeline, lab)


def test_maintenance_keeps_what_the_stamp_says(spark: SparkSession, disasters: Disasters) -> None:
    """A compaction and a fence between a crash and the repetition take nothing from what tells the rows."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    for number in range(6):
        database.insert(ORDERS, *_rows(number, "same", 2))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, "compacted", database, feed.records)
    first = lab.start()
    for end in (4, 8):
        assert first.step({P0: end}).moved
    disasters.crash("applied")
    with pytest.raises(Crash):
        first.step()
    disasters.mend()

    second = lab.start()
    (writer,) = second.targets.writers
    said = writer.table.setting(OFFSETS)
    assert said is not None
    assert AppliedOffsets.from_text(said).ends() == {P0: len(feed.records)}
    assert Upkeep(writer, Thresholds(small_files=2)).compact()["compacted"] > 1
    second.state.control.release()
    third = lab.start()
    (writer,) = third.targets.writers
    assert writer.table.setting(OFFSETS) == said
    _finish(third, lab)


def test_a_table_of_another_topic_is_refused_without_a_checkpoint(
    spark: SparkSession, disasters: Disasters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the stamp knows that the topic is another one: its first messages are not taken for applied."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    database.insert(ORDERS, *_rows(1, "same", 2))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, "another_topic", database, feed.records)
    monkeypatch.setattr("tests.lab.Memory.topic_ids", lambda _: {TOPIC: "old"})
    disasters.crash("applied")
    with pytest.raises(Crash):
        lab.start().step()
    disasters.mend()

    monkeypatch.setattr("tests.lab.Memory.topic_ids", lambda _: {TOPIC: "new"})
    with pytest.raises(SourceLost, match="Topic feed was recreated: its id is new, and old is the one that was read"):
        lab.start().step()
    monkeypatch.setattr("tests.lab.Memory.topic_ids", lambda _: {TOPIC: "old"})
    _finish(lab.start(), lab)


@pytest.mark.parametrize("released", every([False, True], 2))
def test_a_table_that_was_rolled_back_in_the_same_epoch_is_refused(spark: SparkSession, *, released: bool) -> None:
    """Its property names offsets that its head does not: rows between them would be left out for ever."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    for number in range(4):
        database.insert(ORDERS, *_rows(number, "same", 2))
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, f"rolled_back_{released}", database, feed.records, on_table_error="stop")
    pipeline = lab.start()
    for end in (5, len(feed.records)):
        assert pipeline.step({P0: end}).moved
    lab.check(pipeline)
    (writer,) = pipeline.targets.writers
    newest, before, *_ = writer.table.history()
    if released:
        pipeline.state.control.release()
    writer.table.handle.manageSnapshots().setCurrentSnapshot(before.id).commit()

    # Whoever takes over first fences the table, which goes on to show what it showed.
    shown = rf'it is stamped with epoch \d and .*"0:{len(feed.records)}".*, but shows epoch \d and .*"0:5"'
    with pytest.raises(
        TableMismatch,
        match=rf"was rolled back by hand: {shown}.*system.set_current_snapshot.*`applier resume -c ",
    ):
        lab.start().hold_to_checkpoint()
    writer.table.handle.manageSnapshots().setCurrentSnapshot(newest.id).commit()
    pipeline = lab.start()
    pipeline.hold_to_checkpoint()
    _finish(pipeline, lab)


@pytest.mark.parametrize("released", every([False, True], 2))
def test_a_rollback_to_a_ddl_is_refused_where_nothing_is_left_to_apply(spark: SparkSession, *, released: bool) -> None:
    """The commit of a DDL names no offsets, so the snapshot of the checkpoint shows what the table lacks."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)")])
    database.insert(ORDERS, *_rows(1, "same", 2))
    database.add_column(ORDERS, Column("w", "varchar(9)", default="x"))
    database.insert(ORDERS, {"id": 2, "v": "new", "w": "y"})
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    lab = _lab(spark, f"rolled_back_to_ddl_{released}", database, feed.records, on_table_error="stop")
    pipeline = lab.start()
    _finish(pipeline, lab)
    (writer,) = pipeline.targets.writers
    newest, before, *_ = writer.table.history()
    assert OFFSETS not in before.summary
    if released:
        pipeline.state.control.release()
    writer.table.handle.manageSnapshots().setCurrentSnapshot(before.id).commit()

    with pytest.raises(
        TableMismatch, match=rf"rolled back by hand: it was at snapshot {newest.id}, but shows the older"
    ):
        lab.start().hold_to_checkpoint()
