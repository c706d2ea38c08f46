"""Windows get longer while the watermark stands still in full ones, and not while there is nothing to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import recordings
from tests.replay import differences, replay

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_feed_that_was_idle_goes_on_with_windows_of_the_usual_size(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The limits of a step hold for the backlog that comes after a pause, too."""
    found = replay("txns", "simple-json", lake, tmp_path, "simple", name="idle")
    most = 200
    found.raw["source"]["messages_per_step"] = most
    with found.running(spark) as pipeline:
        ends = {place: end // 4 for place, end in pipeline.ends().items()}
        while not (step := pipeline.step(ends)).complete or step.moved:
            pass
        for _ in range(8):
            assert not pipeline.step(ends).moved
        read = [pipeline.step().status.messages]
        while not (step := pipeline.step()).complete or step.moved:
            read.append(step.status.messages)

    assert read[0] <= most
    assert differences(found, recordings.expected("txns")[-1]) == []
