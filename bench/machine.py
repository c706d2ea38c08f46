"""Nothing in, a description of this machine and of what runs on it out: the head of every result."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from applier.runtime.jvm import jars, java_home
from bench.lake import CORES, MEMORY
from tests.services import kafka

_PACKAGES = ("pyspark", "pyarrow", "pyiceberg", "polars", "confluent-kafka")


def describe() -> str:
    """Machine, versions and command, a line each."""
    ours = [jar.stem for jar in jars.fetch("spark")]
    broker = [jar.stem for jar in jars.fetch("kafka", kafka.LOCK) if jar.name.startswith("kafka_")]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return "\n".join(
        [
            f"date      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
            f"command   python -m bench.run {shlex.join(sys.argv[1:])}",
            f"machine   {os.cpu_count()} x {_processor()}, {_memory_gb():.0f} GB, Linux {platform.release()}",
            f"load      {load} (1, 5 and 15 minutes) before the start",
            f"contender {CORES} cores, {MEMORY} heap; peers the same cores, 4g",
            f"java      {_java()}",
            f"python    {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in _PACKAGES)}",
            f"jars      {', '.join([*ours, *broker])}",
        ]
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _java() -> str:
    done = subprocess.run([java_home.find() / "bin" / "java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"
