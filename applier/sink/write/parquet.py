"""Reads the Parquet files of a table by field id, not by the names that their columns had when they were written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from applier.errors import TableMismatch, TransientError, reason_of
from applier.sink.format.bounds import Ordered, ordered
from applier.sink.format.storage import Storage
from applier.sink.format.types import FIELD_ID, Chunks, Field, default_of, leaves, repeated

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Sorted row positions in one data file, counted from 0."""


class ParquetSource:
    """One Parquet file, opened; use it as a context manager.

    Columns are matched by field id: the file may be older than a rename, a promotion or the column itself. `size` as of
    `Storage.open`.
    """

    def __init__(self, storage: Storage, path: str, size: int | None = None) -> None:
        self.path = path
        self._handle = storage.open(path, size)
        try:
            with self._reported():
                self._file = pq.ParquetFile(self._handle)
        except TransientError:
            self._handle.close()
            raise
        self._columns = _columns(self._file.schema_arrow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    @property
    def has_ids(self) -> bool:
        """Whether each column has a field id; those of other writers may be known by their names alone."""
        return all(isinstance(known, int) for known in self._columns)

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]

    def bounds(self, group: int, field: Field) -> tuple[Ordered | None, Ordered | None]:
        """Smallest and largest value of a column in a row group, as far as the footer shows."""
        found = self._column(field)
        if found is None or len(found[1]) != 1:
            return None, None
        with self._reported():
            statistics = self._file.metadata.row_group(group).column(found[1][0]).statistics
            if statistics is None or not statistics.has_min_max:
                return None, None
            return ordered(statistics.min, field.arrow), ordered(statistics.max, field.arrow)

    def read(self, group: int, fields: Sequence[Field]) -> pa.Table:
        """Columns of one row group, with the names and types that the table has now.

        Raises:
            TableMismatch: A column of the file cannot be read as the table's type.
        """
        found = [self._column(field) for field in fields]
        wanted = [index for column in found if column is not None for index in column[1]]
        with self._reported():
            table = self._file.reader.read_row_group(group, column_indices=wanted, use_threads=False)
        rows = self._file.metadata.row_group(group).num_rows
        arrays = [
            repeated(default_of(field), rows) if column is None else self._cast(table[column[0]], field)
            for field, column in zip(fields, found, strict=True)
        ]
        return pa.Table.from_arrays(arrays, [field.name for field in fields])

    def take(self, positions: Positions, fields: Sequence[Field]) -> pa.Table:
        """Columns of the rows at sorted positions in the file."""
        tables = []
        for group, (start, end) in enumerate(ranges(self.group_rows)):
            first, last = np.searchsorted(positions, [start, end])
            if first < last:
                tables.append(self.read(group, fields).take(positions[first:last] - start))
        return pa.concat_tables(tables) if tables else self.read(0, fields).slice(0, 0)

    def _column(self, field: Field) -> tuple[str, tuple[int, ...]] | None:
        names = (field.id, field.iceberg_name, field.name)
        return next((self._columns[name] for name in names if name in self._columns), None)

    def _cast(self, values: Chunks, field: Field) -> Chunks:
        try:
            return values if values.type == field.arrow else values.cast(field.arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            what = f"Column {field.name} of file {self.path} is {values.type} and cannot be read as {field.type}"
            raise TableMismatch(what, "Rewrite the table's files, or restore the column's type.") from error

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise TransientError(f"Cannot read Parquet file {self.path}: {reason_of(error)}.") from error


def ranges(groups: Sequence[int]) -> list[tuple[int, int]]:
    """First position of each row group, and the one behind its last."""
    ends = np.cumsum([0, *groups])
    return [(int(ends[index]), int(ends[index + 1])) for index in range(len(groups))]


def _columns(schema: pa.Schema) -> dict[int | str, tuple[str, tuple[int, ...]]]:
    """Name in the file and leaf numbers of each top-level column, by field id.

    Files that were written without Iceberg and added later have no ids: their columns count by name.
    """
    result: dict[int | str, tuple[str, tuple[int, ...]]] = {}
    first = 0
    for field in schema:
        width = leaves(field.type)
        number = (field.metadata or {}).get(FIELD_ID)
        result[field.name if number is None else int(number)] = (field.name, tuple(range(first, first + width)))
        first += width
    return result
