"""kill -9 of a real process that brings parked tables back: started again without a word, it ends with all of them."""

from __future__ import annotations

import gzip
import signal
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.control_reader import ControlView
from applier.commands.tables.command import append
from applier.config import settings
from applier.sink.control.rows import Kind, TableRequest, request_rows
from tests import recordings
from tests.recovery.extent import every
from tests.recovery.process import once
from tests.recovery.snapshots import faults_of
from tests.replay import Replay, differences, replay

PARKED_AT, RESUMED_AT, LINES = 150, 300, 448
"""Messages of the recording: parked tables miss columns, types, a RENAME, and the table that takes the former name."""

POINTS = ("request-taken", "request-done", "resume-begun", "resume-taken-in", "resume-shown", "resume-done")

RELAYS = [
    ("resume-range-read:2", "resume-shown"),
    ("resume-done",),
    ("request-done", "resume-begun", "resume-taken-in:2", "resume-range-read", "data-files-staged:2", "commit-sent:3"),
    *((point,) for point in POINTS),
    *((f"{point}:{turn}",) for point in ("resume-range-read", "resume-taken-in") for turn in (2, 4)),
    *((f"{point}:{turn}",) for point in ("commit-sent", "commit-done", "data-files-staged") for turn in (1, 2, 4)),
    *((f"{point}:{turn}",) for point in ("ddl-due", "ddl-applied", "ddl-recorded") for turn in (1, 3)),
]
"""Points one after the other: each process goes on where the last died."""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", every(RELAYS, 30), ids="-".join)
def test_killed_while_tables_come_back(points: tuple[str, ...], tmp_path: Path) -> None:
    """Each start goes on where the last process died: all tables are live and equal, and no change counts twice."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("ddl", "simple-json", lake, tmp_path, "simple")
    found.raw["source"] = {"archive": str(tmp_path / "feed"), "messages_per_step": 60}
    (tmp_path / "feed").mkdir()
    _have(tmp_path, PARKED_AT)
    _run(found, tmp_path)
    _ask(found.raw, "park")
    _have(tmp_path, RESUMED_AT)
    _run(found, tmp_path)
    assert _not_live(found.raw) != set()
    _ask(found.raw, "resume")

    for point in points:
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.said}"
    _have(tmp_path, LINES)
    _run(found, tmp_path)

    assert differences(found, recordings.expected("ddl")[-1]) == []
    assert _not_live(found.raw) == set()
    assert faults_of(found) == []
    left = (f"applier_{found.raw['changefeed']['name']}__resume",)
    assert not found.catalog.namespace_exists(left) or found.catalog.list_tables(left) == []


def _have(folder: Path, lines: int) -> None:
    """Let the source have the first messages of the recording."""
    with gzip.open(recordings.GOLDEN / "ddl/simple-json.jsonl.gz", "rt", encoding="utf-8") as recorded:
        text = "".join(recorded.readlines()[:lines])
    (folder / "feed/feed.jsonl").write_text(text, encoding="utf-8")


def _run(found: Replay, folder: Path) -> None:
    ended = once(found.raw, folder)
    assert ended.code == 0, ended.everything[-2000:]


def _ask(raw: dict[str, Any], kind: Kind) -> None:
    """Leave a request, as a command does while `run` goes on."""
    config = settings.parse(raw)
    request = TableRequest(kind, kind, ("*.*",), "a look", "me")
    assert append(config.catalog, (f"applier_{config.changefeed.name}", "requests"), request_rows(request))


def _not_live(raw: dict[str, Any]) -> set[TableName]:
    config = settings.parse(raw)
    with open_lake(config.catalog) as lake:
        last = ControlView(lake, config.changefeed.name).checkpoint()
    assert last is not None
    known = {name: tracked.completeness for name, tracked in last.tables.items()}
    return {name for name, item in known.items() if item is None or not item.is_live}
