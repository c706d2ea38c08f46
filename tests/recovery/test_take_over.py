"""A process that stands still while another takes its changefeed: awake again, it changes no table and ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.changefeed.message import TopicPartition
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.config import settings
from applier.errors import CheckpointConflict, TableMismatch
from tests import recordings
from tests.lab import Lab
from tests.recovery.process import Applier, once
from tests.recovery.snapshots import faults_of, heads
from tests.replay import Replay, differences, replay
from tests.upstream import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def next_offsets(found: Replay) -> Mapping[TopicPartition, int]:
    """Where the newest checkpoint goes on."""
    config = settings.parse(found.raw)
    with open_lake(config.catalog) as lake:
        checkpoint = ControlView(lake, config.changefeed.name).checkpoint()
    assert checkpoint is not None
    return checkpoint.next_offsets


def cut(found: Replay, file: Path, ends: Mapping[TopicPartition, int]) -> Path:
    """The recording up to some offsets, as an archive: a source with nothing new."""
    with gzip.open(found.raw["source"]["archive"], "rt", encoding="utf-8") as lines, file.open("w") as target:
        for line in lines:
            record = json.loads(line)
            if record["offset"] < ends[TopicPartition(record["topic"], record["partition"])]:
                target.write(line)
    return file


@pytest.mark.timeout(600)
def test_a_stopped_process_changes_nothing_after_a_take_over(tmp_path: Path) -> None:
    """SIGSTOP between its data files and their commit, a take-over without any new row, SIGCONT: exit 3, no commit."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("txns", "simple-json", lake, tmp_path, "simple")
    found.raw["source"]["messages_per_step"] = 350
    archive = found.raw["source"]["archive"]
    zombie = Applier(found.raw, tmp_path, kill_at="data-files-staged:7:STOP")
    stopped = os.waitid(os.P_PID, zombie.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED, "it ended before it came to the point"

        refused = once(found.raw, tmp_path)
        assert refused.code == 3
        assert f"is held by process {zombie.pid} on " in refused.said
        assert "since" in refused.said
        assert "at work, and keeps its hold as long as it runs: stop it" in refused.said

        found.raw["source"]["archive"] = str(cut(found, tmp_path / "nothing-new.jsonl", next_offsets(found)))
        before = heads(found)
        taker = once(found.raw, tmp_path, "--take-over")
        assert (taker.code, taker.said) == (0, "")
        fenced = heads(found)
        assert before.keys() == fenced.keys()
        assert not before.items() & fenced.items(), "an idle table has no fence"
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
        ended = zombie.wait()

    assert ended.code == 3
    assert "was written by a newer applier of changefeed txns-simple-json: epoch 2" in ended.said
    assert "Keep one applier per changefeed; this one stops." in ended.said
    assert heads(found) == fenced

    found.raw["source"]["archive"] = archive
    last = once(found.raw, tmp_path)
    assert (last.code, last.said) == (0, "")
    assert differences(found, recordings.expected("txns")[-1]) == []
    assert faults_of(found) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_lease_of_a_process_that_stands_still_runs_out(tmp_path: Path) -> None:
    """Nothing beats while all of it is stopped; the next one needs no order to take over, and refuses what it sends."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("pk", "simple-json", lake, tmp_path, "simple")
    found.raw["run"] = {"lease_seconds": 2, "heartbeat_seconds": 0.2}
    zombie = Applier(found.raw, tmp_path, kill_at="data-files-staged:1:STOP")
    stopped = os.waitid(os.P_PID, zombie.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED, "it ended before it came to the point"
        time.sleep(2)

        taker = once(found.raw, tmp_path)
        assert (taker.code, taker.said) == (0, "")
        assert "has been silent for" in taker.taken["because"]
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
        ended = zombie.wait()

    assert ended.code == 3
    assert differences(found, recordings.expected("pk")[-1]) == []
    assert faults_of(found) == []


def test_the_last_holder_is_told_that_it_lost_the_changefeed_and_not_its_tables(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may have dropped a table, as its upstream was: nobody must be sent to restore it."""
    lab = Lab(spark, "lost_tables", Database(), [])
    holder = lab.start()

    def is_gone(*_: object) -> None:
        raise TableMismatch("Table shop.orders was dropped or replaced by another one.", "Restore it.")

    monkeypatch.setattr("applier.pipeline.maintenance.Maintenance.tend", is_gone)
    with pytest.raises(TableMismatch):
        holder.step()
    lab.start()
    with pytest.raises(CheckpointConflict):
        holder.step()
