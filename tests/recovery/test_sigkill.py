"""A run killed with SIGKILL at a named point, started again, ends in the recorded tables; no snapshot counts twice."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from tests import recordings
from tests.replay import Replay, differences, replay

pytestmark = pytest.mark.recovery

POINTS = [
    ("txns", "decoded:2"),
    ("txns", "table-ensured:3"),
    ("txns", "data-files-staged:7"),
    ("txns", "commit-sent:9"),
    ("txns", "commit-done:9"),
    ("txns", "applied:2"),
    ("pk", "ddl-due:9"),
    ("pk", "ddl-applied:19"),
    ("pk", "ddl-recorded:18"),
]
"""Scenario, and the point with the number of times that it is reached before the process dies."""


def toml(raw: dict[str, Any]) -> str:
    """A configuration as TOML; values are texts and whole numbers."""
    lines = []
    for section, keys in raw.items():
        lines.append(f"[{section}]")
        lines += [f'"{key}" = {value if isinstance(value, int) else repr(str(value))}' for key, value in keys.items()]
    return "\n".join(lines).replace("'", '"') + "\n"


def feed(scenario: str, folder: Path, **changefeed: Any) -> tuple[Replay, Path]:
    """A replay with a catalog of its own, and the configuration file of the same job."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    found = replay(scenario, "simple-json", lake, folder, "simple", **changefeed)
    found.raw["source"]["messages_per_step"] = 300
    found.raw["spark"] = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
    file = folder / "applier.toml"
    file.write_text(toml(found.raw))
    return found, file


def run(file: Path, *options: str, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    """`applier run --once` as a process of its own."""
    environment = {**os.environ, "APPLIER_KILL_AT": kill_at}
    command = [sys.executable, "-m", "applier", "run", "-c", str(file), "--once", *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)


def stamps(found: Replay, name: TableName) -> list[str]:
    """Resolved ts of the snapshots that changed rows of a table."""
    snapshots = found.catalog.load_table((f"{found.prefix}__{name.database}", name.table)).snapshots()
    summaries = [snapshot.summary.additional_properties for snapshot in snapshots if snapshot.summary]
    return [s["applier.resolved-ts"] for s in summaries if s.get("added-records") or s.get("added-position-deletes")]


@pytest.mark.parametrize(("scenario", "point"), POINTS)
def test_killed_at_a_named_point_and_started_again(scenario: str, point: str, tmp_path: Path) -> None:
    """The tables are equal to the recorded contents, and each step is in each table once."""
    found, file = feed(scenario, tmp_path)

    killed = run(file, kill_at=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    again = run(file)

    assert again.returncode == 0, again.stderr[-2000:]
    assert differences(found, recordings.expected(scenario)[-1]) == []
    for name in found.tables():
        assert max(Counter(stamps(found, name)).values(), default=0) <= 1, f"{name} has a step twice"


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    """With nothing new, every table keeps its head, and a run ends with 0."""
    found, file = feed("txns", tmp_path)
    assert run(file).returncode == 0
    heads = {name: stamps(found, name) for name in found.tables()}

    assert run(file).returncode == 0

    assert {name: stamps(found, name) for name in found.tables()} == heads


def test_bad_message_stops_with_its_place_and_keeps_what_came_before(tmp_path: Path) -> None:
    """Exit 3 with topic, partition and offset, and all before it applied; as a dead letter it is passed and kept."""
    found, file = feed("txns", tmp_path)
    archive = tmp_path / "topic.jsonl"
    with gzip.open(recordings.GOLDEN / "txns" / "simple-json.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    last = max(record["offset"] for record in records if record["partition"] == 0)
    bad = {**records[0], "partition": 0, "offset": last + 1, "value": base64.b64encode(b"no message").decode()}
    archive.write_text("".join(json.dumps(record) + "\n" for record in [*records, bad]))
    found.raw["source"]["archive"] = str(archive)
    file.write_text(toml(found.raw))

    stopped = run(file)

    assert stopped.returncode == 3, stopped.stderr[-2000:]
    assert f"Cannot decode simple message at {bad['topic']}/0 offset {last + 1}" in stopped.stderr
    assert differences(found, recordings.expected("txns")[-1]) == []

    found.raw["changefeed"]["on_bad_message"] = "dead_letter"
    file.write_text(toml(found.raw))
    assert run(file).returncode == 0


def test_configuration_error_is_exit_2(tmp_path: Path) -> None:
    """Every problem is one sentence on standard error."""
    file = tmp_path / "bad.toml"
    file.write_text('[changefeed]\nname = "x"\nprotocl = "simple"\n')

    refused = run(file)

    assert refused.returncode == 2
    assert "changefeed.protocl: unknown key, did you mean protocol?." in refused.stderr


def test_second_applier_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Who holds the changefeed, since when, and the ways out are in one sentence; a dead holder holds nothing."""
    _, file = feed("txns", tmp_path)
    environment = {**os.environ, "APPLIER_KILL_AT": ""}
    command = [sys.executable, "-m", "applier", "run", "-c", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as first:
        assert first.stderr is not None
        try:
            next(line for line in first.stderr if "changefeed taken" in line)
            refused = run(file)
            assert refused.returncode == 3, refused.stderr[-2000:]
            assert f"is held by process {first.pid} on " in refused.stderr
            assert "--take-over" in refused.stderr
        finally:
            first.terminate()
            first.communicate(timeout=60)
        assert first.returncode == 0

    assert run(file).returncode == 0
