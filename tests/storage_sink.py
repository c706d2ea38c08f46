"""A folder as TiCDC's cloud storage sink writes it, of the rows and DDL that a recorded changefeed sent to Kafka.

The layout is that of TiCDC's documentation ("Replicate Data to Storage Services", "Storage path structure") and of
`pkg/sink/cloudstorage/path.go` and `table_definition.go` of pingcap/tiflow and pingcap/ticdc: rows of a table version
in `SCHEMA/TABLE/VERSION[/DATE]/CDC000001.json`, in the order of their commit ts, a line of JSON each, ended by CR LF;
DDL in `SCHEMA[/TABLE]/meta/schema_VERSION_CHECKSUM.json`; `{"checkpoint-ts": N}` in `metadata`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from tests import recordings

Put = Callable[[str, bytes], object]
"""Writes a file, by its path below the prefix."""

FIRST = 1
"""The version of tables without a DDL; TiCDC gives one of their own to those that existed before."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Rows and DDL of a recording, in the order of their commit ts.

    Attributes:
        rows: The lines of each table, each with its commit ts.
        ddl: Name, commit ts and statement.
        columns: Those of each table version with rows, as schema files have them, where the rows are CSV.
    """

    rows: Mapping[tuple[str, str], list[tuple[int, bytes]]]
    ddl: list[tuple[tuple[str, str], int, str]]
    columns: Mapping[tuple[tuple[str, str], int], tuple[Mapping[str, str], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: str, variant: str) -> Recorded:
        """A recording without what TiCDC sent again."""
        rows = defaultdict[tuple[str, str], list[tuple[int, bytes]]](list)
        ddl: dict[tuple[tuple[str, str], int, str], None] = {}
        for ts, record, value in _sent_once(scenario, variant):
            name = (value["database"], value["table"])
            if value["isDdl"]:
                ddl[name, ts, value["sql"]] = None
            else:
                rows[name].append((ts, record))
        for lines in rows.values():
            lines.sort(key=lambda line: line[0])
        return cls(rows, sorted(ddl, key=lambda item: item[1]))

    def version(self, name: tuple[str, str], ts: int) -> int:
        """The version of a table that a row is of."""
        versions = [at for other, at, _ in self.ddl if other == name]
        place = bisect_right(versions, ts - 1)
        return versions[place - 1] if place else FIRST


def _sent_once(scenario: str, variant: str) -> Iterator[tuple[int, bytes, Any]]:
    """Rows and DDL; a row below one that was read before it in its partition was sent again after a restart."""
    highest = defaultdict[tuple[str, int, str], int](int)
    for record in recordings.records(scenario, variant):
        value: Any = json.loads(record["value"])
        if value["type"] == "TIDB_WATERMARK":
            continue
        ts = value["_tidb"]["commitTs"]
        place = record["topic"], record["partition"], value["table"]
        if not value["isDdl"]:
            if ts < highest[place]:
                continue
            highest[place] = ts
        yield ts, record["value"], value


def put_in(folder: Path) -> Put:
    """Writes files into a folder."""

    def put(name: str, content: bytes) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return put


def write(
    recorded: Recorded, put: Put, upto: int, *, rows_a_file: int = 5, date: Callable[[int], str] = lambda _: ""
) -> None:
    """Write, or go on writing, all up to a commit ts; files that it fills may hold rows above it."""
    for name, ts, sql in recorded.ddl:
        if ts <= upto:
            put(*schema_file(name, ts, sql, recorded.columns.get((name, ts), ())))
    for (name, version), columns in recorded.columns.items():
        if version == FIRST:
            put(*schema_file(name, FIRST, "", columns))
    for name, lines in recorded.rows.items():
        folders = defaultdict[str, list[tuple[int, bytes]]](list)
        for ts, line in lines:
            version = recorded.version(name, ts)
            folders["/".join(filter(None, (*name, str(version), date(ts))))].append((ts, line))
        for folder, own in folders.items():
            for number, start in enumerate(range(0, len(own), rows_a_file), start=1):
                group = own[start : start + rows_a_file]
                if group[0][0] <= upto:
                    file = f"CDC{number:06}.{'csv' if recorded.columns else 'json'}"
                    put(f"{folder}/{file}", b"".join(line + b"\r\n" for _, line in group))
                    put(f"{folder}/meta/CDC.index", f"{file}\n".encode())
    put("metadata", json.dumps({"checkpoint-ts": upto}).encode())


def schema_file(name: tuple[str, str], ts: int, sql: str, columns: tuple[Any, ...] = ()) -> tuple[str, bytes]:
    """Path and content of a schema file; a DDL of a database has a table without name."""
    schema, table = name
    described = {
        "Table": table,
        "Schema": schema,
        "Version": 1,
        "TableVersion": ts,
        "Query": sql,
        "Type": 5,
        "TableColumns": columns or None,
        "TableColumnsTotal": len(columns),
    }
    folder = "/".join(filter(None, (*name, "meta")))
    content = json.dumps(described, indent=4).encode()
    return f"{folder}/schema_{ts}_{crc32(sql.encode()):010}.json", content
