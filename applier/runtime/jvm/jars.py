"""Finds the jars of a group, verified; downloads them the first time.

A lock is a folder with `jars.xml` (coordinates, for the Ivy that ships inside pyspark) and `jars.sha256` (one line a
file, as sha256sum writes them); applier's own lock lies beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from applier.errors import ApplierError, ConfigError, TransientError
from applier.runtime.jvm import java_home, own_jar
from applier.runtime.jvm.bare_jvm import spark_jars
from applier.runtime.logs import logger, set_up_logging
from applier.runtime.terminal import progress

OWN = Path(__file__).parent
"""The lock of the jars that applier itself runs on: groups `spark`, `s3` and `postgresql`."""

_MEGABYTES = {"spark": 70, "s3": 69, "postgresql": 1}
"""Size of our own groups, for people who wait."""

_POSTGRESQL = "jdbc:postgresql:"

DATABASES = ("jdbc:sqlite:", _POSTGRESQL)
"""How the addresses of databases begin whose JDBC drivers are among the groups."""

_FETCH_SECONDS = 900

_LOOK_SECONDS = 0.2
"""Time between two looks at what was fetched."""


def fetch(group: str, lock: Path = OWN, into: Path | None = None) -> list[Path]:
    """Return the jars of a group, each compared with its SHA-256, after fetching them where one is missing or differs.

    Our own classes are a jar of the group `spark`, compiled at the first use.

    Several processes may do so at once: files appear under their name only when whole and verified. A group is a `conf`
    of the lock's jars.xml; it has a subfolder of `into`, or of `home(lock)` if that is absent.

    Raises:
        ConfigError: The group is unknown, no Java was found, the folder cannot be written, or Maven Central gave a file
            with another SHA-256.
        TransientError: Maven Central did not answer.
    """
    sums = _sums(lock, group)
    folder = (into or home(lock)) / group
    if _differing(folder, sums):
        size = _MEGABYTES.get(group)
        logger().info("fetching jars, once", group=group, files=len(sums), megabytes=size, into=str(folder))
        _download(group, lock, folder, sums)
    found = [folder / name for name in sorted(sums)]
    return [*found, own_jar.built(found, folder)] if (lock, group) == (OWN, "spark") else found


def groups(catalog: Mapping[str, str]) -> list[str]:
    """The groups that a catalog of these properties needs."""
    is_s3, is_in_postgresql = "S3FileIO" in catalog.get("io-impl", ""), catalog.get("uri", "").startswith(_POSTGRESQL)
    return ["spark", *(["s3"] if is_s3 else []), *(["postgresql"] if is_in_postgresql else [])]


def missing(group: str) -> list[str]:
    """File names of a group that are still to be fetched. Raises ConfigError if there is no such group."""
    return _differing(home() / group, _sums(OWN, group))


def names(group: str, lock: Path = OWN) -> list[str]:
    """File names of a group. Raises ConfigError if there is no such group."""
    return sorted(_sums(lock, group))


def home(lock: Path = OWN) -> Path:
    """Where the jars of a lock are kept: $APPLIER_JARS, or a folder of the user's cache named after its contents."""
    if os.environ.get("APPLIER_JARS"):
        return Path(os.environ["APPLIER_JARS"]).absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    contents = hashlib.sha256((lock / "jars.sha256").read_bytes()).hexdigest()
    return cache / "applier" / f"jars-{contents[:12]}"


def _sums(lock: Path, group: str) -> dict[str, str]:
    lines = (lock / "jars.sha256").read_text(encoding="ascii").splitlines()
    pairs = [(path.split("/", 1), digest) for digest, path in (line.split() for line in lines)]
    found = {name: digest for (owner, name), digest in pairs if owner == group}
    if not found:
        known = ", ".join(sorted({owner for (owner, _), _ in pairs}))
        raise ConfigError([f"There is no group of jars {group!r}; there are {known}."])
    return found


