"""Both sides of `applier check` in a folder: a scripted registry, Iceberg tables made by PyIceberg, a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, Tracked
from applier.changefeed.table import Partitioning, TableName, TableVersion
from applier.config import settings
from applier.config.settings import Config
from applier.sink.control.rows import checkpoint_row, version_rows
from applier.sink.format.types import schema_json
from tests.fake_registry import Answer, FakeRegistry

STAMP = {"applier.changefeed": "shop", "applier.epoch": "1", "applier.resolved-ts": "7"}
"""Properties of a table that the changefeed `shop` has written."""


@dataclass
class World:
    """One changefeed `shop` with everything it meets.

    Attributes:
        folder: Where the catalog is.
        raw: The configuration; change it before `config`.
    """

    folder: Path
    raw: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.raw = {
            "changefeed": {"name": "shop", "protocol": "simple"},
            "source": {"archive": "topic"},
            "catalog": {
                "name": "lake",
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{self.folder}/catalog.db",
                "warehouse": f"{self.folder}/tables",
            },
        }

    @property
    def config(self) -> Config:
        """The configuration as `applier` reads it."""
        return settings.parse(self.raw)

    def with_registry(self, url: str, protocol: str = "avro") -> World:
        """Follow a feed of a registry."""
        self.raw["changefeed"]["protocol"] = protocol
        self.raw["registry"] = {"url": url}
        return self

    def create(
        self,
        name: Sequence[str],
        columns: Mapping[str, pa.DataType],
        key: Sequence[str] = ("id",),
        *,
        rows: int = 0,
        properties: Mapping[str, str] = STAMP,
    ) -> Path:
        """Make an Iceberg table of format 2, with rows of NULL and a counted key; return its metadata file."""
        schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
        made = self._made(tuple(name), schema, key, properties)
        if rows:
            values = {
                column.name: pa.array(range(rows)).cast(column.type)
                if column.name in key
                else pa.nulls(rows, column.type)
                for column in schema
            }
            made.append(pa.table(values, schema=made.schema().as_arrow()))
        return Path(made.metadata_location.removeprefix("file://"))

    def remember(
        self, *versions: TableVersion, current: Mapping[TableName, tuple[int, Partitioning | None]] | None = None
    ) -> None:
        """Write control tables: the versions seen, and a checkpoint that says which of them count."""
        seen = self._made(("applier_shop", "table_versions"), version_rows(versions, 1).schema)
        for version in versions:
            seen.append(_fitted(version_rows([version], 1), seen))
        if current is not None:
            tables = {name: Tracked(number, "shop", parts) for name, (number, parts) in current.items()}
            checkpoint = Checkpoint(Lease(1, Holder("token", "host")), 1, 7, _now(), tables=tables)
            row = checkpoint_row(checkpoint)
            made = self._made(("applier_shop", "checkpoints"), row.schema, (), {"applier.step": "1"})
            made.append(_fitted(row, made))

    def files(self) -> dict[str, bytes]:
        """Everything in the folder, byte by byte."""
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def _made(self, name: tuple[str, ...], schema: pa.Schema, key: Sequence[str] = (), properties: Any = None) -> Table:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"{self.folder}/tables")
        try:
            catalog.create_namespace_if_not_exists(name[:-1])
            columns = Schema.model_validate_json(schema_json(schema, key))
            return catalog.create_table(name, columns, properties=properties or {})
        finally:
            catalog.close()


def upgrade(metadata: Path, defaults: Mapping[str, Any]) -> None:
    """Make a table one of format 3, as Java writes it: PyIceberg reads that format, but does not write it."""
    value = json.loads(metadata.read_text()) | {"format-version": 3, "next-row-id": 0}
    for column in value["schemas"][0]["fields"]:
        if column["name"] in defaults:
            column |= {"initial-default": defaults[column["name"]], "write-default": defaults[column["name"]]}
    for snapshot in value.get("snapshots", ()):
        snapshot |= {"first-row-id": 0, "added-rows": 1}
    metadata.write_text(json.dumps(value))


def hold(server: FakeRegistry, entries: Iterable[Mapping[str, Any]], level: str = "BACKWARD") -> None:
    """Let a server hold subjects and their versions, as recordings list them; it knows no verdicts."""
    versions: dict[str, list[int]] = {}
    for entry in entries:
        subject, number = entry["subject"], entry["version"]
        versions.setdefault(subject, []).append(number)
        body = {"subject": subject, "version": number, "id": entry["id"], "schema": entry["schema"]}
        server.on(f"/subjects/{subject}/versions/{number}", Answer(200, body))
        server.on(f"/subjects/{subject}/versions", Answer(200, list(versions[subject])))
        server.on(f"/config/{subject}", Answer(200, {"compatibilityLevel": level}))
    server.on("/subjects", Answer(200, list(versions)))


def judge(server: FakeRegistry, subject: str, verdicts: Mapping[int, bool], *messages: str) -> None:
    """Let a server answer for each version of a subject whether a coming schema goes with it."""
    for version, verdict in verdicts.items():
        body = {"is_compatible": verdict, "messages": list(messages)}
        server.on(f"/compatibility/subjects/{subject}/versions/{version}", Answer(200, body))


def record(*fields: dict[str, Any], table: str = "orders", extension: bool = True) -> str:
    """A schema as TiCDC writes it; a field without a type object is one of `INT`."""
    more = [{"default": "", "name": "_tidb_op", "type": "string"}] if extension else []
    schema = {"type": "record", "name": table, "namespace": "default.shop", "fields": [*fields, *more]}
    return json.dumps(schema, separators=(",", ":"))


def column(name: str, avro: str = "int", tidb: str = "INT", **more: Any) -> dict[str, Any]:
    """A NOT NULL column without a default."""
    return {"name": name, "type": {"type": avro, "connect.parameters": {"tidb_type": tidb}, **more}}


def nullable(name: str, avro: str = "int", tidb: str = "INT", **more: Any) -> dict[str, Any]:
    """A column that may be NULL."""
    return {"default": None, "name": name, "type": ["null", column(name, avro, tidb, **more)["type"]]}


def entry(subject: str, version: int, schema: str, number: int = 0) -> dict[str, Any]:
    """One registered version."""
    return {"subject": subject, "version": version, "id": number or version, "schema": schema}


def _fitted(rows: pa.Table, table: Table) -> pa.Table:
    return rows.cast(table.schema().as_arrow())


def _now() -> int:
    return int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
