"""What `applier verify` reads of a snapshot is what PyIceberg reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from applier.changefeed.table import TableName
from applier.commands.verify.columns import columns_at, schemas_at
from applier.commands.verify.sides import snapshot_side
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.sink.iceberg.table import Table
from tests import expected
from tests.replay import ends_at, plain, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(table: Table, snapshot_id: int | None, wanted: pa.Schema) -> list[str]:
    """Rows of a snapshot, in columns that the table had then."""
    fields = columns_at(table, schemas_at(table, snapshot_id, is_shown=False), wanted).fields
    side = snapshot_side(table, snapshot_id, fields)
    return expected.bag([row for part in side.parts for rows in side.reader.read(part) for row in plain(rows)])


@pytest.mark.parametrize(
    ("scenario", "version"),
    [("ddl", 3), pytest.param("pk", 2, marks=pytest.mark.soak), pytest.param("txns", 3, marks=pytest.mark.soak)],
)
def test_a_snapshot_is_read_as_others_read_it(
    scenario: str, version: int, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """With its deletes, its columns from before later DDL, and the defaults of those that came behind its files."""
    found = replay(scenario, "simple-json", lake, tmp_path, "simple", name=f"verify-{scenario}")
    found.raw["tables"]["format_version"] = version
    states: list[tuple[TableName, int | None, pa.Schema, list[str]]] = []
    with found.running(spark) as pipeline:
        catalog = pipeline.targets.catalog

        def table(name: TableName) -> Any:
            return catalog.load(found.identifier(name))

        for _, ends in ends_at(scenario, "simple-json", build("simple", DecoderOptions())):
            while pipeline.step(ends).moved:
                pass
            for name in found.tables():
                now = table(name)
                states.append((name, now.snapshot_id, now.schema.arrow, expected.bag(found.contents(name) or [])))
                assert read(now, now.snapshot_id, now.schema.arrow) == states[-1][-1], name
        assert len(states) > 10
        known = [state for state in states if (now := table(state[0])) and now.has_snapshot(state[1] or 0)]
        assert len(known) > 10
        differing = [(str(name), at) for name, at, columns, rows in known if read(table(name), at, columns) != rows]
        assert differing == []
        deletes = [file.deletes for name in found.tables() for file in table(name).scan_past(table(name).snapshot_id)]
        assert any(deletes)
