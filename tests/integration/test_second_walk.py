"""The second day of a user: what the first left is backed up, lost, restored, and continued by the next release."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from tests import expected, recordings
from tests.integration.test_kafka_source import produce
from tests.integration.walk import Walk, commands
from tests.integration.wheel import ROOT, built
from tests.replay import plain
from tests.services.kafka import send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.network, pytest.mark.soak]

_TABLES = ("acct", "evt", "tag")
_PREFIX = "second-"


@pytest.mark.timeout(900)
def test_a_lake_is_restored_upgraded_and_rolled_back_as_the_pages_say(kafka: Broker, tmp_path: Path) -> None:
    """In three parts of a feed: after each command the tables are whole, in the end each cell is that of upstream."""
    feed = list(recordings.records("midstream", "canal-json-ext"))
    third = len(feed) // 3
    topics = produce(kafka.bootstrap, feed[:third], topic_prefix=_PREFIX)
    with tarfile.open(recordings.GOLDEN / "midstream" / "dump-0-csv.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    walk = Walk(tmp_path)
    backup, restore, _ = _blocks(walk, tmp_path)

    install, init, _, run = commands(ROOT / "README.md", "## Install")
    walk.does(install.replace("pip install .", f"pip install {built(tmp_path)}"), "install")
    walk.does(init.replace("broker:9092", kafka.bootstrap).replace("--topics shop", f"--topics {topics[0]}"), "init")
    walk.does(f"applier load -c applier.toml --from {tmp_path}/dump-0-csv", "load")
    run += " --once"
    walk.does(run, "run")

    walk.does(backup, "backup")
    send(kafka.bootstrap, feed[third : 2 * third], _PREFIX)
    walk.does(run, "run on")
    before = _rows(walk)
    walk.does(restore, "restore")
    assert _rows(walk) != before
    walk.does(run, "run after the restore")
    assert _rows(walk) == before

    walk.does(f"pip install {_next_release(tmp_path)}", "upgrade")
    assert walk.does("applier --version")[0].startswith("applier 0.2.0")
    send(kafka.bootstrap, feed[2 * third :], _PREFIX)
    walk.does(run, "run of the next release")
    last = recordings.expected("midstream")[-1]["tables"]
    assert _rows(walk) == {name: expected.bag(expected.rows(table)) for name, table in last.items()}
    assert {_table(walk, name).properties["applier.version"] for name in _TABLES} == {"0.2.0"}

    walk.does(f"pip install --force-reinstall --no-deps {tmp_path}/applier-0.1.0*.whl", "roll back")
    walk.does(run, "run after the roll back")
    status = walk.does("applier status -c applier.toml --max-lag 3153600000", "status")
    assert status[0].startswith("ended · all 3 tables are true as of "), status
    sys.stdout.write(json.dumps(walk.took, indent=1) + "\n")


def _blocks(walk: Walk, folder: Path) -> list[str]:
    """The commands of docs/backup.md, for the lake of a user in a folder."""
    page = (ROOT / "docs" / "backup.md").read_text("utf-8")
    (folder / "backup").mkdir()
    found = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    return [block.replace("/srv/", f"{walk.folder}/").replace(" /backup/", f" {folder}/backup/") for block in found]


def _table(walk: Walk, name: str) -> Any:
    lake = walk.folder / "lake"
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"{lake}/warehouse")
    return catalog.load_table(f"mid.{name}")


def _rows(walk: Walk) -> dict[str, Any]:
    return {f"mid.{name}": expected.bag(plain(_table(walk, name).scan().to_arrow())) for name in _TABLES}


def _next_release(folder: Path) -> Path:
    """A wheel of this tree that says that it is 0.2.0."""
    tree = folder / "next"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "tests", "bench", "lake", "target"))
    project = tree / "pyproject.toml"
    project.write_text(re.sub(r'(?m)^version = ".*?"', 'version = "0.2.0"', project.read_text("utf-8")), "utf-8")
    return built(folder / "next-wheel", tree)
