"""Tools that check what is deployed; `make services` fetches them where they can be had."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

CONFIG = """
[changefeed]
name = "shop"
protocol = "simple"
[source.kafka]
topics = ["shop"]
"kafka.bootstrap.servers" = "kafka:9092"
[catalog]
name = "lake"
type = "rest"
uri = "http://catalog:8181"
"""
"""A configuration that is deployed; what serves it and runs it is for the deployment to add."""

_PATH = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])


def tool(name: str) -> str:
    """Path of a tool; the test is skipped where it is missing."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"There is no {name}: run `make services`.")
    return found
