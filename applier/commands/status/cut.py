"""Writes the queries of the cut for an engine; docs/reading.md says how each reaches the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from applier.changefeed.checkpoint import Cut
from applier.commands.catalog_reader import LakeTable, catalog_properties
from applier.config.settings import CatalogSection
from applier.watch.report import StatusReport, spark_name

Engine = Literal["spark", "trino", "pyiceberg", "duckdb", "polars"]

_SHOWN = ("type", "uri", "warehouse", "init_catalog_tables")
_IN_PYTHON = ("pyiceberg", "polars")
_TIMES = {
    "spark": "TIMESTAMP AS OF '{} UTC'",
    "trino": "FOR TIMESTAMP AS OF TIMESTAMP '{} UTC'",
    "duckdb": "AT (TIMESTAMP => TIMESTAMP '{}')",
}
"""How an engine is asked for a moment in UTC: the zone of a session counts for none; DuckDB's TIMESTAMP has none."""

_IDS = {"spark": "VERSION AS OF {}", "trino": "FOR VERSION AS OF {}", "duckdb": "AT (VERSION => {})"}
_OTHERWISE = "by its snapshot: the table shows other rows, or none, at that time"
_ATTACHED = ("rest", "glue")
"""Catalogs that DuckDB can attach; in others it reads a table by its metadata file."""


def queries(
    engine: Engine,
    section: CatalogSection,
    cut: Cut,
    tables: Mapping[tuple[str, ...], LakeTable],
    metadata_of: Callable[[tuple[str, ...]], str],
) -> tuple[str, ...]:
    """Queries that read every table as of one moment, one a line, after the lines that an engine needs first.

    A table that an engine would show otherwise at the moment of the cut is read by its snapshot, as all are where that
    moment is not known. No log-in of the catalog is shown. `metadata_of` finds the newest metadata file of a table.
    """
    is_by_log, heads = engine != "duckdb", sorted(cut.heads.items())
    timed = [place for place in tables if place in cut.heads]
    timed = [place for place in timed if tables[place].shows(cut.heads[place], cut.at, is_by_log=is_by_log)]
    if engine in _IN_PYTHON:
        return tuple(_python(engine, section, heads, cut.at, timed))
    at = datetime.fromtimestamp(cut.at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if engine == "duckdb" and section.type not in _ATTACHED:
        return ("LOAD iceberg;", *(_scan(metadata_of(it), it, head, at if it in timed else "") for it, head in heads))
    by_time, note = _TIMES[engine].format(at) + ";", f"; -- {_OTHERWISE}" if cut.at else ";"
    points = ((it, by_time if it in timed else _IDS[engine].format(head) + note) for it, head in heads)
    return tuple(f"SELECT * FROM {_named(engine, section.name, it)} {point}" for it, point in points)  # noqa: S608 - printed, never run


def _named(engine: Engine, catalog: str, identifier: tuple[str, ...]) -> str:
    return spark_name([catalog, *identifier]) if engine == "spark" else _sql(catalog, identifier)


def _scan(file: str, identifier: tuple[str, ...], head: int, at: str) -> str:
    point = f"snapshot_from_timestamp = TIMESTAMP '{at}'" if at else f"snapshot_from_id = {head}"
    file = file.replace("'", "''")
    return f"SELECT * FROM iceberg_scan('{file}', {point}); -- {'.'.join(identifier)}"  # noqa: S608 - as above


def remarks(engine: Engine, report: StatusReport) -> Iterator[str]:
    """Comments that name what the queries of a report leave out, a line each."""
    mark = "#" if engine in _IN_PYTHON else "--"
    if report.cut and report.cut_at:
        yield f"{mark} Every table as of {report.cut_at}, which is resolved ts {report.resolved_ts}."
    for table in report.tables:
        if table.cut_snapshot_id is None and table.because:
            yield f"{mark} {table.because}"
        elif report.cut and table.state == "empty":
            yield f"{mark} {table.table} is empty: it has no snapshot yet."
    if not report.cut:
        yield f"{mark} There is no cut: {report.summary}."


def _python(
    engine: Engine,
    section: CatalogSection,
    cut: list[tuple[tuple[str, ...], int]],
    at: int,
    timed: Collection[tuple[str, ...]],
) -> Iterator[str]:
    properties = {key: value for key, value in catalog_properties(section).items() if key in _SHOWN}
    if "uri" in properties:
        properties["uri"] = _without_login(properties["uri"])
    if engine == "polars":
        yield "import polars"
    yield "from pyiceberg.catalog import load_catalog"
    yield f"catalog = load_catalog({section.name!r}, **{properties!r})"
    yield "tables = {}"
    for identifier, head in cut:
        table, point = f"catalog.load_table({identifier!r})", str(head)
        note = f"  # {_OTHERWISE}" if at else ""
        if identifier in timed:
            table, note = f"(table := {table})", ""
            point = f"table.snapshot_as_of_timestamp({at}).snapshot_id"
        scan = f"{table}.scan(snapshot_id={point}).to_arrow()"
        if engine == "polars":
            scan = f"polars.scan_iceberg({table}, snapshot_id={point})"
        yield f"tables[{'.'.join(identifier)!r}] = {scan}{note}"


def _without_login(uri: str) -> str:
    if uri.startswith("sqlite:"):
        return uri
    return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0])


def _sql(catalog: str, identifier: tuple[str, ...]) -> str:
    """A name as standard SQL takes it, quoted as it may be `order`; all levels of a namespace are one schema."""
    *namespace, table = identifier
    parts = (catalog, ".".join(namespace), table)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
