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


def run(found: Replay, begin: str | None, end: str | None = None, **options: Any) -> Outcome:
    """`applier backfill` with these options."""
    request = asked(begin, end, **options)
    return backfill(settings.parse(found.raw), request, take_over=False, report=lambda line: None)


def files(warehouse: Path) -> set[str]:
    """Every file of every table."""
    return {str(path) for path in warehouse.rglob("*") if path.is_file() and "catalog.db" not in path.name}


@pytest.mark.usefixtures("spark")
def test_ranges_one_after_the_other_and_again(properties: dict[str, str], warehouse: Path, tmp_path: Path) -> None:
    """Ends as offsets, as a resolved ts and as the end of the source; a range of the past changes nothing."""
    found = replay("txns", "simple-json", properties, tmp_path, "simple", name="bf-txns")
    recorded = states("txns")
    (first, offsets), (middle, _), (last, _) = recorded[0], recorded[len(recorded) // 2], recorded[-1]

    told = planned(settings.parse(found.raw), asked("beginning", text(offsets)))
    assert (sum(row[3] for row in told.spans), told.aims) == (0, [])
    run(found, "beginning", text(offsets))
    assert differences(found, first) == []

    run(found, "beginning", str(middle["resolved_ts"]))
    assert differences(found, middle) == []

    before = heads(found)
    for begin, end in (("beginning", text(offsets)), (str(first["resolved_ts"]), str(middle["resolved_ts"]))):
        for tables in ("", str(min(found.tables()))):
            again = run(found, begin, end, tables=tables)
            stays = f"was applied before. The tables stay at resolved ts {middle['resolved_ts']}."
            assert again.sentences[0].endswith(stays)
    assert heads(found) == before
    kept = files(warehouse)
    told = planned(settings.parse(found.raw), asked("beginning", None))
    assert {covers for _, _, _, covers in told.aims} == {str(middle["resolved_ts"])}
    assert 0 < sum(row[3] for row in told.spans) < sum(row[2] - row[1] for row in told.spans)
    assert files(warehouse) == kept

    run(found, str(middle["resolved_ts"]))
    assert differences(found, last) == []
    assert faults_of(found) == []


def test_what_is_refused(spark: SparkSession, properties: dict[str, str], tmp_path: Path) -> None:
    """A gap, a table that is not there or would go ahead, and a changefeed that somebody holds; before it is taken."""
    found = replay("pk", "simple-json", properties, tmp_path, "simple", name="bf-refused")
    recorded = states("pk")
    run(found, "beginning", text(recorded[0][1]))
    later = {place: offset + 1 for place, offset in recorded[-2][1].items()}

    with pytest.raises(RangeRefused, match="which no table has applied yet, would be left out"):
        run(found, text(later))
    with pytest.raises(ConfigError, match="--tables nope.t: the changefeed has no such table"):
        run(found, "beginning", tables="nope.t")
    with pytest.raises(RangeRefused, match="The range ends beyond the checkpoint"):
        run(found, "beginning", tables="keys.*")
    with pytest.raises(RangeRefused, match="The range ends beyond the checkpoint"):
        planned(settings.parse(found.raw), asked("beginning", None, tables="keys.*"))
    with found.running(spark):
        # Of this very process, which lives: nobody may take the changefeed from it.
        with pytest.raises(CheckpointConflict, match="The changefeed is held by process"):
            run(found, "beginning")
        assert planned(settings.parse(found.raw), asked("beginning", None)).spans
