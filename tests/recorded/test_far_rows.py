"""Recorded changefeeds whose rows stay in Spark's tasks make the tables that upstream shows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.structures import ParameterSet

from applier.config import settings
from applier.consume.window_size import Limits
from applier.decode.protocols import build
from applier.pipeline.batches import stager
from applier.pipeline.batches.stager import StagerInTasks
from applier.pipeline.build import decoder_options
from applier.pipeline.scan.decode_task import DecodeTask
from tests.placing import place_by
from tests.recorded.test_protocols import STOPPED, UNTOLD, advance, cases, replaying, unexplained
from tests.replay import doubted, ends_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {("txns", "open-shanghai"), ("pk", "canal-json-raw-change")}
"""What `make test` runs; `make test-recorded` runs every variant."""


def variants() -> Iterator[ParameterSet]:
    """Those of `test_protocols`."""
    for case in cases():
        scenario, _, variant = case.values
        marks = () if (scenario, variant) in EVERY_TIME else pytest.mark.soak
        if (scenario, variant) not in STOPPED:
            yield pytest.param(*case.values, marks=marks)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all rows go from task to task, those of a table in several shares."""
    monkeypatch.setattr("applier.pipeline.build.DecodeTask", partial(DecodeTask, limits=Limits(piece_rows=8)))
    monkeypatch.setattr(stager, "LEAST_SHARE_BYTES", 200)
    monkeypatch.setattr(stager, "SHARE_BYTES", 1_000)
    place_by(monkeypatch, has_tasks=True, is_forced=True, staged_bytes=200)


@pytest.mark.parametrize(("scenario", "protocol", "variant"), list(variants()))
def test_tables_are_equal_where_tasks_stage_them(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """At the first and the last recorded resolved ts, with the long way between them in one go."""
    with replaying(scenario, protocol, variant, lake, tmp_path, f"far-{scenario}-{variant}") as found:
        found.raw["changefeed"]["on_table_error"] = "stop"
        states = list(ends_at(scenario, variant, build(protocol, decoder_options(settings.parse(found.raw)))))
        untold = UNTOLD.get((scenario, variant), ())
        with found.running(spark) as pipeline:
            for state, ends in (states[0], states[-1]):
                assert advance(pipeline, ends).error is None
                problems = [p for p in unexplained(found, state, protocol) if not p.startswith(untold)]
                assert problems == [], f"at resolved ts {state['resolved_ts']}"
            assert isinstance(pipeline._applier.stager, StagerInTasks)
            assert doubted(found, pipeline) == {}
