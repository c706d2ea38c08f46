"""Folders of TiCDC's cloud storage sink make the tables that upstream shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.ts import unix_ms
from applier.errors import SourceLost
from applier.pipeline.step import Pipeline
from tests import recordings
from tests.recorded.test_protocols import replaying, unexplained
from tests.replay import Replay, differences, doubted
from tests.services.s3 import ObjectStore
from tests.storage_sink import Recorded, put_in, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def reading(scenario: str, variant: str, lake: dict[str, str], folder: Path, uri: str) -> Iterator[Replay]:
    """A replay that reads a folder in place of the recording."""
    with replaying(scenario, "canal-json", variant, lake, folder, f"stored-{scenario}-{folder.name}") as found:
        found.raw["source"] = {"storage": {"uri": uri}}
        found.raw["changefeed"]["on_table_error"] = "stop"
        yield found


def follow(pipeline: Pipeline) -> None:
    """Step until there is no more; a step that brings no newer watermark is followed by one that reads more."""
    for _ in range(500):
        step = pipeline.step()
        assert step.error is None
        if step.complete and not step.moved:
            return
    pytest.fail("the folder was not read to its end")


def day(ts: int) -> str:
    """TiCDC's folder of a day."""
    return datetime.fromtimestamp(unix_ms(ts) / 1000, UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize(
    "scenario", ["ddl", *(pytest.param(scenario, marks=pytest.mark.soak) for scenario in ("txns", "types"))]
)
def test_tables_are_equal_as_the_folder_grows(
    scenario: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """At resolved ts in the middle, beyond which files hold more, and at the end; each run goes on from the last."""
    states, folder = recordings.expected(scenario), tmp_path / "sink"
    recorded = Recorded.of(scenario, "canal-json-ext")
    with reading(scenario, "canal-json-ext", lake, tmp_path, folder.as_uri()) as found:
        found.raw["source"]["engine"] = "spark" if scenario == "txns" else "driver"
        for number, state in enumerate((states[len(states) // 3], states[len(states) // 2], states[-1])):
            write(recorded, put_in(folder), state["resolved_ts"], date=day if scenario == "txns" else lambda _: "")
            with found.running(spark) as pipeline:
                if number:
                    assert pipeline.state.resolved_ts == states[len(states) // (4 - number)]["resolved_ts"]
                follow(pipeline)
                assert pipeline.state.resolved_ts == state["resolved_ts"]
                assert unexplained(found, state, "canal-json") == []
                assert doubted(found, pipeline) == {}


def test_an_object_store_makes_the_same_tables(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by the variables of AWS, which Spark's tasks have from the machine that they run on."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    s3.create_bucket("follow")

    def put(name: str, content: bytes) -> None:
        s3.client().put_object(Bucket="follow", Key=f"feed/{name}", Body=content)

    states, recorded = recordings.expected("txns"), Recorded.of("txns", "canal-json-ext")
    with reading("txns", "canal-json-ext", lake, tmp_path, "s3://follow/feed") as found:
        found.raw["source"]["engine"] = "driver"
        for state in (states[0], states[-1]):
            write(recorded, put, state["resolved_ts"])
            with found.running(spark) as pipeline:
                follow(pipeline)
                assert pipeline.state.resolved_ts == state["resolved_ts"]
                assert unexplained(found, state, "canal-json") == []


def test_one_run_follows_the_folder_file_by_file(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Windows of a few files, each applied before all are read."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded = Recorded.of("txns", "canal-json-ext")
    with reading("txns", "canal-json-ext", lake, tmp_path, str(folder)) as found:
        found.raw["source"]["messages_per_step"] = 20
        write(recorded, put_in(folder), states[0]["resolved_ts"])
        with found.running(spark) as pipeline:
            for state in states[:: max(1, len(states) // 4)]:
                write(recorded, put_in(folder), state["resolved_ts"])
                follow(pipeline)
                assert unexplained(found, state, "canal-json") == []


def test_a_folder_that_lost_a_file_is_refused(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Whatever is removed: a file that is still to come, the folder of a table version, or a schema file."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded = Recorded.of("txns", "canal-json-ext")
    with reading("txns", "canal-json-ext", lake, tmp_path, str(folder)) as found:
        write(recorded, put_in(folder), states[0]["resolved_ts"])
        with found.running(spark) as pipeline:
            follow(pipeline)
        write(recorded, put_in(folder), states[-1]["resolved_ts"])
        first = min(folder.glob("*/*/meta/schema_*.json"))
        kept = first.read_bytes()
        first.unlink()
        with pytest.raises(SourceLost), found.running(spark) as pipeline:
            pipeline.step()
        first.write_bytes(kept)
        with found.running(spark) as pipeline:
            follow(pipeline)
            assert unexplained(found, states[-1], "canal-json") == []
        (folder / "metadata").write_text(f'{{"checkpoint-ts": {states[0]["resolved_ts"]}}}')
        with pytest.raises(SourceLost, match="went back"), found.running(spark) as pipeline:
            pipeline.step()


def test_folders_that_come_during_a_bounded_run_are_left_to_the_next(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Its ends name no such folder; the checkpoint-ts that grows meanwhile covers their rows."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded = Recorded.of("txns", "canal-json-ext")
    half = states[len(states) // 2]["resolved_ts"]

    def dated(ts: int) -> str:
        return "2026-01-01" if ts <= half else "2026-01-02"

    with reading("txns", "canal-json-ext", lake, tmp_path, str(folder)) as found:
        write(recorded, put_in(folder), half, date=dated)
        with found.running(spark) as pipeline:
            ends = pipeline.ends()
            write(recorded, put_in(folder), states[-1]["resolved_ts"], date=dated)
            while not pipeline.step(ends).complete:
                pass
            assert pipeline.state.resolved_ts == half
            follow(pipeline)
            assert unexplained(found, states[-1], "canal-json") == []


def test_a_file_that_a_restarted_ticdc_wrote_again_hides_no_rows(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """It ended before its index counted the file; the one in its place has fewer rows, and the next has the others."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded, orders = Recorded.of("txns", "canal-json-ext"), ("bank", "orders")
    before, lines = states[len(states) // 3]["resolved_ts"], recorded.rows[orders]
    alone = Recorded({orders: lines}, [ddl for ddl in recorded.ddl if ddl[0] == orders])
    rest = [line + b"\r\n" for ts, line in lines if ts > before]
    version = folder.joinpath(*orders, str(recorded.version(orders, lines[-1][0])))

    def put(number: int, content: Sequence[bytes]) -> None:
        put_in(version)(f"CDC{number:06}.json", b"".join(content))

    with reading("txns", "canal-json-ext", lake, tmp_path, str(folder)) as found:
        found.raw["source"]["messages_per_step"] = 1
        put(1, [line + b"\r\n" for ts, line in lines if ts <= before])
        put(2, rest)
        write(replace(alone, rows={}), put_in(folder), before)
        with found.running(spark) as pipeline:
            follow(pipeline)
            put(2, rest[:1])
            put(3, rest[1:])
            write(replace(alone, rows={}), put_in(folder), states[-1]["resolved_ts"])
            follow(pipeline)
        assert not [problem for problem in differences(found, states[-1]) if problem.startswith("bank.orders")]


def test_rows_that_a_restarted_ticdc_writes_again_count_once(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """It goes on from its checkpoint-ts in files of higher numbers, and earlier files hold some of those rows."""
    states, folder = recordings.expected("txns"), tmp_path / "sink"
    recorded = Recorded.of("txns", "canal-json-ext")
    before, after = states[len(states) // 2], states[-1]
    again = 0
    with reading("txns", "canal-json-ext", lake, tmp_path, str(folder)) as found:
        write(recorded, put_in(folder), before["resolved_ts"])
        for name, lines in recorded.rows.items():
            rest = [line for ts, line in lines if ts > before["resolved_ts"]]
            version = folder.joinpath(*name, str(recorded.version(name, lines[-1][0])))
            files = sorted(version.glob("CDC*.json"))
            again += sum(line in files[-1].read_bytes() for line in rest)
            (version / f"CDC{len(files) + 1:06}.json").write_bytes(b"".join(line + b"\r\n" for line in rest))
        assert again
        for state in (before, after):
            (folder / "metadata").write_text(f'{{"checkpoint-ts": {state["resolved_ts"]}}}')
            with found.running(spark) as pipeline:
                follow(pipeline)
                assert unexplained(found, state, "canal-json") == []
