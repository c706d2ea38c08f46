"""Events in, the rows that must be left out: computed with polars from the events alone, never from messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.topic.events import DELETE, PRELOADED, Events, Ints, Workload
from bench.topic.images import images
from bench.topic.schema import ARROW

_CHUNK = 500_000


def survivors(workload: Workload, events: Events) -> pl.DataFrame:
    """Columns `key` and `version` of the rows that are left, sorted by key."""
    seen = pl.DataFrame({"key": events.key, "version": events.number, "op": events.op})
    last = seen.group_by("key", maintain_order=True).last()
    untouched = pl.DataFrame({"key": np.arange(workload.preloaded)}).join(last, on="key", how="anti")
    written = last.filter(pl.col("op") != DELETE).select("key", "version")
    return pl.concat([written, untouched.with_columns(version=pl.lit(PRELOADED, pl.Int64))]).sort("key")


def write_expected(workload: Workload, events: Events, folder: Path) -> list[Path]:
    """Write the final rows of each table to `folder/<table number>.parquet`, sorted by id."""
    left = survivors(workload, events)
    paths = []
    for table in range(workload.tables):
        mine = left.filter(pl.col("key") % workload.tables == table)
        paths.append(folder / f"{table}.parquet")
        write_rows(workload, mine["key"].to_numpy(), mine["version"].to_numpy(), paths[-1])
    return paths


def write_preloaded(workload: Workload, folder: Path) -> None:
    """Write the rows from before the first event, sorted by key, as files of equal size: 20, or more for many rows."""
    files = min(100, max(20, workload.preloaded // _CHUNK))
    for number, key in enumerate(np.array_split(np.arange(workload.preloaded), files)):
        write_rows(workload, key, np.full(len(key), PRELOADED), folder / f"{number:03d}.parquet")


def write_rows(workload: Workload, key: Ints, version: Ints, path: Path) -> None:
    """Write the images of keys as one compact Parquet file, some hundred thousand rows at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, ARROW, compression="zstd") as writer:
        for start in range(0, len(key), _CHUNK):
            part = slice(start, start + _CHUNK)
            writer.write_table(plain(images(workload, key[part], version[part])))


def plain(rows: pa.Table) -> pa.Table:
    """Images with the types that the lake gives them."""
    return rows.cast(ARROW)
