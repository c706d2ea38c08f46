"""A lake that was copied never touches the original, whatever is started in the copy."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests import recordings
from tests.recovery.process import Applier, Ended, once
from tests.replay import differences, replay

COMMANDS = {
    "run": ("--once",),
    "park": ("--tables", "*.*", "--why", "a trial"),
    "status": (),
    "check": (),
    "forget": (),
}


def _lake(catalog: Path, folder: Path) -> dict[str, str]:
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{catalog}/catalog.db", "warehouse": f"{folder}/warehouse"}


def _ended(raw: dict[str, Any], lake: dict[str, str], folder: Path) -> dict[str, Ended]:
    """What each command ends with."""
    config = {**raw, "catalog": {"name": "lake", **lake}}
    return {command: Applier(config, folder, *options, command=command).wait() for command, options in COMMANDS.items()}


def _files(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_of_a_lake_leaves_the_original_alone(tmp_path: Path) -> None:
    """A copy of its folder, and one of its catalog alone; a catalog that was moved goes on."""
    one, copy, other = tmp_path / "one", tmp_path / "copy", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    found = replay("pk", "simple-json", _lake(one, one), tmp_path, "simple", name="copied")
    assert once(found.raw, tmp_path).code == 0
    before = _files(one)
    shutil.copytree(one, copy)
    with closing(sqlite3.connect(one / "catalog.db")) as source, closing(sqlite3.connect(other / "catalog.db")) as to:
        source.backup(to)

    copied = _ended(found.raw, _lake(copy, copy), tmp_path)
    catalog = _ended(found.raw, _lake(other, one), tmp_path)

    assert {name: end.code for name, end in {**copied, **catalog}.items()} == {**dict.fromkeys(COMMANDS, 2), "check": 1}
    assert "Verdict: does not fit" in copied.pop("check").said
    assert "Verdict: does not fit" in catalog.pop("check").said
    for end in copied.values():
        assert f"which is not below catalog.warehouse, {copy}/warehouse: it is a copy" in end.everything
    for end in catalog.values():
        assert f"Catalog {other}/catalog.db is a copy of {one}/catalog.db, which is still there" in end.everything
    assert _files(one) == before
    (one / "catalog.db").unlink()
    found.lake = _lake(other, one)
    assert once({**found.raw, "catalog": {"name": "lake", **found.lake}}, tmp_path).code == 0
    assert differences(found, recordings.expected("pk")[-1]) == []
