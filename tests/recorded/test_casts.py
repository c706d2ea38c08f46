"""Casts by type and by column: each cell of the recorded types is what plain Python makes of what SQL showed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

VARIANTS = [
    ("simple", "simple-json", "resolved"),
    ("open", "open", "resolved"),
    ("canal-json", "canal-json-ext", "offset"),
    pytest.param("simple", "simple-avro", "offset", marks=pytest.mark.soak),
    pytest.param("canal-json", "canal-json-content-compatible", "resolved", marks=pytest.mark.soak),
    pytest.param("avro", "avro-precise", "resolved", marks=pytest.mark.soak),
    ("debezium", "debezium", "resolved"),
]

TYPES = {"bigint unsigned": "string", "enum": "int", "time": "long", "date": "timestamp"}
CASTS = {
    "ID": "string",
    "c_set": "long",
    "c_big": "decimal(38,2)",
    "c_int": "string",
    "c_tiny": "double",
    "d_20_4": "string",
    "d_10_0": "long",
    "b1": "boolean",
    "b10": "int",
    "c_float": "double",
    "c_year": "string",
    "c_dt6": "timestamptz",
    "c_ts3": "timestamp",
}
LOST = {"debezium": frozenset({"t_dec", "t_def"})}
"""Tables with values that a protocol does not carry: decimals as doubles, and defaults in the place of NULL."""

TABLES = ("t_bit", "t_dec", "t_enum", "t_enum_zero", "t_int", "t_real", "t_time", "t_def")


def _microseconds(text: str) -> int:
    match = re.fullmatch(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?", text)
    assert match is not None
    span = timedelta(hours=int(match[2]), minutes=int(match[3]), seconds=int(match[4]))
    span += timedelta(microseconds=int((match[5] or "").ljust(6, "0")))
    return (-1 if match[1] else 1) * (span // timedelta(microseconds=1))


def _members(mysql_type: str) -> list[str]:
    return re.findall("'([^']*)'", mysql_type)


_BY_COLUMN: dict[str, Callable[[Any], Any]] = {
    "id": str,
    "c_big": lambda number: Decimal(f"{number}.00"),
    "c_int": str,
    "c_tiny": float,
    "d_20_4": "{:.4f}".format,
    "d_10_0": int,
    "b1": bool,
    "c_year": str,
    "c_dt6": lambda moment: moment.replace(tzinfo=UTC),
    "c_ts3": lambda moment: moment.replace(tzinfo=None),
}


def _wanted(cell: Any, name: str, mysql_type: str) -> Any:
    """What a cell as SQL showed it becomes."""
    if cell is None:
        return None
    if name == "c_set":
        return sum(1 << _members(mysql_type).index(label) for label in cell.split(",") if label)
    if mysql_type.startswith("enum"):
        return _members(mysql_type).index(cell) + 1 if cell else 0
    if mysql_type.startswith("time") and not mysql_type.startswith("timestamp"):
        return _microseconds(cell)
    if mysql_type == "date":
        assert isinstance(cell, date)
        return datetime(cell.year, cell.month, cell.day)
    if mysql_type.startswith("bigint") and mysql_type.endswith("unsigned"):
        return str(cell)
    return _BY_COLUMN.get(name, lambda same: same)(cell)


def _cast(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    kinds = {column["name"]: column["mysql_type"] for column in table["columns"]}
    return [{name: _wanted(cell, name, kinds[name]) for name, cell in row.items()} for row in expected.rows(table)]


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), VARIANTS)
def test_each_cell_is_cast(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The key, too; the applier is started again in the middle."""
    state = recordings.expected("types")[-1]
    with replaying("types", protocol, variant, lake, tmp_path, name=f"casts-{variant}-{order}") as found:
        found.raw["tables"]["types.*"] = {"types": TYPES, "columns": {"cast": CASTS}}
        found.raw["changefeed"].update(order=order, on_table_error="stop")
        for parts in (2, 1):
            with found.running(spark) as pipeline:
                ends = {place: end // parts for place, end in pipeline.ends().items()}
                while (step := pipeline.step(ends)).moved:
                    pass
                assert step.error is None
        compared = 0
        for short in TABLES:
            name = TableName("types", short)
            if short in LOST.get(protocol, ()) or name in found.not_replicated():
                continue
            rows = found.contents(name)
            assert rows is not None
            table = state["tables"][f"types.{short}"]
            assert expected.bag(rows) == expected.bag(_cast(table)), short
            compared += len(rows)
    assert compared > 30
