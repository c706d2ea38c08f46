"""kill -9 at named points of a real process: started again without a word, it ends with tables equal to TiDB's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import recordings
from tests.recovery.process import once
from tests.recovery.snapshots import faults_of, heads
from tests.replay import differences, replay

RELAYS = [
    ("txns", 350, ("decoded:2", "table-ensured", "data-files-staged:2", "commit-sent:4", "applied:2")),
    ("ddl", 250, ("ddl-due:3", "ddl-applied:2", "ddl-recorded:3", "commit-done:5", "data-files-staged:9")),
]
"""Scenario, messages a step, and the points one after the other: each process goes on where the last died."""

ALL = [
    (scenario, 250, (f"{point}:{turn}",))
    for scenario in ("txns", "ddl", "partition")
    for point in (
        *("decoded", "table-ensured", "data-files-staged", "commit-sent", "commit-done", "applied"),
        *("ddl-due", "ddl-applied", "ddl-recorded"),
    )
    for turn in (1, 2)
]
"""Each point on its own: minutes."""


CASES = [*RELAYS, *(pytest.param(*case, marks=pytest.mark.soak) for case in ALL)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("scenario", "messages", "points"), CASES)
def test_killed_and_started_again(scenario: str, messages: int, points: tuple[str, ...], tmp_path: Path) -> None:
    """Each start takes the changefeed at once, goes on where the last process died, and no change counts twice."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay(scenario, "simple-json", lake, tmp_path, "simple")
    found.raw["source"]["messages_per_step"] = messages
    for number, point in enumerate(points):
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.said}"
        assert ("is gone" in killed.taken["because"]) == (number > 0)

    ended = once(found.raw, tmp_path)

    assert (ended.code, ended.said) == (0, "")
    assert differences(found, recordings.expected(scenario)[-1]) == []
    assert faults_of(found) == []

    before = heads(found)
    again = once(found.raw, tmp_path)

    assert (again.code, again.said) == (0, "")
    assert "released it" in again.taken["because"]
    assert heads(found) == before
