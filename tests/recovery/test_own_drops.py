"""A table that a DDL of our own has dropped, renamed or changed before a crash is not taken for one that others did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from applier.errors import TableMismatch, TransientError
from tests.disasters import Crash, Disasters
from tests.lab import Lab, run
from tests.recovery.extent import EVERYTHING
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, ITEMS, ARCHIVE = Name("shop", "orders"), Name("shop", "items"), Name("shop", "archive")
LEDGER = Name("mart", "ledger")
_COLUMNS = (Column("id"), Column("v", "bigint"))


def _anew(database: Database) -> None:
    database.drop(ORDERS)
    database.create(ORDERS, _COLUMNS, ["id"])
    database.insert(ORDERS, {"id": 1, "v": 100})


def _exchange(database: Database) -> None:
    database.exchange_partition(ORDERS, "p1", ITEMS)


_CHANGES: dict[str, Callable[[Database], object]] = {
    "drop": lambda database: database.drop(ORDERS),
    "drop-database": lambda database: database.drop_database("shop"),
    "anew": _anew,
    "truncate": lambda database: database.truncate(ORDERS),
    "rename": lambda database: database.rename((ORDERS, ARCHIVE)),
    "swap": lambda database: database.rename((ORDERS, ARCHIVE), (ITEMS, ORDERS), (ARCHIVE, ITEMS)),
    "exchange": _exchange,
}
_POINTS = ("ddl-due", "ddl-applied", "ddl-recorded", "half-exchanged", "commit-sent", "commit-done", "applied")
_ALL = [*product(_CHANGES, _POINTS, (1, 2), ("resolved", "offset"))]
_FEW = [
    ("drop", "ddl-applied", 1, "resolved"),
    ("drop", "ddl-recorded", 1, "offset"),
    ("drop-database", "ddl-applied", 1, "resolved"),
]
_SETTINGS: Mapping[str, Mapping[str, Any]] = {"changefeed": {"on_table_error": "stop"}}


def _lab(spark: SparkSession, name: str, order: str, change: Callable[[Database], object]) -> Lab:
    """All up to the change is applied; the change, and rows behind it, are in the feed."""
    database = Database()
    database.create(ORDERS, _COLUMNS, ["id"], [("p0", 4), ("p1", 8)])
    for name_, keys in ((ITEMS, range(4, 8)), (LEDGER, range(2))):
        database.create(name_, _COLUMNS, ["id"])
        for key in keys:
            database.insert(name_, {"id": key, "v": key})
    for key in range(8):
        database.insert(ORDERS, {"id": key, "v": key})
    feed = Changefeed(database, Habits(partitions=1, resolve=0.3), seed=3)
    lab = Lab(spark, name.replace("-", "_"), database, list(feed.send()), order=order, more=_SETTINGS)
    run(lab.start, lab)
    database.insert(LEDGER, {"id": 10, "v": 10})
    change(database)
    for key in range(11, 14):
        database.insert(LEDGER, {"id": key, "v": key})
    lab.records = [*lab.records, *feed.send()]
    return lab


@pytest.mark.parametrize(("change", "point", "turn", "order"), _ALL if EVERYTHING else _FEW)
def test_a_start_behind_a_crash_finds_our_own_ddl(
    change: str, point: str, turn: int, order: str, spark: SparkSession, disasters: Disasters
) -> None:
    """Also where a start fails in between, and where the windows are shorter from then on."""
    lab = _lab(spark, f"own_{order}_{change}_{point}_{turn}", order, _CHANGES[change])
    pipeline = lab.start()
    disasters.crash(point, turn)
    if EVERYTHING:
        with suppress(Crash):  # Not every change comes to each point so often.
            pipeline.step()
    else:
        with pytest.raises(Crash):
            pipeline.step()
    disasters.mend()
    disasters.fail("down", turn)
    with suppress(TransientError):
        lab.start()
    disasters.mend()
    lab.messages = 2

    pipeline = run(lab.start, lab)

    assert lab.problems(pipeline) == []
    assert all(known.is_live for known in pipeline.state.completeness.values())
    assert order == "offset" or pipeline.state.resolved_ts == lab.database.ts


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_a_table_that_others_drop_behind_a_crash_in_our_own_drop_is_noticed(
    order: str, spark: SparkSession, disasters: Disasters
) -> None:
    """Only the table that the step was about to drop is not looked for at the start."""
    lab = _lab(spark, f"others_{order}", order, _CHANGES["drop"])
    pipeline = lab.start()
    disasters.crash("ddl-applied")
    with pytest.raises(Crash):
        pipeline.step()
    disasters.mend()
    lab.catalog.drop((lab.namespace(ITEMS.database), ITEMS.table))

    with pytest.raises(TableMismatch, match="items is not in the catalog any more"):
        lab.start()
