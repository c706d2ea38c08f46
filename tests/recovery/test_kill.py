"""kill -9 at named points of a real process: started again without a word, it ends with tables equal to TiDB's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import recordings
from tests.recovery.extent import every
from tests.recovery.process import Applier, once
from tests.recovery.snapshots import faults_of, heads
from tests.replay import differences, replay

RELAYS = [
    # The first one is in `make test`.
    ("ddl", 250, ("ddl-applied:2",)),
    ("ddl", 250, ("ddl-applied:2", "commit-done:5")),
    ("ddl", 120, ("read:2", "ddl-due:9", "ddl-applied:4", "applied:2")),
    ("ddl", 250, ("decoded:2", "ddl-applied:2", "ddl-recorded:3", "commit-done:5", "data-files-staged:9")),
    ("txns", 350, ("decoded:2", "table-ensured:3", "data-files-staged:2", "commit-sent:4", "applied:2")),
    *(
        (scenario, messages, (f"{point}:{turn}",))
        for scenario, messages in (("txns", 250), ("ddl", 250), ("partition", 80))
        for point in ("read", "decoded", "table-ensured", "data-files-staged", "commit-sent", "commit-done", "applied")
        for turn in (1, 2)
    ),
    *(
        (scenario, 250, (f"{point}:{turn}",))
        for scenario in ("ddl", "partition")
        for point in ("ddl-due", "ddl-applied", "ddl-recorded")
        for turn in (1, 2)
    ),
    ("partition", 250, ("half-exchanged",)),
]
"""Scenario, messages a step, and the points one after the other: each process goes on where the last died."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("scenario", "messages", "points"), every(RELAYS, len(RELAYS)))
def test_killed_and_started_again(scenario: str, messages: int, points: tuple[str, ...], tmp_path: Path) -> None:
    """Each start takes the changefeed at once, goes on where the last process died, and no change counts twice."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay(scenario, "simple-json", lake, tmp_path, "simple")
    found.raw["source"]["messages_per_step"] = messages
    for number, point in enumerate(points):
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.said}"
        # Without any event it died in its first commit of all, by which it takes the changefeed.
        assert not killed.events or ("is gone" in killed.taken["because"]) == (number > 0)

    ended = once(found.raw, tmp_path)

    assert (ended.code, ended.said) == (0, "")
    assert differences(found, recordings.expected(scenario)[-1]) == []
    assert faults_of(found) == []

    before = heads(found)
    again = once(found.raw, tmp_path)

    assert (again.code, again.said) == (0, "")
    assert "released it" in again.taken["because"]
    assert heads(found) == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "points",
    every(
        [
            ("compaction-sent:2", "snapshots-expired:1"),
            ("files-merged:1", "files-merged:3", "compaction-sent:1", "snapshots-expired:2", "compaction-sent:4"),
        ],
        2,
    ),
)
def test_killed_while_tables_are_maintained(points: tuple[str, ...], tmp_path: Path) -> None:
    """Steps go on beside a compaction and an expiry; wherever the process dies, nothing is lost or shown twice."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("txns", "simple-json", lake, tmp_path, "simple")
    found.raw["source"]["messages_per_step"] = 40
    found.raw["maintenance"] = {"small_files": 2, "snapshots": 3, "share": 1.0}
    for point in points:
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.said}"

    ended = once(found.raw, tmp_path)

    assert (ended.code, ended.said) == (0, "")
    assert differences(found, recordings.expected("txns")[-1]) == []
    assert faults_of(found) == []
    assert {event["task"] for event in ended.events if event["event"] == "table maintained"} >= {"compact"}
    # What was behind while steps came has been caught up with since.
    assert "maintenance of" not in Applier(found.raw, tmp_path, command="status").wait().everything


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_killed_in_offset_order_and_started_again(tmp_path: Path) -> None:
    """Nothing but offsets tells what tables have, those without a key among them: no row is there twice or missing."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("pk", "canal-json", lake, tmp_path, "canal-json", order="offset")
    found.raw["source"]["messages_per_step"] = 60
    for point in ("commit-done:4", "applied:1", "data-files-staged:6", "commit-sent:5", "applied:2"):
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.said}"

    ended = once(found.raw, tmp_path)

    assert (ended.code, ended.said) == (0, "")
    assert differences(found, recordings.expected("pk")[-1]) == []
    assert faults_of(found) == []
