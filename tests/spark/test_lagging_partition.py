"""Debezium without DDL messages, as TiCDC v8.5.0 to v8.5.7 sends it: rows of former columns from a late partition."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
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
INT = field("b", "int32", tidb_type="int")


_VALUES = {"string": "12", "int64": 1 << 40, "int32": 7}


def line(partition: int, offset: int, table: str, key: int, *fields: Mapping[str, Any], at: int) -> str:
    """An insert as a line of an archive, `at` so many ticks behind the first commit ts."""
    after = {"id": key, **{str(each["field"]): _VALUES[str(each["type"])] for each in fields}}
    place = {"db": "shop", "table": table, "commit_ts": TS + 1 + at, "version": "2.4.0.Final"}
    row = value({"source": place, "op": "c", "before": None, "after": after}, ID, *map(dict, fields))
    name = json.dumps({"payload": {"id": key}, "schema": {"type": "struct"}}, separators=(",", ":")).encode()
    return json.dumps(
        {"topic": "shop", "partition": partition, "offset": offset, "timestamp": 1_700_000_000_000}
        | {"key": base64.b64encode(name).decode(), "value": base64.b64encode(row).decode()}
    )


def stepped(
    name: str,
    warehouse: Path,
    tmp_path: Path,
    lines: Sequence[str],
    ends: Sequence[tuple[int, int]],
) -> dict[str, str]:
    """Apply lines in steps that end at some offsets of both partitions; why tables are parked then."""
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "feed.jsonl").write_text("\n".join(lines) + "\n")
    raw = {
        "changefeed": {"name": name, "protocol": "debezium", "order": "offset", "start": "midstream"},
        "source": {"archive": str(tmp_path / "feed")},
        "catalog": {
            "name": "lake",
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{warehouse}/catalog.db",
            "warehouse": f"{warehouse}/tables",
        },
        "tables": {"route": f"{name}__{{database}}.{{table}}"},
    }
    with assembled(config.parse(raw)) as pipeline:
        for first, second in ends:
            assert pipeline.step({TopicPartition("shop", 0): first, TopicPartition("shop", 1): second}).error is None
        return {name.table: pipeline.state.completeness[name].reason.detail for name in pipeline.state.parked}


def held(spark: SparkSession, table: str, name: str = "lagging") -> dict[int, Any]:
    """Column b by key."""
    return {row["id"]: row["b"] for row in read(spark, (f"{name}__shop", table)).to_pylist()}


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
    parked = stepped("lagging", warehouse, tmp_path, lines, ((3, 0), (7, 0), (7, 1), (8, 1)))

    assert held(spark, "late") == {1: "none", 2: "none", 3: "12", 4: "12"}
    assert held(spark, "mixed") == {1: "none", 2: "none", 3: "12"}
    assert held(spark, "retyped") == {1: 1 << 40}
    assert list(parked) == ["retyped"]
    assert parked["retyped"].startswith("Column b of table shop.retyped is bigint in some rows and varchar in others")


def test_a_wider_type_is_followed_in_any_order_of_arrival(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    """One table has it in its first step, one in a later step together with rows of the former one, one before them."""
    lines = [
        line(0, 0, "began", 1, INT, at=0),
        line(0, 1, "later", 1, INT, at=0),
        line(0, 2, "lags", 1, NUMBER, at=9),
        line(1, 0, "began", 2, NUMBER, at=9),
        line(0, 3, "later", 2, INT, at=1),
        line(1, 1, "later", 3, NUMBER, at=9),
        line(1, 2, "lags", 2, INT, at=1),
        line(0, 4, "began", 3, INT, at=1),
    ]
    assert stepped("widened", warehouse, tmp_path, lines, ((3, 1), (5, 3))) == {}

    assert held(spark, "began", "widened") == {1: 7, 2: 1 << 40, 3: 7}
    assert held(spark, "later", "widened") == {1: 7, 2: 7, 3: 1 << 40}
    assert held(spark, "lags", "widened") == {1: 1 << 40, 2: 7}
