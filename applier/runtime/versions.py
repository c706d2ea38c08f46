"""The versions of applier, and of what decides how it behaves."""

from __future__ import annotations

import platform
import re
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from applier.runtime.jvm import jars

_ICEBERG = re.compile(r"iceberg-spark-runtime-.*-([\d.]+)\.jar")
_PACKAGE = Path(__file__).parents[1]
_UNKNOWN = "unknown"


def versions() -> tuple[str, str, str, str]:
    """Those of applier, Python, Spark and Iceberg's Spark runtime; the last is the one that is pinned."""
    iceberg = next(match[1] for name in jars.names("spark") if (match := _ICEBERG.fullmatch(name)))
    return version("applier"), platform.python_version(), version("pyspark"), iceberg


@cache
def commit(package: Path = _PACKAGE) -> str:
    """The commit that a package was built from, or that its checkout is at, with `-dirty` where files differ from it.

    `unknown` where neither shows one: a copy without `.git`, or a machine without git.
    """
    built, root = package / "commit", package.parent
    if built.exists():
        return built.read_text(encoding="ascii").strip() or _UNKNOWN
    # In a repository of the user, Git would show the commit of that one.
    if not (root / ".git").exists() or not (root / "pyproject.toml").exists():
        return _UNKNOWN
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return _UNKNOWN
    return done.stdout.strip() or _UNKNOWN
