"""`applier backfill` into the tables that readers see: what they cover is skipped, what lies beyond is applied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.commands.backfill.command import backfill, planned
from applier.commands.backfill.report import Outcome
from applier.commands.backfill.request import asked
from applier.config import settings
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import CheckpointConflict, ConfigError, RangeRefused
from applier.runtime.logs import Stopwatch
from tests.recovery.snapshots import faults_of, heads
from tests.replay import Replay, differences, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def properties(warehouse: Path) -> dict[str, str]:
    """Properties of the catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


def text(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as they are given on the command line."""
    return ",".join(f"{place.topic}:{place.partition}:{offset}" for place, offset in offsets.items())


def states(scenario: str) -> list[tuple[dict[str, Any], dict[TopicPartition, int]]]:
    """Each recorded state, and the offsets of every partition by which it is reached."""
    found = list(ends_at(scenario, "simple-json", build("simple", DecoderOptions())))
    everywhere = dict.fromkeys(found[-1][1], 0)
    return [(state, {**everywhere, **ends}) for state, ends in found]


def run(found: Replay, spark: SparkSession, begin: str | None, end: str | None = None, **options: Any) -> Outcome:
    """`applier backfill` with these options."""
    request = asked(begin, end, **options)
    return backfill(settings.parse(found.raw), request, take_over=False, report=lambda line: None, spark=spark)


def files(warehouse: Path) -> set[str]:
    """Every file of every table."""
    return {str(path) for path in warehouse.rglob("*") if path.is_file() and "catalog.db" not in path.name}


def test_ranges_one_after_the_other_and_again(
    spark: SparkSession, properties: dict[str, str], warehouse: Path, tmp_path: Path
) -> None:
    """Ends as offsets, as a resolved ts and as the end of the source; a range of the past changes nothing."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-txns")
    recorded = states("txns")
    (first, offsets), (middle, _), (last, _) = recorded[0], recorded[len(recorded) // 2], recorded[-1]

    told = planned(settings.parse(found.raw), asked("beginning", text(offsets)), spark=spark)
    assert (sum(row[3] for row in told.spans), told.aims) == (0, [])
    run(found, spark, "beginning", text(offsets))
    assert differences(found, first) == []

    run(found, spark, "beginning", str(middle["resolved_ts"]))
    assert differences(found, middle) == []

    before = heads(found)
    for begin, end in (("beginning", text(offsets)), (str(first["resolved_ts"]), str(middle["resolved_ts"]))):
        again = run(found, spark, begin, end)
        assert "stay at resolved ts" in again.sentences[0]
    assert heads(found) == before
    kept = files(warehouse)
    told = planned(settings.parse(found.raw), asked("beginning", None), spark=spark)
    assert {aim.resolved_ts for aim in told.aims} == {middle["resolved_ts"]}
    assert 0 < sum(row[3] for row in told.spans) < sum(row[2] - row[1] for row in told.spans)
    assert files(warehouse) == kept

    run(found, spark, str(middle["resolved_ts"]))
    assert differences(found, last) == []
    assert faults_of(found) == []


def test_some_tables_go_ahead_and_the_others_follow(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """What one table has applied alone is left out by the run that comes after."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-some")
    recorded = states("txns")
    (start, offsets), (last, _) = recorded[1], recorded[-1]
    run(found, spark, "beginning", text(offsets))
    tables = sorted(found.tables())
    mine, other = tables[0], tables[1]

    run(found, spark, "beginning", tables=str(mine))

    only = {
        name: {**state, "tables": {str(name): state["tables"][str(name)]}}
        for name, state in ((mine, last), (other, start))
    }
    for name, state in only.items():
        found_alone = [line for line in differences(found, state) if line.startswith(f"{name}:")]
        assert found_alone == []
    with found.running(spark) as pipeline:
        assert pipeline.state.resolved_ts < last["resolved_ts"]
        assert set(pipeline.state.ahead) == {mine}
        while pipeline.step().moved:
            pass
    assert differences(found, last) == []
    assert faults_of(found) == []


@pytest.mark.parametrize(("scenario", "named"), [("txns", ""), ("pk", "keys.k_none")])
def test_some_tables_of_a_feed_in_offset_order_go_ahead(
    scenario: str, named: str, spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """Their stamps tell by offsets what they have, so that the run that comes after leaves it out, keys or not."""
    name = f"bf-some-plain-{scenario}"
    found = replay(scenario, "canal-json", properties, tmp_path, "canal-json", name=name, order="offset")
    last = states(scenario)[-1][0]
    with found.running(spark) as pipeline:
        middle = {place: end // 2 for place, end in pipeline.ends().items()}
    run(found, spark, "beginning", text(middle))
    mine = named or str(min(found.tables()))

    run(found, spark, "beginning", tables=mine)

    assert not [line for line in differences(found, last) if line.startswith(f"{mine}:")]
    with found.running(spark) as pipeline:
        assert pipeline.state.next_offsets == middle
        assert [str(item) for item in pipeline.state.covered] == [mine]
        step = pipeline.step()
        assert dict(step.status.notes)["replayed"] > 0
        while pipeline.step().moved:
            pass
    assert differences(found, last) == []


def test_a_ddl_of_a_single_table_waits_for_all(spark: SparkSession, properties: dict[str, str], tmp_path: Path) -> None:
    """Its rows up to there are applied, and the sentence says what to do; nothing is lost or twice afterwards."""
    found = replay("ddl", "simple-json", properties, tmp_path, "simple", name="bf-ddl")
    recorded = states("ddl")
    run(found, spark, "beginning", text(recorded[8][1]))
    with found.running(spark) as pipeline:
        due = pipeline.look(None, Stopwatch()).scan.ddl
        ddl = [item for item in due if any(name in pipeline.state.tables for name in item.names)]
        name = next(table for table in ddl[0].names if table in pipeline.state.tables)

    with pytest.raises(RangeRefused, match=f"Table {name} is applied up to its DDL at commit ts {ddl[0].commit_ts}"):
        run(found, spark, "beginning", tables=str(name))

    run(found, spark, "beginning")
    assert differences(found, recorded[-1][0]) == []
    assert faults_of(found) == []


def test_what_is_refused(spark: SparkSession, properties: dict[str, str], tmp_path: Path) -> None:
    """A gap, a table that is not there, and a changefeed that somebody holds; each with its sentence."""
    found = replay("pk", "simple-json", properties, tmp_path, "simple", name="bf-refused")
    recorded = states("pk")
    run(found, spark, "beginning", text(recorded[0][1]))
    later = {place: offset + 1 for place, offset in recorded[-2][1].items()}

    with pytest.raises(RangeRefused, match="which no table has applied yet, would be left out"):
        run(found, spark, text(later))
    with pytest.raises(ConfigError, match="--tables nope.t: the changefeed has no such table"):
        run(found, spark, "beginning", tables="nope.t")
    with found.running(spark):
        # Of this very process, which lives: nobody may take the changefeed from it.
        with pytest.raises(CheckpointConflict, match="The changefeed is held by process"):
            run(found, spark, "beginning")
        assert planned(settings.parse(found.raw), asked("beginning", None), spark=spark).spans
