"""Recordings whose large rows were reduced to key columns: a named refusal, or rows that TiDB has as of then."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.errors import IncompleteRow
from applier.pipeline import build
from applier.pipeline.scan.reduced_rows import ReducedRows
from tests import expected, recordings
from tests.fuzz.corpus import protocol_of
from tests.past import Past
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


@pytest.mark.parametrize("order", ["resolved", pytest.param("offset", marks=pytest.mark.soak)])
@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_rows_that_tidb_shows_as_of_their_commit_ts_make_all_tables_equal(
    scenario: str,
    variant: str,
    order: str,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With restarts between steps, the tables are what SQL showed; TiDB stands for the recording of whole rows."""
    past = Past.recorded(scenario)
    monkeypatch.setattr(build, "ReducedRows", partial(ReducedRows, opened=past.opened))
    name = f"asks-{order}-{scenario}-{variant}"
    found = replay(scenario, variant, lake, tmp_path, protocol_of(variant), name=name, order=order)
    found.raw["upstream"] = {"url": "mysql://reader@tidb:4000"}
    found.raw["source"]["messages_per_step"] = 300
    has_moved = True
    while has_moved:
        with found.running(spark) as pipeline:
            steps = [pipeline.step(pipeline.ends()) for _ in range(4)]
            assert not pipeline.state.parked
        assert [step.error for step in steps] == [None] * len(steps)
        has_moved = any(step.moved for step in steps)

    assert differences(found, recordings.expected(scenario)[-1]) == []
    assert past.asked
    assert past.asked <= set(LARGE[scenario])
