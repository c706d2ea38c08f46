"""An export that is loaded while the layout of its table changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.completeness import Why
from applier.changefeed.filter import exactly
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.loads import place_of
from applier.sink.control.rows import Kind, TableRequest
from applier.sink.iceberg.location import OWN_LOCATION
from tests.few import few
from tests.lab import Lab
from tests.properties.life_loads import Loads, OpenLoad
from tests.properties.lives import Lives
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _ask(pipeline: Pipeline, kind: Kind, load: OpenLoad) -> None:
    request = TableRequest(f"{kind} {load.export.tso}", kind, exactly(load.names), "a test", "a test")
    outcome = Requests(pipeline).carry_out(request)
    assert not outcome.is_refused, outcome


def _loaded(pipeline: Pipeline, loads: Loads, load: OpenLoad) -> None:
    _ask(pipeline, "load", load)
    assert not loads.bulk(pipeline, load)


@pytest.mark.parametrize("fields", few([["bucket(2, id)"], []]), ids=["some", "none"])
def test_rows_that_were_loaded_into_other_partition_fields_are_refused(
    fields: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    """Files of one partition spec are none of another: the table stays parked until a new export is loaded."""
    database, name = Database(), Name("shop", "orders")
    database.create(name, [Column("id"), Column("v", "varchar(20)")], ["id"])
    database.insert(name, {"id": 1, "v": "one"}, {"id": 2, "v": "two"})
    first = database.tick()
    database.insert(name, {"id": 3, "v": "three"})
    database.tick()
    feed = Changefeed(database, Habits(partitions=1))
    feed.send()
    lab = Lab(spark, f"load_layout_{len(fields)}", database, feed.records)
    lab.more = {"tables": {"shop.*": {"partition_by": fields}}}
    pipeline, loads = lab.start(), Loads(Lives(database), random.Random(0), tmp_path)
    pipeline.step()
    load = loads.begin([name], first)
    _loaded(pipeline, loads, load)

    lab.more = {"tables": {"shop.*": {"partition_by": ["id"]}}}
    pipeline = lab.start()
    follower = Follower(pipeline)
    _ask(pipeline, "loaded", load)
    follower.turn()

    known = pipeline.state.completeness[TableName(*name)]
    assert (known.why, known.is_due) == (Why.CATCHING_UP, False)
    assert known.reason.detail == (
        f"The partition fields of table {lab.name}__shop.orders have changed while table shop.orders was loaded"
    )

    again = loads.begin([name], database.ts)
    _loaded(pipeline, loads, again)
    _ask(pipeline, "loaded", again)
    while follower.turn().resuming:
        pass
    assert lab.is_live(pipeline, name)
    lab.check(pipeline)


def test_the_files_of_a_loaded_table_lie_where_its_name_says_from_the_first_one_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No folder that looks like one of the load alone holds them, neither while it goes on nor later."""
    database, name = Database(), Name("shop", "orders")
    database.create(name, [Column("id"), Column("v", "varchar(20)")], ["id"])
    database.insert(name, {"id": 1, "v": "one"})
    tso = database.tick()
    database.create(Name("shop", "other"), [Column("id")], ["id"])
    feed = Changefeed(database, Habits(partitions=1))
    feed.send()
    lab = Lab(spark, "load_place", database, feed.records)
    pipeline, loads = lab.start(), Loads(Lives(database), random.Random(0), tmp_path)
    load = loads.begin([name], tso)
    assert not loads.bulk(pipeline, load)
    catalog, final = pipeline.targets.catalog, pipeline.targets.identifier(TableName(*name))
    aside = catalog.load(place_of("load_place", TableName(*name)))
    assert aside is not None
    namespace, table = aside.location.split("/")[-2:]
    assert namespace.removesuffix(".db") == final[0]
    assert table.removeprefix(f"{final[1]}-") != table
    assert aside.setting(OWN_LOCATION) == aside.location

    # It is renamed with its files, and a table that is there has files of its own.
    catalog.rename(aside.identifier, final)
    assert str(getattr(catalog.load(final), "location", "")) == aside.location
