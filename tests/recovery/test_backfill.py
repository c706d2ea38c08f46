"""kill -9 on the way of a repair: the same command, given again, goes on and ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.runtime.failpoints import KILL_AT
from tests import recordings
from tests.recovery.process import SECONDS, once, toml
from tests.replay import differences, replay

_SPARK = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.ui.enabled": "false"}

POINTS = ("data-files-staged:3", "copy-shown:2")
"""Between two commits to copies, and when readers see the repair of some tables alone."""


def backfill(config: Mapping[str, Any], folder: Path, *options: str, kill_at: str = "") -> tuple[int, str]:
    """`applier backfill` as a process: its exit code, and what it said."""
    file = folder / "applier.toml"
    file.write_text(toml({"spark": _SPARK, **config}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "applier", "backfill", "-c", str(file), "--log-level", "info", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, KILL_AT: kill_at},
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_repair_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Until it is shown readers see nothing of it, and at the end every cell is what SQL showed."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    found = replay("txns", "simple-json", lake, tmp_path, "simple")
    # A table of format 2 is one that PyIceberg can damage.
    found.raw["tables"]["format_version"] = 2
    assert once(found.raw, tmp_path).code == 0
    name = TableName("bank", "accounts")
    found.catalog.load_table(found.identifier(name)).delete()
    assert found.contents(name) == []
    found.raw["source"]["messages_per_step"] = 500
    command = ("--from", "beginning", "--repair")

    for number, point in enumerate(POINTS):
        code, said = backfill(found.raw, tmp_path, *command, kill_at=point)
        assert code == -signal.SIGKILL, f"never came to {point}: {said}"
        assert ("backfill goes on" in said) == (number > 0)
        assert point.startswith("copy-shown") or found.contents(name) == []

    code, said = backfill(found.raw, tmp_path, *command)

    assert (code, "Readers see it now." in said) == (0, True), said
    assert differences(found, recordings.expected("txns")[-1]) == []
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert "is gone" in next(event for event in events if event["event"] == "changefeed taken")["because"]
    assert once(found.raw, tmp_path).code == 0
    assert differences(found, recordings.expected("txns")[-1]) == []
