"""Vectors of several data files lie in one file: it must stay while one of them counts."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from applier.sink.iceberg.maintenance import expire, snapshot_times
from tests.lab import Lab, run
from tests.ticdc import Changefeed, Habits
from tests.upstream import Change, Column, Database, Name, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_file_of_vectors_outlives_those_of_them_that_were_replaced(spark: SparkSession) -> None:
    """Expiry drops the snapshot that replaced one vector, and keeps the file for the vector beside it.

    A tag on the oldest snapshot keeps that one alone.
    """
    database, name = Database(), Name("shop", "vectors")
    database.create(name, [Column("id"), Column("v", "varchar(20)")], ["id"])
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    lab = Lab(spark, "vectors", database, feed.records)
    pipeline = lab.start()
    rows: list[Row] = [{"id": number, "v": "x"} for number in range(10)]
    for changes in (
        [Change(None, row) for row in rows[:5]],
        [Change(None, row) for row in rows[5:]],
        [Change(rows[0], None), Change(rows[5], None)],
        [Change(rows[1], None)],
        [Change(None, {"id": 20, "v": "x"})],
    ):
        database.transact({name: changes})
        feed.send()
        run(lambda: pipeline, lab)

    table = lab.catalog.load((lab.namespace("shop"), "vectors"))
    assert table is not None
    oldest = min(snapshot_times(table).items(), key=itemgetter(1))[0]
    table.handle.manageSnapshots().createTag("kept", oldest).commit()
    expire(table, 1 << 60)

    assert snapshot_times(table).keys() == {oldest, table.snapshot_id}

    lab.check(pipeline)
