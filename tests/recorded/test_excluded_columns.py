"""Recorded changefeeds whose tables lack columns: the others are what SQL showed, in every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import SHAPED, replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EXCLUDED = frozenset({"msg", "bal", "upd", "img", "qty", "v"})
"""Columns of the tables of the scenario, none of which is of a key."""


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), SHAPED)
def test_tables_are_those_of_upstream_without_the_columns(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Whether messages are read one by one or as columns, in two processes; the key stays, and every row."""
    state = recordings.expected("txns")[-1]
    name = f"excluded-{variant}-{order}"
    with replaying("txns", protocol, variant, lake, tmp_path, name=name) as found:
        found.raw["changefeed"]["order"] = order
        found.raw["tables"]["*.*"] = {"columns": {"exclude": sorted(EXCLUDED)}}
        found.in_runs(spark, 2)
        compared = set[str]()
        for text, table in state["tables"].items():
            rows = found.contents(TableName(*text.split(".")))
            assert rows is not None
            assert expected.bag(rows) == expected.bag(expected.rows(table, without=EXCLUDED)), text
            compared |= EXCLUDED.intersection(column["name"] for column in table["columns"])
    assert compared == EXCLUDED
