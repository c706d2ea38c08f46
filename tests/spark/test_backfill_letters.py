"""`applier backfill --dead-letters`: what was set aside is made up for once it can be read, and what came after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.commands.backfill.command import planned
from applier.commands.backfill.request import asked
from applier.config import settings
from tests.recovery.snapshots import heads
from tests.replay import differences, replay
from tests.spark.test_backfill import run, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def properties(warehouse: Path) -> dict[str, str]:
    """Properties of the catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


def test_dead_letters_are_made_up_for_once_they_can_be_read(
    spark: SparkSession, properties: dict[str, str], tmp_path: Path
) -> None:
    """Zero dates that stopped their rows pass after a change of the configuration; before it nothing is written."""
    found = replay(
        "types", "simple-json", properties, tmp_path, "simple", name="bf-letters", on_bad_message="dead_letter"
    )
    found.raw["tables"]["zero_dates"] = "stop"
    run(found, "beginning")
    last = states("types")[-1][0]
    assert differences(found, last) != []
    before = heads(found)

    kept = run(found, None, dead_letters=True)

    assert kept.sentences[-1] == "There is no dead letter that can be made up for."
    assert all("cannot be read yet" in sentence for sentence in kept.sentences[:-1])
    assert heads(found) == before

    found.raw["tables"]["zero_dates"] = "null"
    told = planned(settings.parse(found.raw), asked(None, None, dead_letters=True))
    assert heads(found) == before
    done = run(found, None, dead_letters=True)

    assert differences(found, last) == []
    assert {item.table for item in done.differences} == {iceberg for _, iceberg, _, _ in told.aims}
    assert sum(item.only_branch + item.changed for item in done.differences) > 0
    assert "dead letters are made up for." in done.sentences[-1]
    with found.running(spark) as pipeline:
        assert pipeline.state.control.letters() == []
        assert not pipeline.step().moved
