"""What engines read of the tables, by the blocks of docs/reading.md.

The engines of the dependency group `readers` are installed here. `READERS_PYTHON` names a Python that also has those of
`readers-large`, `READERS_TRINO` a file with the class path of Trino, and `READERS_JAVA` a Java 25 that runs it, as
`make readers` makes them; `READERS=write` records what is found.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.sink.iceberg.catalog import Catalog
from tests.readers import BLOCKS, RESULTS, Result, block, properties, recorded
from tests.spark import read_blocks
from tests.spark.readers_lake import Shown, build
from tests.spark.upstream_table import Upstream

_PYTHON = os.environ.get("READERS_PYTHON", sys.executable)
_TRINO = os.environ.get("READERS_TRINO", "")
_JAVA = os.environ.get("READERS_JAVA", "java")
_KINDS = {"rows": (False, False), "columns": (True, False), "compacted": (True, True)}
_ATS: tuple[Literal["head", "cut"], ...] = ("head", "cut")
_VERSION = "from importlib.metadata import version; print(version({!r}))"


@pytest.fixture(scope="module")
def shown(spark: SparkSession, warehouse: Path) -> Mapping[tuple[int, str], Shown]:
    """The tables, by format and what they are for."""
    lake = Catalog(spark, "lake")
    reader = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/tables")
    return {
        (number, kind): build(
            Upstream(spark, lake, reader, ("readers", f"{kind}{number}")), number, evolved=evolved, compacted=compacted
        )
        for number in (2, 3)
        for kind, (evolved, compacted) in _KINDS.items()
    }


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=pytest.mark.soak if name.startswith("polars") else ()) for name in BLOCKS]
)
def test_an_engine_reads_what_the_matrix_says(
    reader: str, shown: Mapping[tuple[int, str], Shown], spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    """Each table, its head and an older snapshot, is read row for row, or not, as is recorded."""
    version = _version(BLOCKS[reader].package)
    if version is None:
        pytest.skip(f"{BLOCKS[reader].package} is not installed; `make readers` tries it")
    # The older snapshot of the last table has other columns, and other files.
    blocks = [
        [_of(block(reader, at), it, warehouse) for at in _ATS[: 2 if kind == "compacted" else 1]]
        for (_, kind), it in shown.items()
    ]
    if reader == "spark":
        read = _by_spark(spark, blocks)
    else:
        read = (_by_trino if reader == "trino" else _by)(blocks, warehouse, tmp_path)

    found: dict[str, list[str]] = {"2": [], "3": []}
    for ((number, kind), it), (head, *cut) in zip(shown.items(), read, strict=True):
        found[str(number)] += [kind] if head == _plain(it.rows) else []
        found[str(number)] += ["cut"] if cut == [_plain(it.rows_at_cut)] else []
    result: Result = {"version": version, **found}
    if os.environ.get("READERS") == "write":
        RESULTS.write_text(json.dumps({**recorded(), reader: result}, indent=1) + "\n", encoding="utf-8")
    assert recorded()[reader] == result, [each for pair in read for each in pair if isinstance(each, str)]


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: read_blocks.plain(value) for name, value in row.items()} for row in rows]


def _of(text: str, it: Shown, warehouse: Path) -> str:
    """A block of the page, for a table of the test."""
    own = text.replace("./lake/catalog.db", f"{warehouse}/catalog.db").replace("shop.orders", it.table)
    return own.replace("6114237411387434245", str(it.cut))


def _by(blocks: Sequence[Sequence[str]], lake: Path, home: Path) -> list[list[Any]]:
    done = subprocess.run(
        [_PYTHON, read_blocks.__file__],
        input=json.dumps(blocks),
        capture_output=True,
        text=True,
        check=True,
        cwd=lake,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _by_trino(blocks: Sequence[Sequence[str]], lake: Path, home: Path) -> list[list[Any]]:
    catalog, asked, found = home / "lake.properties", home / "blocks.json", home / "rows.json"
    catalog.write_text(properties("trino").replace("/srv/lake", str(lake)), encoding="utf-8")
    asked.write_text(json.dumps(blocks), encoding="utf-8")
    program = Path(__file__).with_name("trino") / "ReadBlocks.java"
    libraries = Path(_TRINO).read_text(encoding="utf-8").strip()
    java = [_JAVA, "--add-modules", "jdk.incubator.vector", "-cp", libraries, str(program)]
    subprocess.run([*java, *map(str, (catalog, asked, found))], capture_output=True, check=True, cwd=home)
    read: list[list[Any]] = json.loads(found.read_text(encoding="utf-8"))
    return read


def _by_spark(spark: SparkSession, blocks: Sequence[Sequence[str]]) -> list[list[Any]]:
    return [[read_blocks.rows_of(spark.sql(text).toArrow()) for text in each] for each in blocks]


def _version(package: str) -> str | None:
    if package == BLOCKS["trino"].package:
        found = re.search(rf"/{package}-(\d+)\.jar", Path(_TRINO).read_text(encoding="utf-8")) if _TRINO else None
        return found and found[1]
    python = sys.executable if package == "pyspark" else _PYTHON
    done = subprocess.run([python, "-c", _VERSION.format(package)], capture_output=True, text=True, check=False)
    return re.sub(r"\+.*", "", done.stdout.strip()) or None
