"""Feeds with options that TiCDC got lately: routed names, updates of some columns left out, active-active tables."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

from applier.changefeed.table import TableName
from tests.handmade import Canal, Change, Columns
from tests.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTED, ACTIVE = TableName("archive", "sales_orders"), TableName("archive", "active")


def test_tables_have_the_names_and_values_of_the_messages(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A column whose updates were left out has its value at the next other update; an active-active table is parked."""
    wire = Canal()
    wire.of = Columns("archive", "id")
    order = ["v", "seen"]
    row = {"id": 1, "v": "a", "seen": "1"}
    messages = [
        wire.ddl("CREATE DATABASE `archive`", 10 << 18, "QUERY", "", ()),
        wire.ddl(
            "CREATE TABLE `archive`.`sales_orders` (`id` INT PRIMARY KEY, `v` VARCHAR(9), `seen` VARCHAR(9))",
            11 << 18,
            "CREATE",
            "sales_orders",
            (),
        ),
        wire.ddl(
            "CREATE TABLE `archive`.`active` (`id` INT PRIMARY KEY) ACTIVE_ACTIVE = 'ON' SOFTDELETE RETENTION 7 DAY",
            12 << 18,
            "CREATE",
            "active",
            (),
        ),
        wire.row(Change("sales_orders", order, None, row), 13 << 18),
        wire.row(Change("sales_orders", order, row | {"seen": "7"}, row | {"seen": "8", "v": "b"}), 14 << 18),
        wire.row(
            Change(
                "active",
                ["_tidb_origin_ts", "_tidb_softdelete_time"],
                None,
                {"id": 1, "_tidb_origin_ts": None, "_tidb_softdelete_time": None},
            ),
            15 << 18,
        ),
        wire.watermark(16 << 18),
    ]
    path = tmp_path / "feed.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for offset, message in enumerate(messages):
            key, value = (None if part is None else base64.b64encode(part).decode() for part in message)
            place = {"topic": "sales_orders", "partition": 0, "offset": offset, "timestamp": 1}
            file.write(json.dumps({**place, "key": key, "value": value, "headers": []}) + "\n")
    raw = {
        "changefeed": {"name": "newer", "protocol": "canal-json"},
        "source": {"archive": str(path)},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": "newer__{database}.{table}"},
    }
    found = Replay("", "", "newer", lake, raw)
    with found.running(spark) as pipeline:
        while (step := pipeline.step(pipeline.ends())).moved:
            assert step.error is None
        parked = {name: pipeline.state.completeness[name].reason.detail for name in pipeline.state.parked}

    assert found.contents(ROUTED) == [{"id": 1, "v": "b", "seen": "8"}]
    assert parked.keys() == {ACTIVE}, parked
    assert "Cannot read a DDL" in parked[ACTIVE], parked
