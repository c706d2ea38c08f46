"""The command `python -m bench.engines`: what the two engines of the sink cost, on the same rows and keys, in turns.

python -m bench.engines [--rows 50000,200000,1000000] [--candidates 1000000,10000000] [--keys 10000] [--repeat 5]

Prints the medians of wall and CPU seconds, all processes together, of writing rows to data files, and of looking keys
up among the rows of a table. The engines take turns within one session, after a turn that does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.sink.write.engine import ArrowEngine, Engine
from applier.sink.write.file_index import read_index
from applier.sink.write.spark import SparkEngine
from applier.sink.write.table_writer import TableWriter
from bench.lake import Lake
from bench.meter import tree_cpu
from bench.session import session

FILE_ROWS = 500_000
"""Rows of one data file of the table in which keys are looked up."""


def main() -> None:
    """Measure, and print one line a size and engine."""
    parser = argparse.ArgumentParser(prog="bench.engines", description="Compare the engines of the sink.")
    parser.add_argument("--rows", default="50000,200000,1000000", help="sizes of batches to write")
    parser.add_argument("--candidates", default="1000000,10000000", help="rows of tables to look keys up in")
    parser.add_argument("--keys", type=int, default=10_000, help="keys to look up")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each engine; the median is shown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-engines-") as folder:
        lake = Lake(Path(folder) / "engines")
        lake.folder.mkdir()
        spark = session("engines", lake)
        catalog = Catalog(spark, lake.name)
        print(f"{'work':<28}{'engine':<8}{'seconds':>9}{'CPU s':>9}")
        for rows in map(int, arguments.rows.split(",")):
            table = create(catalog, f"write_{rows}")
            batch = rows_of(np.arange(rows))
            show(
                f"write {rows:,} rows",
                engines(spark, lake, table),
                arguments.repeat,
                lambda e, b=batch: e.stage(b, ["id"]),
            )
        for rows in map(int, arguments.candidates.split(",")):
            table = fill(catalog, f"look_{rows}", rows)
            keys = pa.table({"id": np.sort(np.random.default_rng(1).choice(rows, arguments.keys, replace=False))})
            files = read_index(str(table), table.snapshot_id, table.schema.fields[:1], table.scan)
            show(
                f"look up in {rows:,} rows",
                engines(spark, lake, table),
                arguments.repeat,
                lambda e, f=files, k=keys: e.locate(f, k),
            )
        spark.stop()


def engines(spark: Any, lake: Lake, table: Table) -> dict[str, Engine]:
    """Both engines for one table."""
    return {"arrow": ArrowEngine(table), "spark": SparkEngine(spark, lake.name, table)}


def create(catalog: Catalog, name: str) -> Table:
    """A table without rows, sorted by key."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(rows_of(np.arange(0)).schema)[1:]])
    catalog.create(("bench", name), columns, key=["id"], sort=["id"])
    table = catalog.load(("bench", name))
    assert table is not None
    return table


def fill(catalog: Catalog, name: str, rows: int) -> Table:
    """A table whose files each hold a share of all keys, so that none can be left out."""
    table = create(catalog, name)
    writer = TableWriter(table, "bench", 1, "arrow")
    files = max(1, rows // FILE_ROWS)
    for number in range(files):
        part = rows_of(np.arange(number, rows, files))
        batch = ChangeBatch(part, pa.array(np.ones(part.num_rows, bool)), part.select(["id"]).slice(0, 0))
        writer.apply(batch, Stamp("bench", 1, number + 1), exact=True)
    return table


def rows_of(keys: Any) -> pa.Table:
    """Rows of six columns, about sixty bytes each before compression."""
    text = pa.array(keys).cast(pa.string())
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "name": text,
            "note": text,
            "a": pa.array(keys * 7 % 1000, pa.int64()),
            "b": pa.array(keys * 0.25, pa.float64()),
            "at": pa.array(keys, pa.int64()).cast(pa.timestamp("us")),
        }
    )


def show(work: str, contenders: dict[str, Engine], repeat: int, run: Callable[[Engine], object]) -> None:
    """Run each engine in turns, and print the medians."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(repeat + 1):
        for name, engine in contenders.items():
            start, cpu = time.perf_counter(), cpu_seconds()
            run(engine)
            taken[name].append((time.perf_counter() - start, cpu_seconds() - cpu))
    for name, turns in taken.items():
        seconds, used = (statistics.median(values) for values in zip(*turns[1:], strict=True))
        print(f"{work:<28}{name:<8}{seconds:>9.2f}{used:>9.2f}", flush=True)


def cpu_seconds() -> float:
    """CPU seconds that this process and all that it started have used."""
    return time.process_time() + tree_cpu(os.getpid())


if __name__ == "__main__":
    main()
