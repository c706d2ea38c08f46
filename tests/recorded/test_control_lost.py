"""What is lost or changed between two runs: the feed is read again and nothing counts twice, or it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import TableMismatch
from applier.pipeline.step import Pipeline
from applier.sink.iceberg.catalog import Catalog
from tests import recordings
from tests.replay import Replay, differences, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def half(found: Replay) -> dict[TopicPartition, int]:
    """The ends of the recording at the state in the middle."""
    decoder = build("simple", DecoderOptions())
    states = list(ends_at(found.scenario, found.variant, decoder))
    return states[len(states) // 2][1]


def advance(pipeline: Pipeline, ends: Mapping[TopicPartition, int] | None = None) -> None:
    """Step to some ends, or to those of the recording."""
    goal = ends or pipeline.ends()
    while True:
        step = pipeline.step(goal)
        if step.complete and not step.moved:
            return


@pytest.mark.parametrize("scenario", ["txns", pytest.param("ddl", marks=pytest.mark.soak)])
def test_lost_checkpoints_cost_a_replay_and_no_row(
    scenario: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Dropped by hand: the next start takes a higher epoch, passes over what the tables have, and goes on."""
    found = replay(scenario, "simple-json", lake, tmp_path, "simple", name=f"lost-{scenario}")
    found.raw["source"]["messages_per_step"] = 400
    with found.running(spark) as pipeline:
        advance(pipeline, half(found))
        heads = {name: found.catalog.load_table(found.identifier(name)).current_snapshot() for name in found.tables()}
    catalog = Catalog(spark, "lake")
    for name in heads:
        assert catalog.load(found.identifier(name)) is not None
    catalog.drop((f"applier_lost-{scenario}", "checkpoints"))

    with found.running(spark) as pipeline:
        assert pipeline.state.checkpoint.lease.epoch == 2
        assert pipeline.state.resolved_ts == 0
        advance(pipeline)
        assert pipeline.state.resolved_ts >= recordings.expected(scenario)[-1]["resolved_ts"]

    assert differences(found, recordings.expected(scenario)[-1]) == []
    with found.running(spark) as pipeline:
        assert pipeline.state.checkpoint.lease.epoch == 3


@pytest.mark.soak
def test_lost_checkpoints_cost_no_row_in_offset_order_either(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Tables without a key among them: what the stamps say is read in one window and passed over."""
    found = replay("pk", "canal-json", lake, tmp_path, "canal-json", name="lost-plain", order="offset")
    found.raw["source"]["messages_per_step"] = 30
    with found.running(spark) as pipeline:
        ends = {place: end // 2 for place, end in pipeline.ends().items()}
        advance(pipeline, ends)
        assert pipeline.state.checkpoint.step > 2
    Catalog(spark, "lake").drop(("applier_lost-plain", "checkpoints"))

    with found.running(spark) as pipeline:
        assert pipeline.state.checkpoint.lease.epoch == 2
        assert pipeline.state.covered
        step = pipeline.step()
        assert step.status.messages > 30
        assert dict(step.status.notes)["had"] > 0
        advance(pipeline)

    assert differences(found, recordings.expected("pk")[-1]) == []


def test_tables_dropped_or_replaced_between_two_runs_are_refused(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A table that the checkpoint lists is not begun anew with the rows that are still to come; all others go on."""
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="dropped-by-hand", on_table_error="stop")
    with found.running(spark) as pipeline:
        advance(pipeline, half(found))
    catalog = Catalog(spark, "lake")
    name = found.identifier(TableName("bank", "accounts"))
    table = catalog.load(name)
    assert table is not None
    columns = table.schema.arrow

    catalog.drop(name)
    with (
        pytest.raises(TableMismatch, match=r"bank\.accounts is not in the catalog any more, though the checkpoint"),
        found.running(spark),
    ):
        pass
    assert catalog.load(name) is None

    catalog.create(name, columns, key=("id",))
    match = r"bank\.accounts is not the one that the checkpoint lists"
    with pytest.raises(TableMismatch, match=match), found.running(spark):
        pass

    found.raw["changefeed"]["on_table_error"] = "park"
    with found.running(spark) as pipeline:
        advance(pipeline)
        parked = {str(table) for table in pipeline.state.parked}
    assert parked == {"bank.accounts"}
    assert found.contents(TableName("bank", "accounts")) == []
    problems = differences(found, recordings.expected("txns")[-1])
    assert [line for line in problems if not line.startswith("bank.accounts:")] == []


@pytest.mark.soak
def test_maintenance_and_a_rollback_between_two_runs(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Compaction and the expiry of the very snapshots that the checkpoint names are survived; a rollback is refused."""
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="maintained", on_table_error="stop")
    found.raw["source"]["messages_per_step"] = 400
    with found.running(spark) as pipeline:
        advance(pipeline, half(found))
    for name in found.tables():
        identifier = ".".join(found.identifier(name))
        options = "map('rewrite-all', 'true')"
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{identifier}', options => {options})")
        spark.sql(f"CALL lake.system.expire_snapshots('{identifier}', TIMESTAMP '2100-01-01 00:00:00', 1)")

    with found.running(spark) as pipeline:
        advance(pipeline)

    assert differences(found, recordings.expected("txns")[-1]) == []
    accounts = ".".join(found.identifier(TableName("bank", "accounts")))
    oldest = spark.sql(f"SELECT snapshot_id FROM lake.{accounts}.snapshots ORDER BY committed_at").first()
    assert oldest is not None
    newer = spark.sql(f"SELECT snapshot_id FROM lake.{accounts}.snapshots ORDER BY committed_at").collect()[1]
    spark.sql(f"CALL lake.system.set_current_snapshot('{accounts}', {newer[0]})")
    with (
        pytest.raises(
            TableMismatch,
            match=r"bank\.accounts was rolled back by hand: .*system.set_current_snapshot.*`applier resume -c FILE ",
        ),
        found.running(spark),
    ):
        pass
