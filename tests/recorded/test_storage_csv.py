"""Folders that TiCDC's cloud storage sink writes in CSV make the tables that upstream shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.errors import SourceLost
from tests import recordings
from tests.recorded.test_protocols import replaying, unexplained
from tests.recorded.test_storage_sink import day, follow
from tests.replay import Replay, doubted
from tests.services.s3 import ObjectStore
from tests.storage_csv import in_csv
from tests.storage_sink import Recorded, put_in, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANT = "canal-json-content-compatible"


@contextmanager
def reading(
    scenario: str, lake: dict[str, str], folder: Path, uri: str, *, old_values: bool = True
) -> Iterator[Replay]:
    """A replay that reads a folder in place of the recording."""
    with replaying(scenario, "csv", VARIANT, lake, folder, f"csv-{scenario}-{folder.name}") as found:
        found.raw["source"] = {"storage": {"uri": uri, "csv": {"output_old_value": old_values}}}
        found.raw["changefeed"]["on_table_error"] = "stop"
        yield found


@pytest.mark.parametrize(
    "scenario", ["types", *(pytest.param(scenario, marks=pytest.mark.soak) for scenario in ("ddl", "txns", "pk"))]
)
def test_tables_are_equal_as_the_folder_grows(
    scenario: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """At resolved ts in the middle, beyond which files hold more, and at the end; each run goes on from the last."""
    states, folder = recordings.expected(scenario), tmp_path / "sink"
    recorded = in_csv(Recorded.of(scenario, VARIANT), old_values=True)
    with reading(scenario, lake, tmp_path, folder.as_uri()) as found:
        found.raw["source"]["engine"] = "spark" if scenario == "txns" else "driver"
        for state in (states[len(states) // 3], states[len(states) // 2], states[-1]):
            write(recorded, put_in(folder), state["resolved_ts"], date=day if scenario == "txns" else lambda _: "")
            with found.running(spark) as pipeline:
                follow(pipeline)
                assert pipeline.state.resolved_ts == state["resolved_ts"]
                assert unexplained(found, state, "csv") == []
                assert doubted(found, pipeline) == {}


def test_an_object_store_makes_the_same_tables_without_old_values(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates are the new rows alone; a step reads a few files."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    s3.create_bucket("csv")

    def put(name: str, content: bytes) -> None:
        s3.client().put_object(Bucket="csv", Key=f"feed/{name}", Body=content)

    states = recordings.expected("txns")
    recorded = in_csv(Recorded.of("txns", VARIANT), old_values=False)
    with reading("txns", lake, tmp_path, "s3://csv/feed", old_values=False) as found:
        found.raw["source"] |= {"engine": "driver", "messages_per_step": 50}
        for state in (states[0], states[-1]):
            write(recorded, put, state["resolved_ts"])
            with found.running(spark) as pipeline:
                follow(pipeline)
                assert unexplained(found, state, "csv") == []


def test_a_folder_that_lost_a_file_is_refused(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """A schema file in the middle of its folder; when it is there again, the run goes on, in Spark's tasks."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded = in_csv(Recorded.of("txns", VARIANT), old_values=True)
    with reading("txns", lake, tmp_path, str(folder)) as found:
        found.raw["source"]["engine"] = "spark"
        write(recorded, put_in(folder), states[0]["resolved_ts"])
        with found.running(spark) as pipeline:
            follow(pipeline)
        write(recorded, put_in(folder), states[-1]["resolved_ts"])
        first = next(
            file
            for file in sorted(folder.glob("*/*/meta/schema_*.json"))
            if (file.parents[1] / file.name.split("_")[1]).is_dir()
        )
        kept = first.read_bytes()
        first.unlink()
        with pytest.raises(SourceLost, match="has rows, and no schema file"), found.running(spark) as pipeline:
            pipeline.step()
        first.write_bytes(kept)
        with found.running(spark) as pipeline:
            follow(pipeline)
            assert unexplained(found, states[-1], "csv") == []
