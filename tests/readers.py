"""The engines of docs/reading.md: their blocks, and what a test found that they read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from applier.config.readers import FORMATS

_ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("spark") / "readers.json"
"""What each engine read, by format: tables whose data files share delete files (`rows`), after DDL (`columns`), after a
compaction (`compacted`), and a snapshot from before both (`cut`)."""

ALL = ("rows", "columns", "compacted", "cut")

Result = dict[str, Any]


class Blocks(NamedTuple):
    """Where the blocks of an engine stand, and which package it is."""

    section: str
    package: str


BLOCKS = {
    "spark": Blocks("Spark SQL", "pyspark"),
    "pyiceberg": Blocks("PyIceberg", "pyiceberg"),
    "duckdb": Blocks("DuckDB", "duckdb-extension-iceberg"),
    "polars": Blocks("Polars", "polars"),
    "polars-native": Blocks("Polars with its native reader", "polars"),
    "daft": Blocks("Daft", "daft"),
    "datafusion": Blocks("DataFusion", "datafusion"),
    "clickhouse": Blocks("ClickHouse", "chdb"),
    "trino": Blocks("Trino", "trino-iceberg"),
}
"""By the name in `tables.readers`."""


def recorded() -> dict[str, Result]:
    """What was found last."""
    found: dict[str, Result] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def block(reader: str, at: Literal["head", "cut"]) -> str:
    """The block of the page that reads the head of a table, or the cut."""
    return _blocks(reader, "python|sql")[at == "cut"]


def properties(reader: str) -> str:
    """The block of the page that connects an engine to the catalog."""
    return _blocks(reader, "properties")[0]


def readable(result: Result) -> tuple[int, ...]:
    """Formats of which an engine reads everything."""
    return tuple(number for number in (2, 3) if set(ALL) <= set(result[str(number)]))


def matrix() -> list[tuple[str, ...]]:
    """A row for each engine that was tried: its name, its version, and what it reads of each format."""
    found = {name: it for name, it in recorded().items() if name in FORMATS}
    return [(f"`{name}`", it["version"], *(_said(it[number]) for number in ("3", "2"))) for name, it in found.items()]


def summary() -> list[tuple[str, ...]]:
    """The same, those with the same outcome in one row."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, number, *said in matrix():
        groups.setdefault(tuple("yes" if each == "yes" else "no" for each in said), []).append(f"{name} {number}")
    return [(", ".join(names), *said) for said, names in groups.items()]


def _blocks(reader: str, languages: str) -> list[str]:
    page = (_ROOT / "docs/reading.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {BLOCKS[reader].section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```(?:{languages})\n(.*?)\n```", section, re.DOTALL)


def _said(read: list[str]) -> str:
    if set(ALL) <= set(read):
        return "yes"
    words = {"rows": "removed rows", "columns": "after DDL", "compacted": "just compacted", "cut": "the cut"}
    only = [words[kind] for kind in ALL if kind in read]
    return f"no, only {', '.join(only)}" if only else "no"