def _download(group: str, lock: Path, folder: Path, sums: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    except OSError as error:
        problem = f"Cannot write the jars to {folder}: {error.strerror}; point APPLIER_JARS to a folder that has them."
        raise ConfigError([problem]) from error
    try:
        _run_ivy(group, lock, staging)
        if differing := _differing(staging / "jars", sums):
            raise ConfigError([f"{name} as fetched has not the SHA-256 that jars.sha256 pins." for name in differing])
        for name in sums:
            (staging / "jars" / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _run_ivy(group: str, lock: Path, staging: Path) -> None:
    """Let Ivy put the files of a group into `staging/jars`; it also checks them against Maven's own checksums."""
    settings = os.environ.get("APPLIER_IVY_SETTINGS") or OWN / "ivysettings.xml"
    pattern = staging / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
    options = ["-settings", settings, "-ivy", lock / "jars.xml", "-confs", group, "-cache", staging / "cache"]
    command = [java_home.find() / "bin" / "java", "-jar", _ivy(), "-warn", *options, "-retrieve", pattern]
    deadline = time.monotonic() + _FETCH_SECONDS
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as ivy,
        progress(f"fetching {group} jars", "MB") as bar,
    ):
        while ivy.poll() is None:
            if time.monotonic() > deadline:
                ivy.kill()
                raise _unreachable(group, f"no end after {_FETCH_SECONDS} seconds")
            bar(_megabytes(staging / "cache"), _MEGABYTES.get(group, 0))
            with suppress(subprocess.TimeoutExpired):
                ivy.wait(_LOOK_SECONDS)
        if ivy.returncode:
            output.seek(0)
            raise _unreachable(group, _reason(output.read()))


def _megabytes(cache: Path) -> int:
    """What Ivy has so far; a file that is still coming ends with `.part`, and may be renamed at any time."""
    found = 0
    for file in cache.rglob("*.jar*"):
        with suppress(FileNotFoundError):
            found += file.stat().st_size
    return found // 1_000_000


def _ivy() -> Path:
    found = list(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise ConfigError(["pyspark is not installed with its jars (no jars/ivy-*.jar); install requirements.lock."])
    return found[0]


def _unreachable(group: str, reason: str) -> TransientError:
    hint = (
        f"run `python -m applier.runtime.jvm.jars --into DIR {group}` where there is a network, bring DIR here and set "
        "APPLIER_JARS=DIR; behind a mirror, set APPLIER_IVY_SETTINGS to an ivysettings.xml that names it."
    )
    return TransientError(f"Cannot fetch the {group} jars from Maven Central: {reason}.", hint)


def _reason(output: str) -> str:
    """The line of Ivy's report that shows the most: what broke, before what is missing because of it."""
    lines = [line.strip(" \t:.") for line in output.splitlines()]
    signs = ("Exception", "error", "not found")
    return next((line for sign in signs for line in lines if sign in line), "Ivy gave no reason")


def _differing(folder: Path, sums: dict[str, str]) -> list[str]:
    return [name for name, digest in sums.items() if _digest(folder / name) != digest]


def _digest(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """`python -m applier.runtime.jvm.jars [--lock FOLDER] [--into DIR] [GROUP …]`: fetch groups, verify every file."""
    parser = argparse.ArgumentParser(
        prog="python -m applier.runtime.jvm.jars", description="Fetch and verify pinned jars."
    )
    parser.add_argument(
        "groups", nargs="*", default=["spark"], metavar="GROUP", help="spark (default), s3 or postgresql"
    )
    parser.add_argument("--into", type=Path, help="folder for the groups; default $APPLIER_JARS or the user's cache")
    parser.add_argument(
        "--lock", type=Path, default=OWN, help="folder with another jars.xml, jars.sha256, ivysettings.xml"
    )
    arguments = parser.parse_args()
    set_up_logging()
    try:
        for group in arguments.groups:
            jars = fetch(group, arguments.lock, arguments.into)
            print(f"{group}: {len(jars)} files in {jars[0].parent}")
    except ApplierError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
