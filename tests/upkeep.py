"""Maintenance at its most eager, days later: every task for every table, with orphans beside the files of each."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyiceberg.table import StaticTable

from applier.pipeline.step import Pipeline
from applier.sink.format.storage import local_path
from applier.sink.iceberg.orphans import Neighbours
from applier.sink.upkeep import Thresholds, Upkeep
from tests.lab import bag

EAGER = Thresholds(small_files=2, deleted_rows=1, manifests=1, snapshots=1, snapshot_hours=0, orphan_hours=1)

_DAY = 86_400


def days_later(pipeline: Pipeline, days: int) -> tuple[int, int]:
    """Let days pass for all files of a changefeed, leave an orphan in each table, and maintain every table.

    Args:
        pipeline: An applier between two steps.
        days: How far the clock jumps.

    Returns:
        How many orphans there were, and how many of them are gone.
    """
    catalog, checkpoint = pipeline.targets.catalog, pipeline.state.checkpoint
    neighbours = Neighbours(catalog, stray_seconds=600)
    orphans = []
    with pipeline.targets.as_holder():
        writers = [writer for writer in pipeline.targets.writers if writer.head and writer.known]
        for writer in writers:
            orphans.append(Path(local_path(writer.table.location), "data", f"left-{time.monotonic_ns()}.parquet"))
            orphans[-1].parent.mkdir(parents=True, exist_ok=True)
            orphans[-1].write_bytes(b"orphan")
        _age(pipeline, days)
        now = (int(time.time()) + days * _DAY) * 1000
        for writer in writers:
            upkeep = Upkeep(writer, EAGER, neighbours)
            upkeep.compact()
            # It always commits, so that storage takes a metadata file days after all others.
            upkeep.rewrite_manifests()
            upkeep.expire(checkpoint.cut.heads.get(writer.table.identifier), now)
            upkeep.remove_orphans(now)
            if writer.table.identifier in pipeline.targets.snapshots:
                pipeline.targets.committed(writer, writer.head)
    return len(orphans), sum(not orphan.exists() for orphan in orphans)


def contents(pipeline: Pipeline) -> dict[tuple[str, ...], list[str]]:
    """Rows of every table in the namespaces of a changefeed, tables that a DROP TABLE kept included."""
    catalog = pipeline.targets.catalog
    found = {}
    for name in _tables(pipeline):
        table = catalog.load(name)
        assert table is not None
        read = StaticTable.from_metadata(str(table.handle.operations().current().metadataFileLocation()))
        found[name] = bag(read.scan().to_arrow().to_pylist())
    return found


def _tables(pipeline: Pipeline) -> list[tuple[str, ...]]:
    spaces = sorted({writer.table.identifier[:-1] for writer in pipeline.targets.writers})
    return [name for space in spaces for name in pipeline.targets.catalog.list(space)]


def _age(pipeline: Pipeline, days: int) -> None:
    """Make every file in the folders of the tables older by some days."""
    for name in _tables(pipeline):
        table = pipeline.targets.catalog.load(name)
        assert table is not None
        for file in Path(local_path(table.location)).rglob("*"):
            at = file.stat().st_mtime - days * _DAY
            os.utime(file, (at, at))
