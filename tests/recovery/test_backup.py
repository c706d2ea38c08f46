"""What docs/backup.md says is done here to the letter: with its commands, and its block of Python."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recordings
from tests.recovery.process import once
from tests.replay import differences, replay

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text("utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def commands(tmp_path: Path) -> list[str]:
    """The commands of the page, in a folder of their own in place of that of a machine."""
    for folder in ("srv", "backup", "mnt/large"):
        (tmp_path / folder).mkdir(parents=True)
    found = [re.sub(r"(?<= )/(?=srv|backup|mnt)", f"{tmp_path}/", block) for block in _blocks("bash")]
    assert len(found) == 3
    return found


@pytest.mark.soak
def test_a_lake_is_backed_up_restored_moved_and_registered_again(tmp_path: Path, commands: list[str]) -> None:
    """After each, `run` goes on, and every cell is what SQL showed."""
    backup, restore, move = commands
    lake = tmp_path / "srv" / "lake"
    lake.mkdir()
    uri = f"jdbc:sqlite:{lake}/catalog.db"
    where = {"type": "jdbc", "uri": uri, "warehouse": f"{lake}/warehouse"}
    found = replay("txns", "simple-json", where, tmp_path, "simple", name="saved")
    feed = tmp_path / "feed.jsonl"
    found.raw["source"]["archive"] = str(feed)
    with gzip.open(recordings.GOLDEN / "txns" / "simple-json.jsonl.gz", "rt") as file:
        lines = list(file)

    end = recordings.expected("txns")[-1]

    def run() -> None:
        ended = once(found.raw, tmp_path)
        assert ended.code == 0, ended.everything

    feed.write_text("".join(lines[: len(lines) // 2]))
    run()
    _shell(backup)
    feed.write_text("".join(lines))
    run()
    _shell(restore)
    assert differences(found, end) != []
    run()
    assert differences(found, end) == []
    _shell(move)
    run()
    assert lake.is_symlink()
    (lake / "catalog.db").unlink()
    lost = once(found.raw, tmp_path)
    assert lost.code == 3
    assert "their catalog is another one, or it is lost" in lost.everything
    (script,) = _blocks("python")
    uri = f"sqlite:///{lake}/catalog.db"
    subprocess.run([sys.executable, "-c", script, uri, f"{lake}/warehouse"], check=True, timeout=120)
    run()
    found._seen.clear()
    assert differences(found, end) == []


def _shell(commands: str) -> None:
    subprocess.run(["/bin/bash", "-euc", commands], check=True, timeout=60)
