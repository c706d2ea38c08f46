"""A folder in, an Iceberg catalog of its own out: where one contender writes, and what it has written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from bench.storage import BUCKET, ENDPOINT, KEYS
from bench.topic.schema import DATABASE

CORES = int(os.environ.get("BENCH_CORES", "2"))
MEMORY = os.environ.get("BENCH_MEMORY", "1536m")
"""Largest heap of every contender's JVM."""

SPARK = {"spark.master": f"local[{CORES}]", "spark.driver.memory": MEMORY}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a contender left of one table, or of several together.

    Attributes:
        commits: Snapshots.
        added_bytes: Bytes of all files added, data and deletes.
        data_files: Data files that a reader must open.
        delete_files: Files of deletes that it must open as well: position deletes, deletion vectors, equality deletes.
        most_snapshots: Snapshots that the table keeps which keeps most.
        most_files: Data files of the table that has most.
    """

    commits: int = 0
    added_bytes: int = 0
    data_files: int = 0
    delete_files: int = 0
    most_snapshots: int = 0
    most_files: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.commits + other.commits,
            self.added_bytes + other.added_bytes,
            self.data_files + other.data_files,
            self.delete_files + other.delete_files,
            max(self.most_snapshots, other.most_snapshots),
            max(self.most_files, other.most_files),
        )

    def since(self, before: Footprint) -> Footprint:
        """What was added after an earlier look; the files to open are those of now."""
        return Footprint(
            self.commits - before.commits,
            self.added_bytes - before.added_bytes,
            self.data_files,
            self.delete_files,
            self.most_snapshots,
            self.most_files,
        )


@dataclass(frozen=True, slots=True)
class Lake:
    """A JDBC catalog on SQLite and a warehouse, in one folder.

    Args:
        folder: Where; absolute. Its name is the catalog's: the catalog keeps it with every table.
    """

    folder: Path

    @property
    def name(self) -> str:
        """Name of the catalog."""
        return self.folder.name

    @property
    def properties(self) -> dict[str, str]:
        """The catalog's properties, as Iceberg's Java library takes them."""
        uri = f"jdbc:sqlite:{self.folder}/catalog.db"
        return {"type": "jdbc", "uri": uri, "warehouse": self.warehouse, **self._storage}

    @property
    def loaded(self) -> Path:
        """The mark of a lake whose table has rows before the first event."""
        return self.folder / "loaded"

    @property
    def warehouse(self) -> str:
        """Where its files are."""
        return f"s3://{BUCKET}/{self.folder.parent.parent.name}-{self.name}" if ENDPOINT else f"{self.folder}/warehouse"

    @property
    def _storage(self) -> dict[str, str]:
        return {**KEYS, "s3.endpoint": ENDPOINT} if ENDPOINT else {}

    @property
    def spark_settings(self) -> dict[str, str]:
        """Spark settings of the catalog."""
        prefix = f"spark.sql.catalog.{self.name}"
        properties = self.properties | {"cache-enabled": "false", "jdbc.schema-version": "V1"}
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{prefix}.{key}": value for key, value in properties.items()
        }

    def open(self) -> SqlCatalog:
        """The catalog, through PyIceberg."""
        storage = {key: value for key, value in self._storage.items() if key != "io-impl"}
        return SqlCatalog(self.name, uri=f"sqlite:///{self.folder}/catalog.db", warehouse=self.warehouse, **storage)

    def footprint(self, tables: list[str]) -> Footprint:
        """What lies in tables of the benchmark's database; nothing where they do not exist."""
        if not (self.folder / "catalog.db").exists():
            return Footprint()
        catalog = self.open()
        found = [name for name in tables if catalog.table_exists((DATABASE, name))]
        return sum((_footprint(catalog.load_table((DATABASE, name))) for name in found), Footprint())


def _footprint(table: Any) -> Footprint:
    summaries = [_summary(snapshot) for snapshot in table.snapshots()]
    if not summaries:
        return Footprint()
    current = _summary(table.current_snapshot())
    return Footprint(
        # Those that have expired count as well: each commit takes the next number.
        commits=int(table.metadata.last_sequence_number),
        added_bytes=sum(int(summary.get("added-files-size", 0)) for summary in summaries),
        data_files=int(current.get("total-data-files", 0)),
        delete_files=int(current.get("total-delete-files", 0)),
        most_snapshots=len(summaries),
        most_files=int(current.get("total-data-files", 0)),
    )


def _summary(snapshot: Any) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}
