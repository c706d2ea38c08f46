"""Recorded changefeeds of every protocol that carries watermarks become tables equal to TiDB's, up to known losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.structures import ParameterSet

from applier import config as settings
from applier.assembly import decoder_options
from applier.changefeed.message import TopicPartition
from applier.decode.protocols import build
from applier.errors import IncompleteRow
from applier.pipeline import Pipeline, Step
from tests import recordings
from tests.fake_registry import Answer, fake_registry
from tests.replay import Replay, differences, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {
    "open": ("types", "pk", "ddl"),
    "open-shanghai": ("txns",),
    "canal-json-ext": ("types", "pk", "ddl"),
    "canal-json-claimcheck-lz4": ("txns",),
    "canal-json-raw-change": ("pk",),
    "avro-before-value": ("types", "pk", "txns"),
    "avro-precise": ("txns",),
    "debezium": ("txns",),
    "debezium-avro": ("pk", "txns"),
}
"""What `make test` runs; `make soak` runs every variant."""

FAMILIES = (
    ("open", "open"),
    ("canal-json", "canal-json-"),
    ("avro", "avro-precise"),
    ("avro", "avro-string"),
    ("avro", "avro-before"),
    ("debezium", "debezium"),
    ("debezium-avro", "debezium-avro"),
)


def cases() -> Iterator[ParameterSet]:
    """Scenario, protocol and variant of every recording with watermarks that holds its rows."""
    for protocol, prefix in FAMILIES:
        for scenario in ("types", "pk", "txns", "ddl", "partition", "workload"):
            for variant in recordings.variants(scenario, prefix):
                is_other = protocol == "debezium" and variant == "debezium-avro"
                if is_other or "handlekey" in variant or "plain" in variant:
                    continue
                often = scenario in EVERY_TIME.get(variant, ())
                yield pytest.param(scenario, protocol, variant, marks=() if often else pytest.mark.soak)


@contextmanager
def registry_of(scenario: str, variant: str) -> Iterator[str]:
    """Address of a registry that holds what the recorded one held."""
    with fake_registry() as registry:
        for entry in recordings.registry(scenario, variant):
            registry.on(f"/schemas/ids/{entry['id']}", Answer(200, {"schema": entry["schema"]}))
        yield registry.url


@contextmanager
def replaying(scenario: str, protocol: str, variant: str, lake: dict[str, str], folder: Path) -> Iterator[Replay]:
    """A replay with all that its protocol needs."""
    zone = recordings.config(scenario, variant)["server_time_zone"]
    found = replay(scenario, variant, lake, folder, protocol, timezone=zone)
    if "avro" not in protocol:
        yield found
        return
    with registry_of(scenario, variant) as url:
        found.raw["registry"] = {"url": url}
        yield found


UNNAMED_DELETES = {
    (scenario, variant) for scenario in ("pk", "txns") for variant in ("avro-precise", "avro-string-checksum")
}
"""Avro without before-values on tables with only a unique key: a delete there names no row, so the feed stops."""


def advance(pipeline: Pipeline, ends: Mapping[TopicPartition, int]) -> Step:
    """Step as far as the ends allow."""
    while True:
        step = pipeline.step(ends)
        if not step.moved:
            return step


@pytest.mark.parametrize(("scenario", "protocol", "variant"), list(cases()))
def test_equal_at_every_recorded_resolved_ts(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Every cell of every table is what SQL showed at that resolved ts, but for what the protocol cannot carry."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        decoder = build(protocol, decoder_options(settings.parse(found.raw)))
        states = 0
        with found.running(spark) as pipeline:
            for state, ends in ends_at(scenario, variant, decoder):
                error = advance(pipeline, ends).error
                if error is not None:
                    assert (scenario, variant) in UNNAMED_DELETES
                    assert isinstance(error, IncompleteRow)
                    return
                assert differences(found, state) == [], f"at resolved ts {state['resolved_ts']}"
                states += 1

        assert states == len(recordings.expected(scenario))
        assert (scenario, variant) not in UNNAMED_DELETES


@pytest.mark.parametrize(
    ("scenario", "protocol", "variant"),
    [
        ("types", "canal-json", "canal-json"),
        ("txns", "canal-json", "canal-json"),
        ("ddl", "canal-json", "canal-json"),
        ("txns", "debezium", "debezium-plain"),
    ],
)
def test_equal_at_the_end_in_offset_order(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A feed without watermarks reaches the contents of its end, once its order is said to be by offset."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        found.raw["changefeed"]["order"] = "offset"
        with found.running(spark) as pipeline:
            error = advance(pipeline, pipeline.ends()).error
            assert error is None
            assert pipeline.state.resolved_ts == 0

        assert differences(found, recordings.expected(scenario)[-1]) == []
