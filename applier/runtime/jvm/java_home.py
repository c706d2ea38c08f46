"""Finds a Java that Spark 4.1 runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from applier.errors import ConfigError

SUPPORTED = (17, 21)
"""Releases that both Spark 4.1 and Iceberg 1.12 are built and tested for."""

_WAY_OUT = (
    "install openjdk-17-jre-headless or openjdk-21-jre-headless (apt), java-21-openjdk-headless (dnf) or openjdk@21 "
    "(brew), or set JAVA_HOME to the folder of one."
)


def find(environment: Mapping[str, str] | None = None, system_homes: Path = Path("/usr/lib/jvm")) -> Path:
    """Return the home directory of Java 17 or 21: JAVA_HOME, then `java` on the PATH, then the system's folder.

    Raises:
        ConfigError: There is no such Java; it names those that were found and cannot be used.
    """
    variables = os.environ if environment is None else environment
    named = variables.get("JAVA_HOME")
    unfit = [f"{named} (no bin/java)"] if named and not Path(named, "bin", "java").is_file() else []
    for home in _homes(variables, system_homes):
        found = release(home)
        if found in SUPPORTED:
            return home
        unfit.append(f"{home} (Java {found or 'unknown'})")
    places = f"JAVA_HOME, PATH and {system_homes}"
    others = f"have only {', '.join(unfit)}" if unfit else "have none"
    raise ConfigError([f"Spark needs Java {' or '.join(map(str, SUPPORTED))}, but {places} {others}; {_WAY_OUT}"])


def _homes(variables: Mapping[str, str], system_homes: Path) -> list[Path]:
    homes = [Path(variables["JAVA_HOME"])] if variables.get("JAVA_HOME") else []
    if on_path := shutil.which("java", path=variables.get("PATH", "")):
        homes.append(Path(on_path).resolve().parent.parent)
    homes += sorted(system_homes.iterdir()) if system_homes.is_dir() else []
    return [home for home in dict.fromkeys(map(Path.resolve, homes)) if (home / "bin" / "java").is_file()]


def release(home: Path) -> int | None:
    """Feature release of a Java; asks `java` itself where its `release` file is missing."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _answer(home)
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return int(match[1]) if match else None


def _answer(home: Path) -> str:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def main() -> int:
    """`python -m applier.runtime.jvm.java_home`: print the home, or say in one sentence what is missing."""
    try:
        print(find())
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
