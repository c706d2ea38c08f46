"""Recorded changefeeds whose deletes are soft: each deleted row stays as its last message showed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests import expected, recordings
from tests.recorded.test_protocols import replaying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

VARIANTS = [
    ("simple", "simple-json", "resolved"),
    ("canal-json", "canal-json-ext", "offset"),
    pytest.param("canal-json", "canal-json-ext", "resolved", marks=pytest.mark.soak),
    pytest.param("open", "open", "resolved", marks=pytest.mark.soak),
    pytest.param("open", "open", "offset", marks=pytest.mark.soak),
    pytest.param("debezium", "debezium", "resolved", marks=pytest.mark.soak),
]

_COMPARED = (int, str, float)
"""Types of values that Simple writes as their own text."""


def _deleted(table: str, key: tuple[str, ...]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """The rows of a table whose last message is a delete, by the texts of their key, with the time of it."""
    found = dict[tuple[str, ...], Mapping[str, Any] | None]()
    messages = [json.loads(record["value"]) for record in recordings.records("txns", "simple-json")]
    changes = [message for message in messages if "schemaVersion" in message]
    rows = [change for change in changes if f"{change['database']}.{change['table']}" == table]
    for row in sorted(rows, key=lambda row: (row["commitTs"], row["type"] != "DELETE")):
        image = row["old"] if row["type"] == "DELETE" else row["data"]
        time = datetime.fromtimestamp((row["commitTs"] >> 18) / 1000, UTC)
        found[tuple(image[name] for name in key)] = {**image, "_deleted_at": time} if row["type"] == "DELETE" else None
    return {key: row for key, row in found.items() if row is not None}


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), VARIANTS)
def test_deleted_rows_stay_with_their_last_values(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Also one that came and went within a step; a key that comes again lives, and living rows are those of SQL."""
    lines = recordings.expected("txns")
    with replaying("txns", protocol, variant, lake, tmp_path, name=f"soft-{variant}-{order}") as found:
        found.raw["changefeed"]["order"] = order
        found.raw["tables"]["*.*"] = {"deletes": "soft", "metadata": ["_op"]}
        found.in_runs(spark, 3)
        gone = 0
        for name, version in expected.tables(lines).items():
            rows = found.contents(name)
            assert rows is not None
            living = [
                {column: row[column] for column in row if column not in ("_deleted_at", "_op")}
                for row in rows
                if row["_deleted_at"] is None
            ]
            assert expected.bag(living) == expected.bag(expected.rows(lines[-1]["tables"][str(name)])), name
            deleted = _deleted(str(name), version.key)
            dead = [row for row in rows if row["_deleted_at"] is not None]
            assert {tuple(str(row[column]) for column in version.key) for row in dead} == deleted.keys(), name
            for row in dead:
                wanted = deleted[tuple(str(row[column]) for column in version.key)]
                assert (row["_deleted_at"], row["_op"]) == (wanted["_deleted_at"], "delete")
                for column, value in row.items():
                    if column in wanted and isinstance(value, _COMPARED) and isinstance(wanted[column], str):
                        assert type(value)(wanted[column]) == value, (name, row)
                        gone += 1
        assert gone > 50
