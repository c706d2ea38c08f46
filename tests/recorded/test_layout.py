"""Recorded changefeeds into partitioned tables: the rows are those of upstream at every recorded resolved ts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import exactly
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.config import settings
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.pipeline.build import decoder_options
from applier.sink.format.layout import takes
from tests import recordings
from tests.recorded.test_protocols import advance, replaying, unexplained
from tests.replay import ends_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIRTUAL = "g_virtual"
"""A virtual column of the recordings, which no table has."""

WIDTHS = {"bucket": 3, "truncate": 2}


def layout(version: TableVersion) -> dict[str, Any]:
    """Partitions by every transform that a column takes, the last columns first as updates change them; three of them.

    Rows are sorted by the last column of the key, backwards.
    """
    by: dict[str, str] = {}
    for transform in ("hour", "truncate", "bucket", "month", "identity"):
        for column in reversed(version.columns):
            kind = column_arrow_type(version.name, column, TypeRules())
            # A long text or blob would make a name of a folder that no file system takes.
            is_long = transform == "identity" and (pa.types.is_string(kind) or pa.types.is_binary(kind))
            if not is_long and column.name not in by and takes(transform, kind) and column.name != VIRTUAL:
                width = f"{WIDTHS[transform]}, " if transform in WIDTHS else ""
                by[column.name] = f"{transform}({width}`{column.name}`)"
                break
    return {"partition_by": [*by.values()][:3], "sort_by": [f"`{name}` desc" for name in version.key[-1:]]}


def created(scenario: str) -> list[TableVersion]:
    """Each table as the first DDL of its name left it."""
    decoder = build("simple", DecoderOptions())
    events = (event for r in recordings.records(scenario, "simple-json") for event in decoder.decode(None, r["value"]))
    found: dict[TableName, TableVersion] = {}
    for event in events:
        if isinstance(event, SchemaChange) and event.after is not None:
            found.setdefault(event.after.name, event.after)
    return [*found.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", ["pk", *(pytest.param(each, marks=pytest.mark.soak) for each in ("types", "partition", "txns"))]
)
def test_partitioned_tables_are_equal_at_every_recorded_resolved_ts(
    scenario: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Every table of the feed is partitioned, by columns that updates change where there are any."""
    with replaying(scenario, "open", "open", lake, tmp_path) as found:
        found.raw["changefeed"] |= {"on_table_error": "stop", "name": f"layout-{scenario}"}
        found.prefix = f"layout_{scenario}"
        wanted = {exactly([version.name])[0]: layout(version) for version in created(scenario)}
        found.raw["tables"] |= {"route": f"{found.prefix}__{{database}}.{{table}}", **wanted}
        decoder = build("open", decoder_options(settings.parse(found.raw)))
        with found.running(spark) as pipeline:
            for state, ends in ends_at(scenario, "open", decoder):
                assert advance(pipeline, ends).error is None
                assert unexplained(found, state, "open") == [], f"at resolved ts {state['resolved_ts']}"
            specs = [len(writer.table.spec_json["fields"]) for writer in pipeline.targets.writers]

        assert specs
        assert all(specs)
