"""The heavy parts of a commit: finds the positions of keys in data files, and writes rows to new ones.

A look-up is a semi-join with the key columns of the files that may hold the keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.format.bounds import SortedKeys
from applier.sink.format.column_metrics import metrics
from applier.sink.format.partition_spec import parse_spec, split
from applier.sink.format.storage import Storage, storage_of
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.layout import order_of_files
from applier.sink.iceberg.table import Table
from applier.sink.write import rows as rows_of
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import FileIndex, PlannedFile
from applier.sink.write.key_cache import FILE_ROWS, KEYS
from applier.sink.write.parquet import ParquetSource, Positions, ranges

EngineName = Literal["auto", "spark", "arrow"]

GROUP_ROWS = 5_000_000
"""Rows that one join takes. The hash table of the keys is built once a join, so joining file by file would cost more
than reading; more rows than this only cost memory."""

FEW_ROWS = 200_000
"""Rows that one join takes where two would be faster: another thread costs more than they do."""

Form: TypeAlias = Callable[[pa.Table], pa.Table]
"""Turns columns into a form that a hash join compares rightly."""

_ROW = "\0row"
"""Name of the column that carries the row's number; no TiDB column can be named so."""


class Engine(Protocol):
    """Looks keys up and writes rows of one table. Both calls leave the table as it is and may be repeated; files that
    were written for nothing are orphans, which maintenance removes.
    """

    def locate(self, plan: FileIndex, keys: pa.Table) -> dict[str, Positions]:
        """Positions of the rows of some keys, by path of the data file; rows that are dead may be among them.

        The columns of the plan are the key; the keys are in the table's types.
        """

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """Write rows in the table's columns, in its sort order or else by key, to data files that a commit can add."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When `auto` leaves a batch to Spark.

    From so many changed rows on, more than one core should write them. From so many rows in the files that may hold a
    key on, a Spark job's fixed second pays.
    """

    rows: int = 1_000_000
    candidate_rows: int = 100_000_000


class ArrowEngine:
    """Both parts in this process, on Arrow: no job to start, nothing of the table moved but its key columns.

    A look-up runs in some threads; 0 means one a processor.
    """

    def __init__(self, table: Table, threads: int = 0) -> None:
        self._table = table
        self._threads = threads
        self.storage: Storage = storage_of(table.location, table.storage_properties, lambda: JavaStorage(table.handle))

    @property
    def reaches_storage(self) -> bool:
        """False where every byte has to pass through the JVM, which is too slow for columns."""
        return not isinstance(self.storage, JavaStorage)

    def locate(self, plan: FileIndex, keys: pa.Table) -> dict[str, Positions]:
        """See `Engine.locate`."""
        return positions_of(plan.candidates(keys), keys, plan.columns, self.storage, self._threads)

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """See `Engine.stage`."""
        table = self._table
        if rows.num_rows == 0:
            return []
        fields, order = order_of_files(table, key)
        rows = rows_of.sort(rows, fields)
        spec = table.spec_json
        if not spec["fields"]:
            return self.write(rows, (), key, order)
        groups = split(rows, parse_spec(str(table), spec, table.schema))
        return [file for values, group in groups for file in self.write(group, values, key, order)]

    def read(
        self, files: Mapping[str, PlannedFile], hits: Mapping[str, Positions], fields: Sequence[Field]
    ) -> pa.Table:
        """Columns of located rows, file after file in the order of `hits`."""
        tables = []
        for path, positions in hits.items():
            with ParquetSource(self.storage, files[path].file.path) as source:
                tables.append(source.take(positions, fields))
        return pa.concat_tables(tables)

    def where(
        self, plan: FileIndex, fields: Sequence[Field], predicate: Callable[[pa.Table], Any]
    ) -> dict[str, Positions]:
        """Positions of the living rows that a predicate names, by path. It is not asked about dead ones."""
        load_deleted(list(plan.files.values()), self.storage)
        result: dict[str, Any] = {}
        for path, planned in plan.files.items():
            living = np.ones(planned.file.records, bool)
            living[np.array(planned.deleted or (), np.int64)] = False
            with ParquetSource(self.storage, planned.file.path) as source:
                for group, (start, end) in enumerate(ranges(source.group_rows)):
                    if not living[start:end].any():
                        continue
                    mask = predicate(source.read(group, fields).filter(pa.array(living[start:end])))
                    chosen = np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), bool)
                    living[start:end][living[start:end]] = chosen
            positions = np.flatnonzero(living)
            if len(positions):
                result[path] = positions
        return result

    def write(self, rows: pa.Table, values: Sequence[Any], key: Sequence[str], order: int) -> list[DataFile]:
        """Write rows of one partition as they are ordered; values and the id of the order are those of Iceberg's JSON.

        The columns are those of the table, which other ones may follow.
        """
        table, properties = self._table, self._table.writing
        partition = table.files.partition(values) if values else None
        target = int(properties.get("write.target-file-size-bytes", rows_of.TARGET_BYTES))
        files = rows_of.write(rows, self.storage, lambda name: table.files.location(name, partition), target)
        if key and len(files) == 1 and rows.num_rows <= FILE_ROWS:
            named = {field.name: field for field in table.schema.fields}
            KEYS.put(files[0].path, [named[name] for name in key], comparable(rows.select(list(key))))
        return [
            table.files.written(
                {
                    "file-path": file.path,
                    "file-format": "parquet",
                    "partition": list(values),
                    "file-size-in-bytes": file.size,
                    "sort-order-id": order,
                    **metrics(file.footer, table.schema.fields, key, properties),
                }
            )
            for file in files
        ]


