"""Watermarks without rows: a checkpoint is a commit, so they wait for each other, and nothing else waits for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tests.lab import Memory
from tests.recovery.cases import CASES
from tests.ticdc import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_watermarks_alone_wait_and_rows_do_not(spark: SparkSession) -> None:
    """Rows come with the checkpoint of their watermark, whatever waits before it."""
    lab = CASES["inserts"].lab(spark, "watermarks_alone")
    pipeline, steps = lab.start(), 0
    pipeline.watermark_seconds = 3600
    while pipeline.step().moved:
        lab.check(pipeline)
        steps += 1
    assert steps > 1
    shown = pipeline.state.resolved_ts

    cast("Memory", pipeline.source).records = [*lab.records, *_watermarks(lab.records, 1)]
    for _ in range(2):
        step = pipeline.step()
        assert step.complete
        assert not step.moved
        assert (step.mark, pipeline.state.resolved_ts) == (shown + 1, shown)
    pipeline.watermark_seconds = 0
    assert pipeline.step().moved
    assert pipeline.state.resolved_ts == shown + 1
    lab.check(pipeline)


def _watermarks(records: Sequence[Record], beyond: int) -> list[Record]:
    """A watermark for each partition, as much above the newest as given, behind all messages."""
    last = {(record["topic"], record["partition"]): record["offset"] for record in records}
    marks = [value for record in records if (value := json.loads(record["value"]))["type"] == "WATERMARK"]
    newest = max(marks, key=lambda value: int(value["commitTs"]))
    value = json.dumps({**newest, "commitTs": newest["commitTs"] + beyond}).encode()
    return [
        {"topic": topic, "partition": partition, "offset": offset + 1, "key": None, "value": value}
        for (topic, partition), offset in last.items()
    ]
