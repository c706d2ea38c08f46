"""A run at a terminal, as a person sees it."""

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
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.runtime.jvm import spark_session
from tests.unit.runtime.test_terminal import left

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).parents[2]


def test_a_run_at_a_terminal(tmp_path: Path) -> None:
    """The first line comes before Spark, each step is a line, and no bar or trace stays behind."""
    shutil.copytree(_ROOT / "examples", tmp_path / "examples")
    began, chunks = at_a_terminal("run", "--once", "-c", "examples/quickstart/applier.toml", folder=tmp_path)

    first = next(seconds for seconds, text in chunks if "starting Spark …" in text)
    taken = next(seconds for seconds, text in chunks if "changefeed taken" in text)
    lines = left("".join(text for _, text in chunks))
    assert began <= first < taken
    assert lines[0].endswith("starting Spark …")
    assert all(re.match(r"\d\d:\d\d:\d\d [a-z]", line) for line in lines)
    steps = [line for line in lines if " step " in line]
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d step 5 · 45 rows · 5 tables · .* s · lag \d+(\.\d)? days · backlog 0", steps[-1]
    )
    assert max(map(len, steps)) <= 80
    assert [line for line in lines if "ddl · table bank.orders · decision applied" in line]


def at_a_terminal(*command: str, folder: Path) -> tuple[float, list[tuple[float, str]]]:
    """Run applier at a terminal of 80 columns; what it wrote, each piece with the time at which it came."""
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(_ROOT)}
    environment.pop("COLUMNS", None)
    began, pieces = time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, "-m", "applier", *command], cwd=folder, stdin=its, stdout=its, stderr=its, env=environment
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


def test_the_jvm_logs_a_line_an_event(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of the message and of its exception, without a trace, whatever the message holds."""
    lines: list[str] = []
    monkeypatch.setattr(spark_session, "_log", lines.append)
    java = spark.sparkContext._jvm
    assert java is not None
    writer: Any = java.org.apache.logging.log4j.LogManager.getLogger("org.example.Writer")
    writer.error("cannot write\nat line two", java.java.lang.IllegalStateException("disk\nfull"))
    writer.warn("plain", java.java.lang.IllegalStateException("disk\nfull"))
    writer.warn("done")
    while "WARN Writer: done" not in lines:
        time.sleep(0.01)

    assert [line for line in lines if "Writer" in line or "at" in line.split()[:1]] == [
        "ERROR Writer: cannot write",
        "WARN Writer: plain java.lang.IllegalStateException: disk",
        "WARN Writer: done",
    ]
