"""What TiCDC sends again of before a DDL, in offset order: the tables stay what the DDL has made of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import from_unix_ms
from tests.lab import Lab
from tests.recovery.cases import ITEMS, ORDERS
from tests.ticdc import TOPIC, Changefeed, Habits, Record
from tests.upstream import Change, Column, Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL: dict[str, Callable[[Database], object]] = {
    "add_column": lambda database: database.add_column(ORDERS, Column("e", "int", 5)),
    "drop_column": lambda database: database.drop_column(ORDERS, "c"),
    "rename_column": lambda database: database.rename_column(ORDERS, "c", "d"),
    "modify_column": lambda database: database.modify_column(ORDERS, "c", "varchar(20)"),
    "truncate": lambda database: database.truncate(ORDERS),
    "rename": lambda database: database.rename((ORDERS, ITEMS)),
    "drop": lambda database: database.drop(ORDERS),
}


def _database(change: str) -> Database:
    """Rows that are there, one that is changed and one that is gone; and a DDL, after which nothing happens."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "int"), Column("c", "int")], ["id"])
    database.transact({ORDERS: [Change(None, {"id": key, "v": 1, "c": key}) for key in range(4)]})
    first, second, *_ = database.tables[ORDERS].rows.values()
    database.transact({ORDERS: [Change(first, {**first, "v": 2})]})
    database.transact({ORDERS: [Change(second, None)]})
    DDL[change](database)
    return database


def _twice(records: Sequence[Record]) -> list[Record]:
    """All messages, and all of them again."""
    count = Counter(record["partition"] for record in records)
    return [*records, *({**record, "offset": record["offset"] + count[record["partition"]]} for record in records)]


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("change", DDL)
def test_rows_of_before_a_ddl_do_not_undo_it(change: str, partitions: int, spark: SparkSession) -> None:
    """Wherever steps end in what comes again, each leaves the tables as the database is."""
    database = _database(change)
    feed = Changefeed(database, Habits(partitions=partitions, resolve=0.0))
    feed.send()
    ends = Counter(TopicPartition(TOPIC, record["partition"]) for record in feed.records)
    lab = Lab(spark, f"again_{change}_{partitions}", database, _twice(feed.records), order="offset")
    pipeline = lab.start()

    for more in range(max(ends.values()) + 1):
        assert pipeline.step({place: end + min(more, end) for place, end in ends.items()}).moved
        lab.check(pipeline)
        if more == 1:
            # The next applier knows it from the checkpoint.
            pipeline.state.control.release()
            pipeline = lab.start()

    assert pipeline.step().complete


def test_rows_that_come_again_behind_a_ddl_of_the_same_step_are_left_out(spark: SparkSession) -> None:
    """The step of the DDL ends in the middle of what comes again, and an earlier one had read the first half of it."""
    database = _database("add_column")
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    place, count = TopicPartition(TOPIC, 0), len(feed.records)
    lab = Lab(spark, "again_in_the_middle", database, _twice(feed.records), order="offset")
    pipeline = lab.start()

    assert pipeline.step({place: count - 2}).moved
    for end in (count + 4, 2 * count):
        assert pipeline.step({place: end}).moved
        lab.check(pipeline)


def test_rows_of_only_a_millisecond_leave_the_columns_alone(spark: SparkSession) -> None:
    """They may be newer than the DDL, so they are applied, to the columns that the DDL has made."""
    database = _database("add_column")
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    feed.send()
    records = [{**record, "value": _coarse(record["value"])} for record in feed.records]
    lab = Lab(spark, "again_coarse", database, _twice(records), order="offset")
    pipeline = lab.start()

    assert pipeline.step({TopicPartition(TOPIC, 0): len(records)}).moved
    lab.check(pipeline)
    assert pipeline.step().moved

    (writer,) = pipeline.targets.writers
    assert [column.name for column in writer.table.schema.fields] == ["id", "v", "c", "e"]


def _coarse(value: bytes) -> bytes:
    """The message with a commit ts that is made of milliseconds."""
    message = json.loads(value)
    return json.dumps({**message, "commitTs": from_unix_ms(message["commitTs"] % 1_000_000)}).encode()
