"""`applier plan` against recorded feeds: it tells what the next step does, and touches nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.commands.plan.command import plan
from applier.commands.plan.report import render
from applier.config import settings
from tests.replay import Replay, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def properties(warehouse: Path) -> dict[str, str]:
    """Properties of the catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


def files(warehouse: Path) -> set[str]:
    """Every file of every table."""
    return {str(path) for path in warehouse.rglob("*") if path.is_file() and "catalog.db" not in path.name}


def started(scenario: str, name: str, properties: dict[str, str], folder: Path, messages: int) -> Replay:
    """A replay with steps of some messages."""
    found = replay(scenario, "simple-json", properties, folder, "simple", name=name)
    found.raw["source"]["messages_per_step"] = messages
    return found


def test_a_plan_is_what_the_step_then_does(
    spark: SparkSession, properties: dict[str, str], warehouse: Path, tmp_path: Path
) -> None:
    """Offsets, watermark and tables are those of the step; before the first one there is not even a control table."""
    found = started("txns", "plan-txns", properties, tmp_path, 400)
    before = files(warehouse)

    told = plan(settings.parse(found.raw))

    assert files(warehouse) == before
    assert ("applier_plan-txns",) not in found.catalog.list_namespaces()
    assert (told.step, told.resolved_ts, told.waits) == (0, 0, "")
    assert all(table.is_new for table in told.tables)
    with found.running(spark) as pipeline:
        assert pipeline.step().moved
        assert pipeline.state.resolved_ts == told.watermark
        assert pipeline.state.checkpoint.counts["tables"] == sum(table.commits for table in told.tables)
        held = {TopicPartition(span.topic, span.partition): OffsetRange(span.start, span.end) for span in told.spans}
        assert all(
            held[place].start <= offset <= held[place].end for place, offset in pipeline.state.next_offsets.items()
        )

        # Somebody holds the changefeed now, and the plan of the step after is told all the same.
        before = files(warehouse)
        again = plan(settings.parse(found.raw))
        assert files(warehouse) == before
        assert (again.step, again.resolved_ts) == (pipeline.state.checkpoint.step, told.watermark)
        assert not any(table.is_new for table in again.tables)
        pipeline.step()
        assert pipeline.state.resolved_ts == again.watermark


@pytest.mark.usefixtures("spark")
def test_ddl_comes_with_what_would_be_decided(properties: dict[str, str], tmp_path: Path) -> None:
    """Policies and exclusions are those of the configuration, and the text holds each statement."""
    found = started("ddl", "plan-ddl", properties, tmp_path, 1000)
    found.raw["ddl"] = {"truncate-table": "stop", "rename-table": "ignore"}

    told = plan(settings.parse(found.raw))

    decisions = {kind: ddl.decision for ddl in told.ddl for kind in ddl.kinds}
    assert (decisions["truncate-table"], decisions["rename-table"]) == ("stop", "ignore")
    assert (decisions["create-table"], decisions["add-column"]) == ("apply", "apply")
    assert json.loads(told.to_json())["ddl"][0]["sql"] == told.ddl[0].sql

    found.raw["tables"]["include"] = ["nothing.*"]
    left_out = plan(settings.parse(found.raw))
    assert {ddl.reason for ddl in left_out.ddl if ddl.tables} == {"left out by tables.include"}
    assert not left_out.tables

    shown = io.StringIO()
    render(told, Console(file=shown, width=250))
    assert "configured under [ddl]" in shown.getvalue()
    assert f"to {told.watermark}" in shown.getvalue()
