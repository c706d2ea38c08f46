"""An archive of Spark's classes, parsed and verified once, that every later JVM on this machine maps into memory.

Java calls it class-data sharing. It takes a fifth off the CPU time of a start and some seconds off its wait.
`applier.commands.cds_training` makes it; without one, or with one of another Java, Spark starts as ever.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from applier.runtime.jvm import java_home as java

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""The JVM says on standard output that it leaves an archive alone, and log lines are what belongs there."""


def place(class_path: Sequence[Path]) -> Path:
    """Where the archive for these jars is kept: in the Python environment that Spark belongs to.

    An archive fits one Java, one Spark and one class path, so each has a file of its own.

    Raises:
        ConfigError: No Java was found.
    """
    spec = importlib.util.find_spec("pyspark")
    java_home = java.find()
    release = java_home / "release"
    parts = [
        str(java_home),
        release.read_text(encoding="utf-8", errors="replace") if release.is_file() else "",
        str(spec.origin if spec else ""),
        *(f"{jar} {_stamp(jar)}" for jar in class_path),
    ]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return Path(sys.prefix) / "share" / "applier" / f"classes-{key[:12]}.jsa"


def java_options(class_path: Sequence[Path]) -> str:
    """Options of the JVM that uses the archive; empty if there is none. Raises ConfigError as `place` does."""
    archive = place(class_path)
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if archive.is_file() else ""


def joined(class_path: Sequence[Path], *others: str | None) -> str:
    """A class path as Java takes it, ours first: the archive fits no other order."""
    return os.pathsep.join([*map(str, class_path), *(other for other in others if other)])


def _stamp(jar: Path) -> str:
    """What Java also compares of a jar."""
    if not jar.is_file():
        return ""
    found = jar.stat()
    return f"{found.st_size} {found.st_mtime_ns}"
