"""Recorded changefeeds in Avro, framed as TiCDC frames them for AWS Glue Schema Registry, become the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.config.registry import RegistrySection
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import IncompleteRow
from tests import recordings
from tests.recorded.test_protocols import STOPPED, advance, as_plain, registry_of, replaying, unexplained
from tests.replay import doubted, ends_at
from tests.services.glue_registry import RegistryInGlue, glue_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {("pk", "avro-before-value")}
VARIANTS = ("avro-precise", "avro-string-checksum", "avro-before-value", "debezium-avro")


@pytest.fixture(scope="module")
def glue() -> Iterator[RegistryInGlue]:
    """One registry for the module: ids are its own, and names those of topics."""
    with glue_registry() as running:
        yield running


@pytest.mark.parametrize(
    ("scenario", "variant"),
    [
        pytest.param(scenario, variant, marks=() if (scenario, variant) in EVERY_TIME else pytest.mark.soak)
        for scenario in ("types", "pk", "txns", "ddl", "partition")
        for variant in VARIANTS
    ],
)
def test_equal_at_every_recorded_resolved_ts(
    scenario: str, variant: str, glue: RegistryInGlue, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """As with Confluent's framing, of whose recordings these are, although no id shows which schema is newer."""
    protocol = "debezium-avro" if variant == "debezium-avro" else "avro"
    zone = recordings.config(scenario, variant)["server_time_zone"]
    name = f"{scenario}-{variant}-glue"
    with (
        replaying(scenario, protocol, variant, lake, tmp_path, name) as found,
        registry_of(scenario, variant) as url,
    ):
        found.raw["changefeed"]["on_table_error"] = "stop"
        found.raw["source"]["archive"] = str(glue.archive(scenario, variant, tmp_path))
        found.raw["registry"] = dict(glue.section)
        confluent = build(protocol, DecoderOptions(timezone=zone, registry=RegistrySection(url=url)))
        states = 0
        with found.running(spark) as pipeline:
            for state, ends in ends_at(scenario, variant, confluent):
                error = advance(pipeline, ends).error
                if error is not None:
                    assert (scenario, variant) in STOPPED
                    assert isinstance(error, IncompleteRow)
                    return
                assert unexplained(found, state, protocol) == [], f"at resolved ts {state['resolved_ts']}"
                states += 1
            assert doubted(found, pipeline) == {}

        assert states == len(recordings.expected(scenario))
        assert (scenario, variant) not in STOPPED
        assert glue.glue.asked["GetSchemaVersion"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("scenario", ["types", "pk", "txns"])
def test_equal_at_the_end_in_offset_order(
    scenario: str, glue: RegistryInGlue, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Without watermarks and DDL as well."""
    variant = "avro-plain"
    with replaying(scenario, "avro", variant, lake, tmp_path, f"{scenario}-{variant}-glue") as found:
        found.raw["changefeed"] |= {"order": "offset", "on_table_error": "stop"}
        found.raw["source"]["archive"] = str(glue.archive(scenario, variant, tmp_path))
        found.raw["registry"] = dict(glue.section)
        with found.running(spark) as pipeline:
            error = advance(pipeline, pipeline.ends()).error
        if scenario != "types":
            assert isinstance(error, IncompleteRow)  # As those of `STOPPED`.
            return
        assert error is None
        assert unexplained(found, as_plain(recordings.expected(scenario)[-1]), "avro") == []
