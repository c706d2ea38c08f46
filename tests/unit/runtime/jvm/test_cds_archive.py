"""The archive of classes: one for each class path, taken by the JVM, and no hindrance where it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from applier.runtime.jvm import cds_archive, jars


def test_another_class_path_has_another_archive(tmp_path: Path) -> None:
    """So has a jar that was replaced: the JVM would leave the archive alone."""
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"a")
    before = cds_archive.place([jar])
    jar.write_bytes(b"ab")

    assert len({before, cds_archive.place([jar]), cds_archive.place([])}) == 3


def test_without_an_archive_there_are_no_options(tmp_path: Path) -> None:
    """Spark starts as ever."""
    assert not cds_archive.java_options([tmp_path / "none.jar"])


def test_our_jars_come_first() -> None:
    """The archive fits a class path that begins as it did when it was made."""
    assert cds_archive.joined([Path("/a.jar"), Path("/b.jar")], None, "/mine/*") == "/a.jar:/b.jar:/mine/*"


_START = """
from pathlib import Path
from applier.runtime.jvm.spark_session import build_session, end_jvm
from pyspark import SparkContext

session = build_session("archive", {"spark.master": "local[1]"}, "lake", {"type": "jdbc", "uri": "jdbc:sqlite:a.db"})
print(Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
session.stop()
end_jvm(60)
"""


@pytest.mark.slow
def test_spark_runs_on_the_archive_that_the_set_up_made(tmp_path: Path) -> None:
    """The JVM maps it, so it fits Java, Spark and the class path."""
    archive = cds_archive.place(jars.fetch("spark"))
    assert archive.is_file(), "run make setup: it makes the archive of classes"

    done = subprocess.run(
        [sys.executable, "-c", _START],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )

    assert str(archive) in done.stdout
