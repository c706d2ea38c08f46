"""Offsets that hold no message: refused, unless the configuration says that they stand for nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from applier.errors import SourceLost
from tests import recordings
from tests.placing import place_by
from tests.replay import differences, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("local_bytes", [pytest.param(1 << 30, marks=pytest.mark.soak), 0], ids=["driver", "tasks"])
def test_offsets_without_a_message_are_refused_or_counted(
    local_bytes: int, spark: SparkSession, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watermark is taken out of the middle of a recording: nobody can tell that it was no row."""
    place_by(monkeypatch, window_bytes=local_bytes)
    found = replay("pk", "simple-json", lake, tmp_path, "simple", name=f"missing-{min(local_bytes, 1)}")
    with gzip.open(found.raw["source"]["archive"], "rt", encoding="utf-8") as lines:
        kept = [json.loads(line) for line in lines]
    values = {
        (record["topic"], record["partition"], record["offset"]): json.loads(record["value"])
        for record in recordings.records("pk", "simple-json")
    }
    watermarks = [at for at, value in values.items() if value["type"] == "WATERMARK"]
    topic, partition, offset = gone = watermarks[len(watermarks) // 2]
    archive = tmp_path / "topic.jsonl"
    left = [json.dumps(item) for item in kept if (item["topic"], item["partition"], item["offset"]) != gone]
    archive.write_text("\n".join(left), encoding="utf-8")
    found.raw["source"]["archive"] = str(archive)

    with found.running(spark) as pipeline:
        sentence = rf"^1 of the offsets 0 to \d+ of {topic}/{partition} hold no message: rows may be lost"
        with pytest.raises(SourceLost, match=sentence):
            pipeline.step()
    assert found.tables() == set()

    found.raw["source"]["missing_offsets"] = "pass"
    with capture_logs() as events, found.running(spark) as pipeline:
        first = pipeline.step()
        assert first.status.fields()["missing"] == 1
        while not (step := pipeline.step()).complete or step.moved:
            pass
    told = [event for event in events if event["event"] == "offsets without a message"]
    assert [(event["partition"], event["missing"]) for event in told] == [(f"{topic}/{partition}", 1)]
    assert told[0]["start"] <= offset < told[0]["end"]
    assert differences(found, recordings.expected("pk")[-1]) == []
