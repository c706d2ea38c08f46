"""Rewrites the living rows of a table with other columns, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from applier.sink.evolve.casts.cast import CastRefused, cast
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.storage import Storage
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile, storage_for
from applier.sink.iceberg.table import Table
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import IndexedFile, read_index
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.parquet import ParquetSource

Column: TypeAlias = "pa.ChunkedArray[Any]"

CHUNK_BYTES = 256 << 20
"""Bytes of rows in memory that become one data file. Older small files are merged on the way."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where the values of a new field come from: the old field, whose values a step may cast, or else a constant."""

    field: Field
    old: Field | None = None
    step: ConvertField | None = None
    constant: pa.Scalar[Any] | None = None

    def values(self, rows: pa.Table) -> Column:
        """The field's values, from rows of the old fields.

        Raises:
            CastRefused: A value cannot be cast exactly.
        """
        if self.old is None:
            constant: Any = pa.repeat(self.constant, rows.num_rows)  # type: ignore[arg-type]
            return pa.chunked_array([constant])
        column = rows[self.old.name]
        if self.step is None:
            return column.cast(self.field.arrow)
        return cast_chunks(column, self.step)


class LiveRows:
    """The rows of a snapshot that are not deleted, with the columns that the table has now; None for a table without
    one.
    """

    def __init__(self, table: Table, snapshot_id: int | None) -> None:
        self._table = table
        self._snapshot_id = snapshot_id

    @cached_property
    def _storage(self) -> Storage:
        return storage_for(self._table)

    @cached_property
    def _files(self) -> list[IndexedFile]:
        table, snapshot_id = self._table, self._snapshot_id
        scan = table.scan if snapshot_id == table.snapshot_id else table.scan_past
        found = read_index(str(table), snapshot_id, (), scan)
        files = sorted(found.files.values(), key=lambda indexed: str(indexed.file.partition))
        load_deleted(files, self._storage)
        return files

    @cached_property
    def count(self) -> int:
        """How many there are.

        Raises:
            TableMismatch: The table holds equality deletes or files that are not Parquet.
            TransientError: Catalog or storage do not answer.
        """
        if self._snapshot_id is None:
            return 0
        return sum(indexed.file.records - len(indexed.deleted or ()) for indexed in self._files)

    @property
    def spec_ids(self) -> set[int]:
        """Ids of the partition specs of the files that hold them; none without a snapshot."""
        return set() if self._snapshot_id is None else {indexed.file.spec_id for indexed in self._files}

    def groups(self, fields: Sequence[Field]) -> Iterator[pa.Table]:
        """Some fields of all rows, one row group of a file at a time; rows of one partition together."""
        for indexed in self._files:
            yield from self._read(indexed, fields)

    def has_null(self, field: Field) -> bool:
        """Whether a row has no value for a field; rows are read only if the metrics of the files do not exclude it."""
        head = self._snapshot_id
        if head is not None and self._table.files.null_count(head, field) == 0:
            return False
        return any(rows[field.name].null_count for rows in self.groups([field]))

    def are_changed(self, field: Field, step: ConvertField) -> bool:
        """Whether a cast gives any row another value than it has.

        Raises:
            CastRefused: A value cannot be cast exactly.
        """
        for rows in self.groups([field]):
            column = rows[field.name]
            if not cast_chunks(column, step).equals(column.cast(step.new_arrow)):
                return True
        return False

    def _read(self, indexed: IndexedFile, fields: Sequence[Field]) -> Iterator[pa.Table]:
        dead = np.array(indexed.deleted or (), np.int64)
        first = 0
        with ParquetSource(self._storage, indexed.file.path) as source:
            for group, size in enumerate(source.group_rows):
                rows = source.read(group, fields)
                gone = dead[np.searchsorted(dead, first) : np.searchsorted(dead, first + size)] - first
                first += size
                if len(gone):
                    living = np.ones(size, bool)
                    living[gone] = False
                    rows = rows.filter(pa.array(living))
                yield rows


def rewrite(
    live: LiveRows, sources: Sequence[ValueSource], table: Table, show: Callable[[int], None]
) -> list[DataFile]:
    """Write all rows to the table as it will be, each field with the values of its source; show how many were read.

    Raises:
        CastRefused: A value cannot be cast exactly; the files written so far are orphans.
    """
    old = {source.old.name: source.old for source in sources if source.old is not None}

    def groups() -> Iterator[list[Column]]:
        done = 0
        for rows in live.groups(list(old.values())):
            yield [source.values(rows) for source in sources]
            done += rows.num_rows
            show(done)

    return stage_in_parts(table, groups())


def stage_in_parts(table: Table, groups: Iterable[Sequence[Column]]) -> list[DataFile]:
    """Write rows to data files of a table, a bounded part at a time, each file sorted by the identifier fields.

    The rows come in groups, as all columns of the table in order.
    """
    writer, schema = FileWriter(table.file_layout, storage_for(table)), table.schema
    files: list[DataFile] = []
    waiting: list[pa.Table] = []
    for columns in groups:
        waiting.append(pa.Table.from_arrays(list(columns), schema=schema.arrow))
        if sum(part.nbytes for part in waiting) >= CHUNK_BYTES:
            files += writer.stage(pa.concat_tables(waiting), schema.identifier)
            waiting.clear()
    return files + (writer.stage(pa.concat_tables(waiting), schema.identifier) if waiting else [])


def cast_chunks(column: Column, step: ConvertField) -> Column:
    try:
        chunks: Any = [cast(chunk, step) for chunk in column.chunks]
        result: Column = pa.chunked_array(chunks, type=step.new_arrow)  # type: ignore[call-overload]
    except CastRefused as error:
        raise CastRefused(f"column {step.name}: {error}") from None
    return result


__all__ = ["CastRefused", "LiveRows", "ValueSource", "rewrite"]
