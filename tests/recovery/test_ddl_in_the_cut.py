"""The cut lists what a DDL made of a table, also where the step that made it died and a repeated one finds it made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Crash, Disasters
from tests.lab import Lab, run
from tests.recovery.extent import every
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, ARCHIVE = Name("shop", "orders"), Name("shop", "archive")

_CHANGES: dict[str, Callable[[Database], int]] = {
    "alter": lambda database: database.add_column(ORDERS, Column("d", "bigint", 1)),
    "truncate": lambda database: database.truncate(ORDERS),
    "partition": lambda database: database.truncate_partition(ORDERS, "p0"),
    "rename": lambda database: database.rename((ORDERS, ARCHIVE)),
}


@pytest.mark.parametrize(("change", "point"), every([*product(_CHANGES, ("ddl-applied", "ddl-recorded"))], 3))
def test_the_cut_shows_a_ddl_that_a_step_before_a_crash_made(
    change: str, point: str, spark: SparkSession, disasters: Disasters
) -> None:
    """In offset order nothing but the DDL tells that the table is ahead of the checkpoint that lists it."""
    database = Database()
    database.create(ORDERS, [Column("id"), Column("v", "bigint")], ["id"], [("p0", 4), ("p1", 8)])
    for key in range(8):
        database.insert(ORDERS, {"id": key, "v": key})
    feed = Changefeed(database, Habits(partitions=1))
    lab = Lab(spark, f"in_cut_{change}_{point}".replace("-", "_"), database, list(feed.send()), order="offset")
    run(lab.start, lab)
    _CHANGES[change](database)
    lab.records = [*lab.records, *feed.send()]
    disasters.crash(point)
    with pytest.raises(Crash):
        lab.start().step()
    disasters.mend()

    pipeline = run(lab.start, lab)

    assert lab.problems(pipeline) == []
    name = next(iter(database.at(database.ts)))
    assert list(pipeline.state.checkpoint.cut.heads) == [(lab.namespace(name.database), name.table)]
