"""What a running process shows of itself is what `applier status` finds in the catalog."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.commands.status.command import status
from applier.config import settings
from applier.pipeline.step import Pipeline
from applier.watch import board
from applier.watch.report import StatusReport
from tests.replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_THE_PROCESS = ("now", "lag_seconds", "steps", "explanation", "max_lag_seconds", "holder")
"""Keys that the process knows better, or at another moment."""


@pytest.mark.parametrize(
    ("scenario", "variant", "messages"),
    [
        ("partition", "open", 10),
        pytest.param("ddl", "simple-json", 40, marks=pytest.mark.soak),
        pytest.param("ddl", "simple-json", 10, marks=pytest.mark.soak),
        pytest.param("workload", "canal-json-ext", 150, marks=pytest.mark.soak),
    ],
)
def test_the_page_knows_what_the_catalog_shows(
    scenario: str,
    variant: str,
    messages: int,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every few steps, after restarts at random places, with tables that come, go, and change their names."""
    monkeypatch.setattr(board, "_READ_SECONDS", 0.0)
    protocol = "canal-json" if variant.startswith("canal") else variant.partition("-")[0]
    found = replay(scenario, variant, lake, tmp_path, protocol, name=f"watch_{scenario}")
    found.raw["source"]["messages_per_step"] = messages
    draw, is_over, compared = random.Random(20), False, 0
    while not is_over:
        with found.running(spark) as pipeline:
            shown = board.Board(pipeline.config)
            shown.begin(pipeline)
            _compare(shown, found.raw, pipeline)
            for _ in range(draw.randrange(2, 9)):
                step = pipeline.step()
                shown.take(pipeline, step)
                if draw.random() < 0.5 or (step.complete and not step.moved):
                    _compare(shown, found.raw, pipeline)
                    compared += 1
                if is_over := step.complete and not step.moved:
                    break
    assert compared > 3


def _compare(shown: board.Board, raw: dict[str, Any], pipeline: Pipeline) -> None:
    by_process = shown.view().report
    by_catalog = status(settings.parse(raw), now_ms=pipeline.state.checkpoint.written_at)
    assert _facts(by_process) == _facts(by_catalog)


def _facts(report: StatusReport) -> dict[str, Any]:
    facts = asdict(report)
    for table in facts["tables"]:
        del table["lag_seconds"], table["commit_age_seconds"]
    for table in facts["dropped"] or ():
        del table["rows"], table["files"]  # A process that has dropped a table does not look at it again.
    # The two look at clocks of their own, so the age of the tables and what it makes of them differ.
    del facts["pace"]
    for kind in ("stale", "notes"):
        facts[kind] = [found for found in facts[kind] if not found["because"].startswith("The tables are")]
    return {key: value for key, value in facts.items() if key not in OF_THE_PROCESS}
