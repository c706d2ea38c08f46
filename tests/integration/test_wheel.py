"""The wheel without the tree around it: nothing is missing from it, and the first commands work at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from applier.runtime.versions import commit
from tests.integration.wheel import ROOT, built
from tests.unit.runtime.test_terminal import left

pytestmark = pytest.mark.spark


def test_the_first_commands_from_the_wheel_at_a_terminal(tmp_path: Path) -> None:
    """`run` says its first line before Spark starts, each step is a line, and no bar or trace stays behind."""
    code, folder = tmp_path / "code", tmp_path / "empty" / "examples" / "quickstart"
    with zipfile.ZipFile(built(tmp_path)) as wheel:
        wheel.extractall(code)
    assert _files(code / "applier") - {"commit"} == _files(ROOT / "applier")
    shutil.copytree(ROOT / "examples" / "quickstart", folder)
    found = subprocess.run(
        [sys.executable, "-c", "import applier; print(applier.__file__)"],
        cwd=folder,
        env=_environment(code),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(code)

    # The copy has no checkout beside it: the build gave it the commit.
    assert _said(code, folder, "--version")[0].startswith(f"applier {version('applier')} (commit {commit()}, ")
    assert _said(code, folder, "check", "-c", "applier.toml")[-1] == "Verdict: fits (exit code 0)"
    began, pieces = at_a_terminal(code, folder, "run", "--once", "-c", "applier.toml")
    assert _said(code, folder, "status", "-c", "applier.toml")[0].startswith("complete · all 5 tables are true")

    first = next(seconds for seconds, text in pieces if "starting Spark …" in text)
    taken = next(seconds for seconds, text in pieces if "changefeed taken" in text)
    lines = left("".join(text for _, text in pieces))
    assert began <= first < taken
    assert lines[0].endswith("starting Spark …")
    assert all(re.match(r"\d\d:\d\d:\d\d [a-zS]", line) for line in lines)
    steps = [line for line in lines if " step " in line]
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d step 5 · 45 rows · 5 tables · .* s · lag \d+(\.\d)? days · backlog 0", steps[-1]
    )
    assert max(map(len, steps)) <= 80
    assert [line for line in lines if "ddl · table bank.orders · decision applied" in line]


def at_a_terminal(code: Path, folder: Path, *command: str) -> tuple[float, list[tuple[float, str]]]:
    """Run applier at a terminal of 80 columns; what it wrote, each piece with the time at which it came."""
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    began, pieces = time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, "-m", "applier", *command],
        cwd=folder,
        stdin=its,
        stdout=its,
        stderr=its,
        env=_environment(code),
    ) as process:
        os.close(its)
        while True:
            try:
                piece = os.read(own, 65_536)
            except OSError:  # Linux reports the end of a terminal so.
                break
            pieces.append((time.monotonic(), piece.decode(errors="replace")))
        os.close(own)
    assert process.returncode == 0, pieces
    return began, pieces


def _files(package: Path) -> set[str]:
    return {str(it.relative_to(package)) for it in package.rglob("*") if it.is_file() and it.suffix != ".pyc"}


def _environment(code: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(code)}


def _said(code: Path, folder: Path, *command: str) -> list[str]:
    """The lines of a command that ends well."""
    done = subprocess.run(
        [sys.executable, "-m", "applier", *command],
        cwd=folder,
        env=_environment(code),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()
