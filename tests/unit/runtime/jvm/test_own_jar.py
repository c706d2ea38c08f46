"""Our classes of Java: compiled once, for each version of theirs, where the folder can be written."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from applier.errors import ConfigError
from applier.runtime.jvm import jars, own_jar

pytestmark = pytest.mark.slow


def _against() -> list[Path]:
    return [jar for jar in jars.fetch("spark") if not jar.name.startswith("applier-")]


def test_the_jar_is_built_once_and_holds_every_class(tmp_path: Path) -> None:
    """One class a source, with those that it encloses; a second call finds it."""
    jar = own_jar.built(_against(), tmp_path)
    with zipfile.ZipFile(jar) as archive:
        names = set(archive.namelist())
    made = jar.stat().st_mtime_ns

    assert {f"applier/{source.stem}.class" for source in own_jar.SOURCES.glob("*.java")} <= names
    assert own_jar.built(_against(), tmp_path) == jar
    assert jar.stat().st_mtime_ns == made
    assert [path.name for path in tmp_path.iterdir()] == [jar.name], "nothing is left of the making"


def test_other_jars_get_a_jar_of_their_own(tmp_path: Path) -> None:
    """A class fits the library that it was compiled against."""
    against = _against()
    first = own_jar.built(against, tmp_path)
    (tmp_path / "more.jar").write_bytes(first.read_bytes())

    assert own_jar.built([*against, tmp_path / "more.jar"], tmp_path) != first


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    """With the ways out."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"Cannot write .*applier-.*\.jar: .*; run `python -m applier\.runtime"):
        own_jar.built(_against(), tmp_path / "file")
