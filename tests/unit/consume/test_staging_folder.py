"""The temporary files of a process, and those that one left which was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from applier.consume.staging_folder import staging_folder

KILLED = """
import os, signal
from applier.consume.staging_folder import staging_folder
with staging_folder() as folder:
    (folder / "messages.parquet").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start removes the folder of a process that is gone, and none that is in use or not ours."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "applier-other").mkdir()
    here = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED], env=here, check=False)
    left = {path.name for path in tmp_path.iterdir()}

    with staging_folder() as first, staging_folder() as second:
        found = {path.name for path in tmp_path.iterdir()}

    assert len(left) == 2
    assert found == {first.name, second.name, "applier-other"}
    assert [path.name for path in tmp_path.iterdir()] == ["applier-other"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs the rights to give a folder away")
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is called, and whatever is in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "applier-staging-other"
    other.mkdir()
    os.chown(other, 65_534, 65_534)

    with staging_folder():
        assert other.is_dir()
