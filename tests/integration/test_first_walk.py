"""The walk of a new user: an installed wheel, and the commands as README and docs/ print them, in an empty folder."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tarfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import requests

from applier.runtime.jvm import jars
from tests import expected, recordings
from tests.integration.test_kafka_source import produce
from tests.integration.walk import Walk, commands
from tests.integration.wheel import ROOT, built
from tests.readers import BLOCKS
from tests.replay import plain
from tests.services.process import free_ports

if TYPE_CHECKING:
    from tests.services.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.network]

_LONG = "3153600000"
"""A hundred years in seconds: the recording is old, and counts as fresh."""

_SAVE = """
import pyarrow.ipc
for name, found in tables.items():
    with pyarrow.ipc.new_file(name + ".arrow", found.schema) as file:
        file.write_table(found)
"""

_BEFORE = {
    "pyiceberg": "",
    "polars": "",
    "duckdb": """
import duckdb
from duckdb_extensions import import_extension
import_extension("avro")
import_extension("iceberg")
ask = lambda query: duckdb.sql(query).to_arrow_table()
""",
    "spark": """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC")
for pair in sys.argv[1:]:
    builder = builder.config(*pair.split("=", 1))
ask = lambda query: builder.getOrCreate().sql(query).toArrow()
""",
}
"""What docs/reading.md does before the queries of an engine."""


@pytest.mark.timeout(900)
def test_a_new_user_gets_from_the_wheel_to_rows_in_every_engine(kafka: Broker, tmp_path: Path) -> None:
    """Each command is the one that the page or the command before printed; all rows are those of the database."""
    states = recordings.expected("midstream")
    topics = produce(kafka.bootstrap, recordings.records("midstream", "canal-json-ext"), topic_prefix="walk-")
    with tarfile.open(recordings.GOLDEN / "midstream" / "dump-0-csv.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    walk = Walk(tmp_path)

    install, init, check, run = commands(ROOT / "README.md", "## Install")
    walk.does(install.replace("pip install .", f"pip install {built(tmp_path)}"), "install")
    said = walk.does(init.replace("broker:9092", kafka.bootstrap).replace("--topics shop", f"--topics {topics[0]}"))
    assert said[-7:-5] == [
        "The messages looked at hold rows of mid.acct, mid.evt, mid.tag, but not their CREATE TABLE.",
        "If the database had rows before the changefeed, export them and load them. Next:",
    ]
    dumpling, *then = [line.strip() for line in said[-5:-1]]
    assert dumpling.startswith("tiup dumpling ")
    assert [then[0], then[2]] == [check, run]
    *_, load, _ = commands(ROOT / "docs/initial-load.md", "4. **Look, load, run.**")
    assert then[1] == f"{load} --from /exports"

    walk.does(check)
    loaded = walk.does(then[1].replace("/exports", f"{tmp_path}/dump-0-csv"), load)
    assert loaded[-1].startswith("Loaded 3 tables: the changefeed begins at resolved ts ")
    (port,) = free_ports(1)
    with (walk.folder / "applier.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[http]\nport = {port}\n")
    with walk.doing(run):
        _until(f"http://127.0.0.1:{port}/status.json", states[-1]["resolved_ts"])
        assert "<html" in requests.get(f"http://127.0.0.1:{port}/", timeout=10).text

    status = "applier status -c applier.toml"
    assert walk.does(f"{status} --max-lag {_LONG}", status)[0].startswith("fresh · all 3 tables are true")
    wanted = {name: expected.bag(expected.rows(table)) for name, table in states[-1]["tables"].items()}
    for engine, packages in _engines():
        if packages:
            walk.does(packages, f"install {engine}")
        found = _read(walk, engine)
        assert {name: expected.bag(rows) for name, rows in found.items()} == wanted, engine
    sys.stdout.write(json.dumps(walk.took, indent=1) + "\n")


def _read(walk: Walk, engine: str) -> dict[str, list[dict[str, Any]]]:
    """The rows that an engine shows by the queries which `status --cut` prints for it."""
    printed = "\n".join(walk.does(f"applier status -c applier.toml --cut {engine} --max-lag {_LONG}"))
    arguments = [] if engine != "spark" else _session()
    if engine in ("spark", "duckdb"):
        printed = _BEFORE[engine] + "".join(_asked(query) for query in printed.splitlines())
    else:
        printed += "\ntables = {name: getattr(it, 'collect', lambda it=it: it)() for name, it in tables.items()}"
        printed += "\ntables = {name: getattr(it, 'to_arrow', lambda it=it: it)() for name, it in tables.items()}"
    script = walk.folder / f"read_by_{engine}.py"
    begin = "tables = {}\n" if engine in ("spark", "duckdb") else ""
    script.write_text(f"{begin}{printed}\n{_SAVE}", encoding="utf-8")
    for old in walk.folder.glob("*.arrow"):
        old.unlink()
    walk.does(shlex.join(["python", script.name, *arguments]), f"read by {engine}")
    found = {}
    for file in walk.folder.glob("*.arrow"):
        with pa.OSFile(str(file), "r") as stored, pa.ipc.open_file(stored) as rows:
            found[file.stem] = plain(rows.read_all())
    return found


def _engines() -> Iterator[tuple[str, str]]:
    """Engines of which `status --cut` prints what this Python can run, with what docs/reading.md installs for them."""
    page = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
    for engine in ("pyiceberg", "duckdb", "polars", "spark"):
        title = BLOCKS[engine].section
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        found = re.search(r"`(pip install [^`]+)`", section)
        yield engine, found[1] if found else ""


def _session() -> list[str]:
    """The settings of the command of docs/reading.md that starts Spark SQL, with our jars as its packages."""
    (command,) = commands(ROOT / "docs/reading.md", "## Spark SQL")
    words = shlex.split(command)
    pairs = [value for option, value in pairwise(words) if option == "--conf"]
    return [*pairs, f"spark.jars={','.join(map(str, jars.fetch('spark')))}"]


def _asked(query: str) -> str:
    """A line of Python that asks a query as it was printed; what gives no rows is not kept."""
    if query.startswith("--"):
        return ""
    if not query.startswith("SELECT"):
        return f"duckdb.sql({query!r})\n"
    table = re.search(r"(mid)(?:\.|/|__)(acct|evt|tag)\b", re.sub('[`"]', "", query))
    assert table is not None, query
    return f"tables['{table[1]}.{table[2]}'] = ask({query.rstrip(';')!r})\n"


def _until(address: str, resolved_ts: int) -> None:
    """Wait until the page of a run shows a resolved ts."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if requests.get(address, timeout=10).json().get("resolved_ts") == str(resolved_ts):
                return
        except (requests.ConnectionError, requests.JSONDecodeError):
            pass
        time.sleep(0.3)
    pytest.fail(f"{address} never came to {resolved_ts}")
