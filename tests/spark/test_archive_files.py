"""An archive whose partitions lie in several files: each is read by one task, in the order of its offsets."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from applier.changefeed.message import MESSAGE_SCHEMA
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import Window
from applier.consume.runner import Runner
from applier.consume.spark import ArchiveSource
from applier.consume.tasks.spark import TaskRows
from applier.decode.options import DecoderOptions
from applier.order.merge import merge_bag
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult
from applier.runtime.places import Places, Where

pytestmark = pytest.mark.spark

TABLE = TableVersion(TableName("shop", "log"), 1, (Column("a", ColumnType("int")),), ())
HEAD = {"version": 1, "buildTs": 1, "database": "shop", "table": "log", "tableID": 1, "schemaVersion": 1}


def message(partition: int, offset: int, **said: Any) -> dict[str, Any]:
    """A message of Simple."""
    value = json.dumps({**HEAD, **said}).encode()
    return {"topic": "t", "partition": partition, "offset": offset, "value": value}


def test_no_keyless_row_is_lost_between_files(spark: SparkSession, tmp_path: Path) -> None:
    """Three files cut a run of four equal rows; the largest, which Spark reads first, has the watermark above it."""
    row = {"type": "INSERT", "commitTs": 7, "data": {"a": "1"}}
    for number, offsets in enumerate([range(2), range(2, 3), range(3, 4)]):
        rows = [message(partition, offset, **row) for offset in offsets for partition in range(2)]
        if number == 2:
            rows += [message(partition, 4, type="WATERMARK", commitTs=8, more="x" * 9_999) for partition in range(2)]
        table = pa.Table.from_pylist(rows, MESSAGE_SCHEMA)
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2, compression="none")
    source = ArchiveSource(spark, tmp_path, tmp_path / "staging")
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (TABLE,), upto=8)

    with closing(Runner(source, TaskRows(spark, source.reading), Places())) as runner:
        ran = runner.run(Window(source.bounds()), job, Where.TASKS)
        found = TaskResult.sum(ran.results)
        assert ran.kept is not None
        parts = [pa.ipc.open_stream(body).read_all() for body in ran.kept.collect().values()]

    assert found.counts["applied"] == 8
    assert not any(replay for rows in parts for replay in rows["\0replay"].to_pylist())
    # Equal rows of one transaction in two partitions: one of them was sent again.
    assert len(merge_bag(parts).inserts) == 4
