"""`applier reload` beside a real run: what it takes up, what it refuses, and a kill -9 in between."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.config import settings
from tests import recordings
from tests.recovery.extent import every
from tests.recovery.process import SECONDS, Applier, Ended
from tests.recovery.snapshots import faults_of
from tests.replay import Replay, differences, replay

BIG = TableName("keys", "k_big")
WITHOUT_BIG = {"include": ["*.*", f"!{BIG}"]}


def feed(folder: Path) -> Replay:
    """A replay with a catalog of its own."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    return replay("pk", "simple-json", lake, folder, "simple")


def with_tables(raw: dict[str, Any], **tables: Any) -> dict[str, Any]:
    """The configuration with other keys under `[tables]`."""
    return {**raw, "tables": {**raw["tables"], **tables}}


def reloaded(raw: dict[str, Any], folder: Path) -> Ended:
    """Write a configuration into a folder, and ask the process that holds the changefeed to read its own again."""
    return Applier(raw, folder, command="reload").wait()


def until_live(raw: dict[str, Any], name: TableName) -> None:
    """Wait until the checkpoint calls a table live."""
    config, deadline = settings.parse(raw), time.monotonic() + SECONDS
    while True:
        with open_lake(config.catalog) as lake:
            last = ControlView(lake, config.changefeed.name).checkpoint()
        tracked = last.tables.get(name) if last is not None else None
        if tracked is not None and tracked.completeness is not None and tracked.completeness.is_live:
            return
        assert time.monotonic() < deadline, f"{name} never came: {tracked}"
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_table_is_admitted_without_a_restart(tmp_path: Path) -> None:
    """It comes as a start would bring it. What cannot be taken up is refused by name, and the run goes on."""
    found = feed(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = Applier(with_tables(found.raw, **WITHOUT_BIG), tmp_path)
    run.until("step")
    assert found.contents(BIG) is None

    lake = {**found.raw, "catalog": {**found.raw["catalog"], "cache-enabled": "true"}}
    fixed = reloaded(lake, tmp_path)
    (tmp_path / "applier.toml").write_text("[changefeed\n", encoding="utf-8")
    wrong = reloaded(found.raw, elsewhere)
    assert run.is_running
    taken_up = reloaded(found.raw, tmp_path)
    until_live(found.raw, BIG)
    ended = run.end()

    said = fixed.said + wrong.said + taken_up.said + ended.everything[-2000:]
    assert (fixed.code, wrong.code, taken_up.code, ended.code) == (2, 2, 0, 0), said
    file = tmp_path / "applier.toml"
    assert f"Section [catalog] of {file} differs, which a running process does not take up: restart" in fixed.said
    assert f"{file}:1: not valid TOML" in wrong.said
    assert f"Reloaded: Section [tables] of {file} differs, and `applier run` begins anew." in taken_up.said
    assert differences(found, recordings.expected("pk")[-1]) == []
    assert faults_of(found) == []
    taken = [event["epoch"] for event in ended.events if event["event"] == "changefeed taken"]
    assert taken == [1, 2], "a refused file changes nothing"
    assert sum(event["event"] == "Spark is started" for event in ended.events) == 1


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", every(["request-taken", "request-done"], 2))
def test_a_run_killed_while_it_reloads(point: str, tmp_path: Path) -> None:
    """The next start reads the file itself, and the command has the outcome, once."""
    found = feed(tmp_path)
    first = Applier(with_tables(found.raw, **WITHOUT_BIG), tmp_path, kill_at=point)
    first.until("step")
    command = Applier(found.raw, tmp_path, command="reload")
    assert first.wait().code == -signal.SIGKILL

    second = Applier(found.raw, tmp_path)
    told = command.wait()
    until_live(found.raw, BIG)
    ended = second.end()

    assert (told.code, ended.code) == (0, 0), told.everything + ended.everything[-2000:]
    assert "Reloaded: " in told.said
    assert differences(found, recordings.expected("pk")[-1]) == []
    taken = [event["epoch"] for event in ended.events if event["event"] == "changefeed taken"]
    assert taken == [2], "the file that a start has read is not taken up once more"
