"""Tables that a restart of TiCDC describes again as they were before a DDL that is applied already."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.few import few
from tests.lab import Lab, run
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ITEMS, SPARE, ORDERS = (Name("shop", table) for table in ("items", "spare", "orders"))

_LEAVES: dict[str, Callable[[Database], int]] = {
    "rename": lambda database: database.rename((ITEMS, SPARE)),
    "drop": lambda database: database.drop(ITEMS),
}


@pytest.mark.parametrize("leaves", few(_LEAVES))
def test_a_table_that_is_described_again_under_the_name_that_it_left_is_not_made_again(
    leaves: str, spark: SparkSession
) -> None:
    """A feed that begins midstream makes tables from descriptions; one of before a RENAME or DROP makes none."""
    database = Database()
    for name in (ORDERS, ITEMS):
        database.create(name, [Column("id")], ["id"])
    _LEAVES[leaves](database)
    feed = Changefeed(database, Habits(partitions=1, resolve=0.0))
    past = list(feed.send())
    lab = Lab(spark, f"again_{leaves}", database, past, more={"changefeed": {"start": "midstream"}})
    run(lab.start, lab)

    found = [json.loads(record["value"]).get("tableSchema", {}) for record in past]
    items = next(schema for schema in found if schema.get("table") == "items")
    again = past[-1] | {"value": json.dumps({"version": 1, "type": "BOOTSTRAP", "tableSchema": items}).encode()}
    database.insert(ORDERS, {"id": 1})
    lab.records = [record | {"offset": at} for at, record in enumerate([*past, again, *feed.send()])]
    pipeline = run(lab.start, lab)

    assert pipeline.state.resolved_ts == database.ts
    assert set(lab.tables()) == set(database.at(database.ts))
    assert {(name.database, name.table) for name in pipeline.state.tables} == set(database.at(database.ts))
