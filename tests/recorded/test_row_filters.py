"""Recorded changefeeds whose tables have a filter: they hold the rows of SQL that it admits, in every protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import SHAPED, replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FILTERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    "bank.orders": (
        "qty >= 40 and not (sku in ('s1', 's28'))",
        lambda row: row["qty"] is not None and row["qty"] >= 40 and row["sku"] not in (None, "s1", "s28"),
    ),
    "bank.accounts": (
        "bal < 50000.5 or owner is null",
        lambda row: row["owner"] is None or (row["bal"] is not None and row["bal"] < Decimal("50000.5")),
    ),
    "audit.log": (
        "D > '2030-06-01' and d <= '2070-01-01'",
        lambda row: row["d"] is not None and date(2030, 6, 1) < row["d"] <= date(2070, 1, 1),
    ),
    "bank.items": (
        "stock > 9223372036854775807",
        lambda row: row["stock"] is not None and row["stock"] > 2**63 - 1,
    ),
}
"""Each with the same in Python."""


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), SHAPED)
def test_tables_hold_the_rows_that_their_filter_admits(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Rows come and go by updates, in three processes; tables without a filter hold all."""
    state = recordings.expected("txns")[-1]
    name = f"filtered-rows-{variant}-{order}"
    with replaying("txns", protocol, variant, lake, tmp_path, name=name) as found:
        found.raw["changefeed"]["order"] = order
        found.raw["tables"] |= {table: {"where": text} for table, (text, _) in FILTERS.items()}
        found.in_runs(spark, 3)
        for text, table in state["tables"].items():
            rows, every = found.contents(TableName(*text.split("."))), expected.rows(table)
            _, admits = FILTERS.get(text, ("", lambda _: True))
            wanted = [row for row in every if admits(row)]
            assert rows is not None
            assert expected.bag(rows) == expected.bag(wanted), text
            assert text not in FILTERS or 0 < len(wanted) < len(every)
