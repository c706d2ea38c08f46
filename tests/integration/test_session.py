"""The Spark session as a user meets it: quiet, discreet, and gone when its process is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.runtime.jvm import jars

_SCRIPT = """
import json, os, sys
from applier.runtime.jvm.spark_session import build_session

lake = {"uri": f"jdbc:sqlite:{os.getcwd()}/lake/catalog.db", "warehouse": f"{os.getcwd()}/lake/warehouse"}
catalog = {"type": "jdbc", "jdbc.password": "hush"} | lake
session = build_session("quiet", {"spark.master": "local[1]", "spark.driver.memory": "1g"}, "lake", catalog)
session.sql("CREATE NAMESPACE lake.shop")
session.sql("CREATE TABLE lake.shop.t (id BIGINT) USING iceberg")
print(session.sparkContext._gateway.proc.pid, flush=True)
for line in sys.stdin:
    session.sql("INSERT INTO lake.shop.t VALUES (1)")
    print(session.table("lake.shop.t").count(), flush=True)
"""

pytestmark = pytest.mark.spark


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def test_a_session_starts_quietly_and_ends_with_its_process(tmp_path: Path) -> None:
    """Nothing is printed, no secret is on a command line, Ctrl-C spares the JVM, and kill -9 of Python ends it."""
    jars.fetch("spark")
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        jvm = int(process.stdout.readline())
        command_line = Path(f"/proc/{jvm}/cmdline").read_text(encoding="utf-8")
        assert "SparkSubmit" in command_line
        assert "hush" not in command_line
        assert os.getpgid(jvm) != os.getpgid(process.pid)

        os.kill(jvm, signal.SIGINT)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "1\n"
        assert (tmp_path / "lake" / "catalog.db").is_file()

        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while _alive(jvm) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not _alive(jvm)
    assert (tmp_path / "stderr").read_text(encoding="utf-8") == ""


def test_workers_run_on_the_python_of_the_driver(spark: SparkSession) -> None:
    """A function in a task finds the driver's own interpreter, so its packages too."""
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()

    assert found == [sys.executable]
