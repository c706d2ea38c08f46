"""Recorded Simple changefeeds become tables that are equal to TiDB's at every recorded resolved ts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.structures import ParameterSet

from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from tests import recordings
from tests.replay import differences, doubted, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {
    "types": ("avro-claimcheck", "json-checksum-shanghai", "json-column-selector"),
    "pk": ("avro",),
    "txns": (),
    "ddl": (),
    "partition": ("json",),
    "workload": (),
}
"""What `make test` runs of these scenarios; `make test-recorded` runs all. Forms of rows are in `types`.

`ddl` is among `test_protocols`, and comes with a topic for each table from a real broker.
"""


def cases() -> Iterator[ParameterSet]:
    """Scenario and variant of every recording that holds its rows."""
    for scenario in ("types", "pk", "txns", "ddl", "partition", "workload"):
        for variant in recordings.variants(scenario, "simple-"):
            if "handlekey" not in variant:
                form = variant.removeprefix("simple-")
                often = form in EVERY_TIME[scenario]
                yield pytest.param(scenario, variant, marks=() if often else pytest.mark.soak)


@pytest.mark.parametrize(("scenario", "variant"), list(cases()))
def test_equal_at_every_recorded_resolved_ts(
    scenario: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Every cell of every table is what SQL showed at that resolved ts."""
    found = replay(scenario, variant, lake, tmp_path, "simple")
    decoder = build("simple", DecoderOptions(claim_check=found.raw["changefeed"].get("claim_check")))
    states = 0
    with found.running(spark) as pipeline:
        for state, ends in ends_at(scenario, variant, decoder):
            step = pipeline.step(ends)
            while step.moved:
                step = pipeline.step(ends)
            assert step.error is None
            assert differences(found, state) == [], f"at resolved ts {state['resolved_ts']}"
            assert pipeline.state.resolved_ts >= state["resolved_ts"]
            states += 1
        assert doubted(found, pipeline) == {}

    assert states == len(recordings.expected(scenario))