@dataclass(frozen=True, slots=True)
class _Search:
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


def positions_of(
    files: Sequence[PlannedFile],
    keys: pa.Table,
    fields: Sequence[Field],
    storage: Storage,
    threads: int = 0,
    group_rows: int = GROUP_ROWS,
    form: Form | None = None,
) -> dict[str, Positions]:
    """Find the rows of some keys, which are named and typed as in the table; dead versions of a row are found as well.

    Joins of `group_rows` rows each run in some threads; 0 means one a processor. Key columns are
    compared in a form in which equal rows are equal to a hash join; `comparable` when absent.

    Returns:
        Positions by path, of each file with hits.
    """
    if not files or keys.num_rows == 0:
        return {}
    names = [field.name for field in fields]
    search = _Search(tuple(fields), [SortedKeys(keys[name]) for name in names], form or comparable, storage)
    wanted = search.form(keys.select(names))
    workers = threads or os.cpu_count() or 1
    even = max(FEW_ROWS, sum(planned.file.records for planned in files) // workers + 1)
    groups = _grouped(files, min(group_rows, even))

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
    if planned.file.records <= FILE_ROWS and search.form is comparable:
        columns = KEYS.get(planned.file.path, search.fields) or _read_small(planned, search)
        return columns.append_column(_ROW, pa.array(np.arange(first, first + columns.num_rows)))
    tables = []
    with ParquetSource(search.storage, planned.file.path) as source:
        for group, (start, end) in enumerate(ranges(source.group_rows)):
            bounds = [source.bounds(group, field) for field in search.fields]
            if all(keys.holds(*bound) for keys, bound in zip(search.sought, bounds, strict=True)):
                rows = pa.array(np.arange(first + start, first + end))
                tables.append(search.form(source.read(group, search.fields)).append_column(_ROW, rows))
    return pa.concat_tables(tables) if tables else None


def _read_small(planned: PlannedFile, search: _Search) -> pa.Table:
    with ParquetSource(search.storage, planned.file.path) as source:
        groups = [source.read(group, search.fields) for group in range(len(source.group_rows))]
    columns = comparable(pa.concat_tables(groups))
    KEYS.put(planned.file.path, search.fields, columns)
    return columns


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
