"""Metadata columns say of each row what the recorded messages of Simple say of its last change, in every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ["_commit_ts", "_commit_time", "_op", "_source_table"]

VARIANTS = [
    ("simple", "simple-json"),
    ("canal-json", "canal-json-ext"),
    pytest.param("open", "open", marks=pytest.mark.soak),
    pytest.param("avro", "avro-before-value", marks=pytest.mark.soak),
    pytest.param("debezium", "debezium", marks=pytest.mark.soak),
]


def _last_changes() -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Of each row that has an `id`, by table and id, what its messages say of it, in the order of their commits."""
    messages = [json.loads(record["value"]) for record in recordings.records("txns", "simple-json")]
    rows = [message for message in messages if message.get("data") and "id" in message["data"]]
    for row in sorted(rows, key=lambda row: row["commitTs"]):
        table, ts = f"{row['database']}.{row['table']}", row["commitTs"]
        time = datetime.fromtimestamp((ts >> 18) / 1000, UTC)
        values = {"_commit_ts": ts, "_commit_time": time, "_op": row["type"].lower(), "_source_table": table}
        yield (table, row["data"]["id"]), values


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant"), VARIANTS)
def test_each_row_says_which_change_made_it(
    protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Whether messages are read one by one or as columns; the columns of upstream are those of TiDB beside them."""
    last = dict(_last_changes())
    state = recordings.expected("txns")[-1]
    compared = 0
    with replaying("txns", protocol, variant, lake, tmp_path) as found:
        found.raw["tables"]["*.*"] = {"metadata": COLUMNS}
        with found.running(spark) as pipeline:
            while pipeline.step(pipeline.ends()).moved:
                pass
        for text, table in state["tables"].items():
            rows = found.contents(TableName(*text.split(".")))
            assert rows is not None
            upstream = [{name: row[name] for name in row if name not in COLUMNS} for row in rows]
            assert expected.bag(upstream) == expected.bag(expected.rows(table)), text
            for row in rows:
                shown = {name: row[name] for name in COLUMNS}
                if (wanted := last.get((text, str(row.get("id"))))) is not None:
                    is_either = protocol in ("open", "avro") and shown["_op"] == "upsert"
                    wanted["_op"] = "upsert" if is_either else wanted["_op"]
                    assert shown == wanted, (text, row)
                    compared += 1
    assert compared > 50
