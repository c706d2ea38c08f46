"""`applier status` after a run: what Iceberg's Java library wrote is read without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from applier.commands.status.command import status
from applier.config import settings
from tests import expected, recordings
from tests.replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_queries_of_the_cut_show_every_table_at_its_resolved_ts(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Spark takes them as they are printed; together they show the recorded state, row by row."""
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="status")
    found.raw["source"]["messages_per_step"] = 400
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        while not (step := pipeline.step(ends)).complete or step.moved:
            pass
        resolved_ts = pipeline.state.resolved_ts

    report = status(settings.parse(found.raw), now_ms=(resolved_ts >> 18) + 5000)

    assert (report.resolved_ts, report.lag_seconds, report.verdict) == (resolved_ts, 5.0, "complete")
    assert report.holder is not None
    assert report.holder.released
    state = recordings.expected("txns")[-1]
    wanted = {
        ".".join(found.identifier(expected.name_of(text))): len(list(expected.rows(table)))
        for text, table in state["tables"].items()
    }
    assert {table.iceberg: table.rows for table in report.tables} == wanted
    assert {table.state for table in report.tables} == {"in step"}
    counted = {query.split()[3].removeprefix("lake."): spark.sql(query.rstrip(";")).count() for query in report.cut}
    assert counted == wanted
    newest = report.steps[0]
    assert newest.backlog == 0
    assert {"plan", "read", "apply"} <= newest.seconds.keys()
    assert "checkpoint" in report.steps[1].seconds
    assert report.schema_change_count == len(report.schema_changes) == len(state["tables"]) + 2
    assert {change.decision for change in report.schema_changes} == {"applied"}
