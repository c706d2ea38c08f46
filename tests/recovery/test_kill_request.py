"""kill -9 of a run while a command waits for it: the next run has the changefeed, and carries the request out once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.recovery.extent import every
from tests.recovery.process import Applier
from tests.replay import replay


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", every(["request-taken", "request-done"], 2))
def test_a_command_waits_for_the_next_run(point: str, tmp_path: Path) -> None:
    """It never takes the changefeed itself, and says in the end what the other process did."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("txns", "canal-json-ext", lake, tmp_path, "canal-json")
    first = Applier(found.raw, tmp_path, kill_at=point)
    first.until("step")
    command = Applier(found.raw, tmp_path, "--tables", "*.*", "--why", "a look", command="park")
    assert first.wait().code == -signal.SIGKILL

    second = Applier(found.raw, tmp_path)
    told = command.wait()
    ended = second.end()

    assert (told.code, ended.code) == (0, 0), told.everything + ended.everything[-2000:]
    assert "Asked process" in told.said
    assert "Parked: " in told.said
    assert ended.taken["epoch"] == 2, "only the two runs have taken the changefeed"
    done = [event for event in ended.events if event["event"] == "request"]
    assert len(done) == (1 if point == "request-taken" else 0)
