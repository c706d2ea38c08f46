"""Recordings whose large rows were reduced to key columns: a named refusal, nothing overwritten by half a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.errors import IncompleteRow
from tests import expected, recordings
from tests.fuzz.corpus import protocol_of
from tests.replay import differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {("types", "simple-json-handlekey-snappy"), ("txns", "canal-json-handlekey")}
"""What `make test` runs; `make test-recorded` runs all."""

CASES = [
    pytest.param(scenario, variant, marks=() if (scenario, variant) in EVERY_TIME else pytest.mark.soak)
    for scenario in recordings.scenarios()
    for variant in recordings.variants(scenario)
    if "handlekey" in variant
]
LARGE = {"types": ("types.t_large", "types.t_bin"), "txns": ("audit.log",)}
"""Tables whose rows were too large."""


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_refused_by_name_and_nothing_overwritten(
    scenario: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A run that stops ends before the first reduced row, with what SQL showed at the watermark before it.

    A run that parks leaves the tables of such rows as they were, and applies all others to the end of the feed.
    """
    protocol = protocol_of(variant)
    found = replay(scenario, variant, lake, tmp_path, protocol, on_table_error="stop")
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        step = pipeline.step(ends)
        while step.moved:
            step = pipeline.step(ends)
        resolved_ts = pipeline.state.resolved_ts

    assert isinstance(step.error, IncompleteRow)
    assert "holds key columns only, because large-message-handle-option is handle-key-only" in step.error.what
    assert f"Cannot decode {protocol} message at golden-{scenario}/" in step.error.what
    states = [state for state in recordings.expected(scenario) if state["resolved_ts"] <= resolved_ts]
    if states:
        assert differences(found, states[-1]) == []
    else:
        assert all(not found.contents(name) for name in found.tables())

    before = {name: found.contents(expected.name_of(name)) or [] for name in LARGE[scenario]}
    found.raw["changefeed"]["on_table_error"] = "park"
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        while (step := pipeline.step(ends)).moved:
            pass
        parked = {str(name): known for name, known in pipeline.state.completeness.items() if known.is_parked}
    assert step.error is None
    assert parked
    assert parked.keys() <= before.keys()
    for name, known in parked.items():
        assert "holds key columns only, because large-message-handle-option is handle-key-only" in known.reason.detail
        assert found.contents(expected.name_of(name)) == before[name]
    problems = differences(found, recordings.expected(scenario)[-1])
    assert [line for line in problems if not line.startswith(tuple(parked))] == []


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_reduced_rows_of_tables_that_are_left_out_stop_nothing(
    scenario: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """With their tables out of `tables.include` the feed is applied to its end, and all other tables are exact."""
    found = replay(scenario, variant, lake, tmp_path, protocol_of(variant), name=f"without-{scenario}-{variant}")
    found.raw["tables"]["include"] = ["*.*", *(f"!{name}" for name in LARGE[scenario])]
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        step = pipeline.step(ends)
        while step.moved:
            assert step.error is None
            step = pipeline.step(ends)

    missing = [f"{name} is missing" for name in LARGE[scenario]]
    assert sorted(differences(found, recordings.expected(scenario)[-1])) == sorted(missing)
