"""Debezium without DDL messages, as TiCDC v8.5.0 to v8.5.7 sends it: rows of former columns from a late partition."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.message import TopicPartition
from applier.config import settings as config
from applier.pipeline.build import assembled
from tests.spark.feeds import read
from tests.unit.decode.debezium.test_debezium import ID, TS, field, value

pytestmark = pytest.mark.spark

A = field("a", "string", tidb_type="varchar")
B = field("b", "string", tidb_type="varchar", default="none")
NUMBER = field("b", "int64", tidb_type="bigint")


def line(partition: int, offset: int, table: str, key: int, *fields: Mapping[str, Any], at: int) -> str:
    """An insert as a line of an archive, `at` so many ticks behind the first commit ts."""
    after = {"id": key, **{str(each["field"]): "12" if each["type"] == "string" else 7 for each in fields}}
    place = {"db": "shop", "table": table, "commit_ts": TS + 1 + at, "version": "2.4.0.Final"}
    row = value({"source": place, "op": "c", "before": None, "after": after}, ID, *map(dict, fields))
    name = json.dumps({"payload": {"id": key}, "schema": {"type": "struct"}}, separators=(",", ":")).encode()
    return json.dumps(
        {"topic": "shop", "partition": partition, "offset": offset, "timestamp": 1_700_000_000_000}
        | {"key": base64.b64encode(name).decode(), "value": base64.b64encode(row).decode()}
    )


def test_rows_of_former_columns_take_no_value_away(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    """One table gets them a step later, one in the same step; one has another type under a name that it had before."""
    lines = [
        line(0, 0, "late", 1, A, at=0),
        line(0, 1, "mixed", 1, A, at=0),
        line(0, 2, "retyped", 1, NUMBER, at=0),
        line(0, 3, "late", 3, A, B, at=5),
        line(0, 4, "mixed", 2, A, at=2),
        line(0, 5, "mixed", 3, A, B, at=5),
        line(0, 6, "retyped", 2, B, at=5),
        line(1, 0, "late", 2, A, at=2),
        line(0, 7, "late", 4, A, B, at=6),
    ]
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "feed.jsonl").write_text("\n".join(lines) + "\n")
    raw = {
        "changefeed": {"name": "lagging", "protocol": "debezium", "order": "offset", "start": "midstream"},
        "source": {"archive": str(tmp_path / "feed")},
        "catalog": {
            "name": "lake",
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{warehouse}/catalog.db",
            "warehouse": f"{warehouse}/tables",
        },
        "tables": {"route": "lagging__{database}.{table}"},
    }
    with assembled(config.parse(raw), spark=spark) as pipeline:
        for first, second in ((3, 0), (7, 0), (7, 1), (8, 1)):
            assert pipeline.step({TopicPartition("shop", 0): first, TopicPartition("shop", 1): second}).error is None
        parked = {name.table: pipeline.state.completeness[name].reason.detail for name in pipeline.state.parked}

    def held(table: str) -> dict[int, Any]:
        return {row["id"]: row["b"] for row in read(spark, ("lagging__shop", table)).to_pylist()}

    assert held("late") == {1: "none", 2: "none", 3: "12", 4: "12"}
    assert held("mixed") == {1: "none", 2: "none", 3: "12"}
    assert held("retyped") == {1: 7}
    assert list(parked) == ["retyped"]
    assert parked["retyped"].startswith("Column b of table shop.retyped is bigint in some rows and varchar in others")
