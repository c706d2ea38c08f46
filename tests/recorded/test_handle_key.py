"""Recordings whose large rows were reduced to key columns: a named refusal, nothing overwritten by half a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.errors import IncompleteRow
from tests import recordings
from tests.replay import differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    (scenario, variant)
    for scenario in recordings.scenarios()
    for variant in recordings.variants(scenario, "simple-")
    if "handlekey" in variant
]


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_refused_by_name_and_nothing_overwritten(
    scenario: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The feed stops before the first reduced row, and the tables are what SQL showed at the watermark before it."""
    found = replay(scenario, variant, lake, tmp_path, "simple")
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        step = pipeline.step(ends)
        while step.moved:
            step = pipeline.step(ends)
        resolved_ts = pipeline.state.resolved_ts

    assert isinstance(step.error, IncompleteRow)
    assert "holds key columns only, because large-message-handle-option is handle-key-only" in step.error.what
    assert f"Cannot decode simple message at golden-{scenario}/" in step.error.what
    states = [state for state in recordings.expected(scenario) if state["resolved_ts"] <= resolved_ts]
    if states:
        assert differences(found, states[-1]) == []
    else:
        assert all(not found.contents(name) for name in found.tables())
