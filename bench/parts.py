"""The command `python -m bench.parts`: what the two heavy parts of a commit cost, without Kafka and without a JVM.

python -m bench.parts [--rows 50000,200000,1000000] [--candidates 1000000,10000000] [--keys 10000] [--repeat 5]

Prints the medians of wall and CPU seconds, and the most memory that Arrow held, of writing rows to data files, and of
looking keys up among the rows of a table.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.write.file_index import read_index
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.key_cache import LARGE, SMALL
from applier.sink.write.lookup import positions_of

FILE_ROWS = 500_000
"""Rows of one data file of the table in which keys are looked up."""


def main() -> None:
    """Measure, and print one line a size."""
    parser = argparse.ArgumentParser(prog="bench.parts", description="Measure the parts of a commit.")
    parser.add_argument("--rows", default="50000,200000,1000000", help="sizes of batches to write")
    parser.add_argument("--candidates", default="1000000,10000000", help="rows of tables to look keys up in")
    parser.add_argument("--keys", type=int, default=10_000, help="keys to look up")
    parser.add_argument("--repeat", type=int, default=5, help="turns; the median is shown")
    arguments = parser.parse_args()
    print(f"{'work':<28}{'seconds':>9}{'CPU s':>9}{'most MiB':>10}")
    for rows in map(int, arguments.rows.split(",")):
        batch = rows_of(np.random.default_rng(1).permutation(rows))
        with tempfile.TemporaryDirectory(prefix="bench-parts-") as folder:
            writer = writer_in(folder, batch.schema)
            show(f"write {rows:,} rows", arguments.repeat, lambda w=writer, b=batch: w.stage(b, ["id"]))
    for rows in map(int, arguments.candidates.split(",")):
        keys = pa.table({"id": np.sort(np.random.default_rng(1).choice(rows, arguments.keys, replace=False))})
        with tempfile.TemporaryDirectory(prefix="bench-parts-") as folder:
            search = search_in(folder, rows, keys)
            show(f"look up in {rows:,} rows", arguments.repeat, search)


def writer_in(folder: str, columns: pa.Schema) -> FileWriter:
    """Writes files of a table without partitions."""
    schema = TableSchema.parse(schema_json(columns, ["id"]))
    layout = FileLayout("bench.t", folder, schema, {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}, {}, 3)
    return FileWriter(layout, LocalStorage())


def search_in(folder: str, rows: int, keys: pa.Table) -> Callable[[], object]:
    """A look-up in a table whose files each hold a share of all keys, so that none can be left out."""
    writer = writer_in(folder, rows_of(np.arange(0)).schema)
    count = max(1, rows // FILE_ROWS)
    files = [file for part in range(count) for file in writer.stage(rows_of(np.arange(part, rows, count)), ["id"])]
    index = read_index("bench.t", 1, writer.layout.schema.fields[:1], lambda *_: files)

    def search() -> object:
        SMALL.clear()
        LARGE.clear()
        return positions_of(index.candidates(keys), keys, index.columns, writer.storage)

    return search


def rows_of(keys: Any) -> pa.Table:
    """Rows of six columns, about sixty bytes each before compression."""
    text = pa.array(keys).cast(pa.string())
    columns = {
        "id": pa.array(keys, pa.int64()),
        "name": text,
        "note": text,
        "a": pa.array(keys * 7 % 1000, pa.int64()),
        "b": pa.array(keys * 0.25, pa.float64()),
        "at": pa.array(keys, pa.int64()).cast(pa.timestamp("us")),
    }
    schema = TableSchema.parse(schema_json(pa.table(columns).schema, ["id"]))
    return pa.Table.from_arrays(list(columns.values()), schema=schema.arrow)


def show(work: str, repeat: int, run: Callable[[], object]) -> None:
    """Run it some times after once that does not count, and print the medians."""
    taken: list[tuple[float, float]] = []
    for _ in range(repeat + 1):
        start, cpu = time.perf_counter(), time.process_time()
        run()
        taken.append((time.perf_counter() - start, time.process_time() - cpu))
    seconds, used = (statistics.median(values) for values in zip(*taken[1:], strict=True))
    most = (pa.default_memory_pool().max_memory() or 0) >> 20
    print(f"{work:<28}{seconds:>9.2f}{used:>9.2f}{most:>10}", flush=True)


if __name__ == "__main__":
    main()
