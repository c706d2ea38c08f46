"""A lake that was copied never touches the original, whatever is started in the copy."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import recordings
from tests.recovery.process import Applier, Ended, once
from tests.replay import Replay, differences, replay

BEFORE_SPARK = {"run": ("--once",), "park": ("--tables", "*.*", "--why", "a trial"), "status": (), "check": ()}

IN_SPARK: Mapping[str, tuple[str, ...]] = {"forget": (), "plan": ()}


def _lake(catalog: Path, folder: Path) -> dict[str, str]:
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{catalog}/catalog.db", "warehouse": f"{folder}/warehouse"}


def _original(folder: Path, scratch: Path) -> Replay:
    """A lake in a folder, with the recorded feed in it."""
    folder.mkdir()
    found = replay("pk", "simple-json", _lake(folder, folder), scratch, "simple", name="copied")
    assert once(found.raw, scratch).code == 0
    return found


def _ended(
    raw: dict[str, Any], lake: dict[str, str], folder: Path, commands: Mapping[str, tuple[str, ...]]
) -> dict[str, Ended]:
    """What each command ends with."""
    config = {**raw, "catalog": {"name": "lake", **lake}}
    return {name: Applier(config, folder, *options, command=name).wait() for name, options in commands.items()}


def _files(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_of_a_lake_leaves_the_original_alone(tmp_path: Path) -> None:
    """A copy of its folder, and one of its catalog alone; a catalog that was moved goes on."""
    one, copy, other = tmp_path / "one", tmp_path / "copy", tmp_path / "other"
    found = _original(one, tmp_path)
    before = _files(one)
    shutil.copytree(one, copy)
    other.mkdir()
    with closing(sqlite3.connect(one / "catalog.db")) as source, closing(sqlite3.connect(other / "catalog.db")) as to:
        source.backup(to)

    copied = _ended(found.raw, _lake(copy, copy), tmp_path, BEFORE_SPARK)
    catalog = _ended(found.raw, _lake(other, one), tmp_path, BEFORE_SPARK)

    for ended in (copied, catalog):
        check = ended.pop("check")
        assert (check.code, "Verdict: does not fit" in check.said) == (1, True)
        assert {name: end.code for name, end in ended.items()} == {"run": 2, "park": 2, "status": 2}
    for end in copied.values():
        assert f"which is not below catalog.warehouse, {copy}/warehouse: it is a copy" in end.everything
    for end in catalog.values():
        assert f"Catalog {other}/catalog.db is a copy of {one}/catalog.db, which is still there" in end.everything
    assert _files(one) == before
    (one / "catalog.db").unlink()
    found.lake = _lake(other, one)
    assert once({**found.raw, "catalog": {"name": "lake", **found.lake}}, tmp_path).code == 0
    assert differences(found, recordings.expected("pk")[-1]) == []


@pytest.mark.soak
def test_commands_that_look_at_no_checkpoint_before_spark_refuse_a_copy(tmp_path: Path) -> None:
    """They open the catalog by Java alone."""
    one, copy = tmp_path / "one", tmp_path / "copy"
    found = _original(one, tmp_path)
    before = _files(one)
    shutil.copytree(one, copy)

    ended = _ended(found.raw, _lake(copy, copy), tmp_path, IN_SPARK)

    assert {name: end.code for name, end in ended.items()} == dict.fromkeys(IN_SPARK, 2)
    assert all("it is a copy of the catalog of another lake" in end.everything for end in ended.values())
    assert _files(one) == before
