"""Writes the queries of the cut for engines other than Spark SQL; docs/reading.md says how each reaches the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from applier.commands.catalog_reader import catalog_properties
from applier.config.settings import CatalogSection
from applier.watch.report import StatusReport

Engine = Literal["spark", "trino", "pyiceberg", "duckdb", "polars"]

_SHOWN = ("type", "uri", "warehouse", "init_catalog_tables")
_IN_PYTHON = ("pyiceberg", "polars")
_ATTACHED = ("rest", "glue")
"""Catalogs that DuckDB can attach; in others it reads a table by its metadata file."""


def queries(
    engine: Engine,
    section: CatalogSection,
    snapshots: Mapping[tuple[str, ...], int],
    metadata_of: Callable[[tuple[str, ...]], str],
) -> tuple[str, ...]:
    """Queries that read every table as of one moment, one a line, after the lines that an engine needs first.

    The engine is not `spark`, whose queries the report has. No log-in of the catalog is shown. `metadata_of` finds the
    newest metadata file of a table.
    """
    cut = sorted(snapshots.items())
    if engine in _IN_PYTHON:
        return tuple(_python(engine, section, cut))
    if engine == "trino":
        return tuple(f"SELECT * FROM {_sql(section.name, it)} FOR VERSION AS OF {head};" for it, head in cut)  # noqa: S608 - printed, never run
    if section.type in _ATTACHED:
        return tuple(f"SELECT * FROM {_sql(section.name, it)} AT (VERSION => {head});" for it, head in cut)  # noqa: S608 - as above
    files = ((metadata_of(it).replace("'", "''"), f"{head}); -- {'.'.join(it)}") for it, head in cut)
    scans = (f"SELECT * FROM iceberg_scan('{file}', snapshot_from_id = {rest}" for file, rest in files)  # noqa: S608 - as above
    return ("LOAD iceberg;", *scans)


def remarks(engine: Engine, report: StatusReport) -> Iterator[str]:
    """Comments that name what the queries of a report leave out, a line each."""
    mark = "#" if engine in _IN_PYTHON else "--"
    for table in report.tables:
        if table.cut_snapshot_id is None and table.because:
            yield f"{mark} {table.table} is {table.state}: {table.because}"
    if not report.cut:
        yield f"{mark} There is no cut: {report.summary}."


def _python(engine: Engine, section: CatalogSection, cut: list[tuple[tuple[str, ...], int]]) -> Iterator[str]:
    properties = {key: value for key, value in catalog_properties(section).items() if key in _SHOWN}
    if "uri" in properties:
        properties["uri"] = _without_login(properties["uri"])
    if engine == "polars":
        yield "import polars"
    yield "from pyiceberg.catalog import load_catalog"
    yield f"catalog = load_catalog({section.name!r}, **{properties!r})"
    yield "tables = {}"
    for identifier, head in cut:
        table = f"catalog.load_table({identifier!r})"
        scan = f"{table}.scan(snapshot_id={head}).to_arrow()"
        if engine == "polars":
            scan = f"polars.scan_iceberg({table}, snapshot_id={head})"
        yield f"tables[{'.'.join(identifier)!r}] = {scan}"


def _without_login(uri: str) -> str:
    if uri.startswith("sqlite:"):
        return uri
    return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0])


def _sql(catalog: str, identifier: tuple[str, ...]) -> str:
    """A name as standard SQL takes it, quoted as it may be `order`; all levels of a namespace are one schema."""
    *namespace, table = identifier
    parts = (catalog, ".".join(namespace), table)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
