"""Prometheus' own tool, which checks metrics and runs the tests of alerts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

PROMTOOL = shutil.which(
    "promtool", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
)
"""`make services` fetches it where it is missing; None where it cannot be had."""

NEEDS_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="There is no promtool: run `make services`.")
