"""The demo whose feed goes on, as `make demo-live` runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]

_ROOT = Path(__file__).parents[2]


def test_the_live_demo_shows_new_rows_and_leaves_no_process(tmp_path: Path) -> None:
    """The page has steps after the recording, no snapshot splits a transaction, and Ctrl-C ends the broker as well."""
    shutil.copytree(_ROOT / "examples", tmp_path / "examples")
    with demo(tmp_path) as process:
        printed = introduction(process)
        address, broker = printed["Page"].split()[0], re.findall(r"DEMO_BROKER=\S+:(\d+)", printed["Status"])[0]
        shown = next(view for view in views(address) if len(view["steps"]) > 3)
        tables = subprocess.run(
            [sys.executable, "examples/kafka/query.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0

    assert (shown["verdict"], shown["summary"]) == ("fresh", "all 5 tables are true")
    snapshots = re.findall(r"as of .*: 40 rows, total (.*)", tables)
    assert (len(snapshots) > 1, len(set(snapshots))) == (True, 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(broker))).close()


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, running on the examples of a folder; it is told to end at the end."""
    command = [sys.executable, "-m", "examples.kafka.run"]
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def introduction(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the demo prints before applier starts: `Page`, `Status`, `Tables`, `End`."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        name, _, text = line.strip().partition(": ")
        found[name] = text.strip()
        if name == "End":
            break
    return found


def views(address: str) -> Iterator[Any]:
    """What `/status.json` says, again and again, from when there is a page."""
    while True:
        try:
            answer = requests.get(f"{address}status.json", timeout=10)
        except requests.ConnectionError:
            answer = None
        if answer is not None and answer.ok:
            yield answer.json()
        time.sleep(0.2)
