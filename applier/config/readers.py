"""Which Iceberg formats engines read, deletes and all: what a test found, or else what their documentation says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from applier.errors import ConfigError

Reader = Literal[
    "spark",
    "pyiceberg",
    "duckdb",
    "polars",
    "polars-native",
    "daft",
    "datafusion",
    "clickhouse",
    "trino",
    "starrocks",
    "snowflake",
    "athena",
    "bigquery",
]

FORMATS: Mapping[Reader, tuple[Literal[2, 3], ...]] = {
    "spark": (2, 3),
    "pyiceberg": (2, 3),
    "duckdb": (2, 3),
    "polars": (2, 3),
    "polars-native": (),
    "daft": (2,),
    "datafusion": (2, 3),
    "clickhouse": (2,),
    "trino": (2, 3),
    "starrocks": (2,),
    "snowflake": (2, 3),
    "athena": (2,),
    "bigquery": (2,),
}
"""Formats of which an engine reads every table that applier writes: one where several data files share a delete file,
after DDL, after a compaction, and as of an older snapshot. docs/reading.md says how each is known."""


def with_format(given: Any) -> Any:
    """What `[tables]` says, not validated yet, with the format that suits its readers where it names none."""
    readers = given.get("readers") if isinstance(given, dict) else None
    if not isinstance(readers, list | tuple):
        return given
    is_old = any(reader in readers for reader, formats in FORMATS.items() if formats == (2,))
    return {"format_version": 2 if is_old else 3, **given}


def unreadable(readers: Sequence[Reader], format_version: int, table: str = "") -> str | None:
    """Why a reader cannot read tables of a format, as a sentence with a way out; None where all can.

    The table has the format already; "" for tables to come.
    """
    blind = [reader for reader in readers if format_version not in FORMATS[reader]]
    if not blind:
        return None
    names = " and ".join(blind)
    whose = f"table {table}, which has Iceberg format {format_version}" if table else f"Iceberg format {format_version}"
    way_out = f"take {names} out of tables.readers (docs/reading.md names the engines that read it)"
    if all(FORMATS[reader] for reader in blind):
        drop = "drop the table in your engine, start `applier run` and bring it back as `applier status` says"
        way_out += (
            f", or {drop if table else 'leave tables.format_version out'}, so that its format follows from the readers"
        )
    return f"tables.readers: {names} cannot read {whose}. Hint: {way_out}."


def refuse_unreadable(readers: Sequence[Reader], format_version: int, table: str = "") -> None:
    """Refuse, by ConfigError, to write what a reader cannot read; see `unreadable`."""
    if problem := unreadable(readers, format_version, table):
        raise ConfigError([problem])
