"""Finds the positions of keys: a semi-join with the key columns of the files that may hold them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.format.bounds import SortedKeys
from applier.sink.format.storage import Storage
from applier.sink.format.types import Field
from applier.sink.write.file_index import PlannedFile
from applier.sink.write.parquet import ParquetSource, Positions, ranges

GROUP_ROWS = 5_000_000
"""Rows that one join takes. The hash table of the keys is built once a join, so joining file by file would cost more
than reading; more rows than this only cost memory."""

Form: TypeAlias = Callable[[pa.Table], pa.Table]
"""Turns columns into a form that a hash join compares rightly."""

_ROW = "\0row"
"""Name of the column that carries the row's number; no TiDB column can be named so."""


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for: the columns, their sorted keys, the form they are compared in."""

    fields: tuple[Field, ...]
    sought: Sequence[SortedKeys]
    form: Form
    storage: Storage


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows that were read of one file: `columns` with `_ROW`, numbered from `first`."""

    planned: PlannedFile
    first: int
    columns: pa.Table | None


def locate(
    files: Sequence[PlannedFile],
    keys: pa.Table,
    fields: Sequence[Field],
    storage: Storage,
    threads: int = 0,
    group_rows: int = GROUP_ROWS,
    form: Form | None = None,
) -> dict[str, Positions]:
    """Find the rows of some keys; dead versions of a row are found too.

    Args:
        files: Files that may hold the keys (`Plan.candidates`).
        keys: Key columns, named and typed as in the table.
        fields: The key columns of the table.
        storage: Where the files lie.
        threads: Joins that run at once; 0 means one a processor.
        group_rows: Rows that one join takes.
        form: Brings key columns into a form in which equal rows are equal to a hash join; `comparable` when absent.

    Returns:
        Path of each file with hits -> positions.
    """
    if not files or keys.num_rows == 0:
        return {}
    names = [field.name for field in fields]
    search = _Search(tuple(fields), [SortedKeys(keys[name]) for name in names], form or comparable, storage)
    wanted = search.form(keys.select(names))
    workers = threads or os.cpu_count() or 1
    groups = _grouped(files, min(group_rows, sum(planned.file.records for planned in files) // workers + 1))

    def join(group: Sequence[PlannedFile]) -> dict[str, Positions]:
        return _join(list(_pieces(group, search)), wanted)

    found: dict[str, Positions] = {}
    if len(groups) == 1 or workers == 1:
        for group in groups:
            found |= join(group)
        return found
    with ThreadPoolExecutor(workers) as pool:
        for hits in pool.map(join, groups):
            found |= hits
    return found


def comparable(columns: pa.Table) -> pa.Table:
    """The same columns in a form in which equal keys are equal to a hash join: -0.0 is 0.0."""
    for index, column in enumerate(columns.columns):
        if pa.types.is_floating(column.type):
            zero: Any = pa.scalar(0.0, column.type)
            columns = columns.set_column(index, columns.field(index).name, pc.add(column, zero))
    return columns


def _grouped(files: Sequence[PlannedFile], group_rows: int) -> list[list[PlannedFile]]:
    groups: list[list[PlannedFile]] = [[]]
    rows = 0
    for planned in files:
        if groups[-1] and rows + planned.file.records > group_rows:
            groups.append([])
            rows = 0
        groups[-1].append(planned)
        rows += planned.file.records
    return groups


def _pieces(files: Sequence[PlannedFile], search: _Search) -> Iterator[_Piece]:
    first = 0
    for planned in files:
        yield _Piece(planned, first, _read(planned, first, search))
        first += planned.file.records


def _read(planned: PlannedFile, first: int, search: _Search) -> pa.Table | None:
    tables = []
    with ParquetSource(search.storage, planned.file.path) as source:
        for group, (start, end) in enumerate(ranges(source.group_rows)):
            bounds = [source.bounds(group, field) for field in search.fields]
            if all(keys.holds(*bound) for keys, bound in zip(search.sought, bounds, strict=True)):
                rows = pa.array(np.arange(first + start, first + end))
                tables.append(search.form(source.read(group, search.fields)).append_column(_ROW, rows))
    return pa.concat_tables(tables) if tables else None


def _join(pieces: Sequence[_Piece], keys: pa.Table) -> dict[str, Positions]:
    tables = [piece.columns for piece in pieces if piece.columns is not None]
    if not tables:
        return {}
    # One thread: several tables are joined at once by the callers, and Acero's pool would be shared by all of them.
    hits = pa.concat_tables(tables).join(keys, keys.column_names, join_type="left semi", use_threads=False)
    rows = np.sort(hits[_ROW].to_numpy())
    starts = np.array([piece.first for piece in pieces])
    edges = [*np.searchsorted(rows, starts), len(rows)]
    return {
        piece.planned.file.path: rows[edges[index] : edges[index + 1]] - piece.first
        for index, piece in enumerate(pieces)
        if edges[index] < edges[index + 1]
    }
