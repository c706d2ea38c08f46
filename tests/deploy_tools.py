"""Tools that check what is deployed; `make services` fetches them where they can be had."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

_PATH = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])


def tool(name: str) -> str:
    """Path of a tool; the test is skipped where it is missing."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"There is no {name}: run `make services`.")
    return found
