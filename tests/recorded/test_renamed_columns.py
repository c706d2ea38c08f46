"""Recorded changefeeds whose tables have columns of other names: what SQL showed, in every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import SHAPED, replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAMES = {"ID": "row_id", "msg": "message", "bal": "balance", "v": "value", "QTY": "quantity", "k": "key"}
"""Names of columns of the tables of the scenario, keys among them."""


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), SHAPED)
def test_tables_are_those_of_upstream_under_other_names(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Whether messages are read one by one or as columns, in two processes."""
    state = recordings.expected("txns")[-1]
    name = f"renamed-{variant}-{order}"
    with replaying("txns", protocol, variant, lake, tmp_path, name=name) as found:
        found.raw["changefeed"]["order"] = order
        found.raw["tables"]["*.*"] = {"columns": {"rename": NAMES}}
        found.in_runs(spark, 2)
        own = {column.lower(): new for column, new in NAMES.items()}
        compared = set[str]()
        for text, table in state["tables"].items():
            rows = found.contents(TableName(*text.split(".")))
            assert rows is not None
            wanted = [{own.get(key.lower(), key): cell for key, cell in row.items()} for row in expected.rows(table)]
            assert expected.bag(rows) == expected.bag(wanted), text
            compared |= {own[key] for column in table["columns"] if (key := column["name"].lower()) in own}
    assert len(compared) > 2
