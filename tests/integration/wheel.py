"""A wheel of this tree: what a user installs, without the files that only the tree has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(folder: Path, tree: Path = ROOT) -> Path:
    """Build it into a folder, from this tree or a copy of it, by the backend that pip calls; needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=tree, capture_output=True, check=True)
    (wheel,) = folder.glob("applier-*.whl")
    return wheel
