"""Recorded changefeeds with a virtual generated column, whose table lacks it in every protocol that declares it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.table import TableName
from tests import recordings
from tests.recorded.test_protocols import replaying
from tests.replay import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GENERATED = TableName("types", "t_gen")


@pytest.mark.parametrize(
    ("protocol", "variant", "setting", "is_there"),
    [
        ("simple", "simple-json", "omit", False),
        ("open", "open", "null", True),
        ("avro", "avro-before-value", "omit", False),
        ("debezium", "debezium", "null", True),
        pytest.param("simple", "simple-json", "null", True, marks=pytest.mark.soak),
        pytest.param("open", "open", "omit", False, marks=pytest.mark.soak),
        pytest.param("avro", "avro-before-value", "null", True, marks=pytest.mark.soak),
        pytest.param("debezium", "debezium", "omit", False, marks=pytest.mark.soak),
    ],
)
def test_a_virtual_column_is_left_out_or_null(
    protocol: str,
    variant: str,
    setting: str,
    *,
    is_there: bool,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
) -> None:
    """The setting decides; the other columns of the table are what SQL showed."""
    with replaying("types", protocol, variant, lake, tmp_path) as found:
        found.raw["changefeed"]["name"] = f"{variant}-{setting}"
        found.raw["tables"] |= {"virtual_columns": setting, "include": [str(GENERATED)]}
        found.raw["tables"]["route"] = f"{variant.replace('-', '_')}_{setting}__{{database}}.{{table}}"
        found.prefix = f"{variant.replace('-', '_')}_{setting}"
        with found.running(spark) as pipeline:
            ends = pipeline.ends()
            while pipeline.step(ends).moved:
                pass
        rows = found.contents(GENERATED)

        assert rows
        assert {"g_virtual" in row for row in rows} == {is_there}
        last = recordings.expected("types")[-1]
        mine = {name: table for name, table in last["tables"].items() if name == str(GENERATED)}
        assert differences(found, {**last, "tables": mine}) == []
