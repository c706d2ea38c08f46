"""Reads the two sides of a comparison in one form: the columns of the upstream, in the types of the Iceberg table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.packing import packed
from applier.commands.verify.columns import FileTwice
from applier.errors import OutsideRefused
from applier.pipeline.load.spark import PART_BYTES, Reader
from applier.sink.format.storage import Storage
from applier.sink.format.types import Field, TableSchema
from applier.sink.iceberg.files import JavaStorage
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import IndexedFile, read_index
from applier.sink.write.file_writer import conform
from applier.sink.write.parquet import ParquetSource, Positions, ranges

_MOST_PARTS = 64
"""Parts of a side, each a task: what every one of them answers is in memory at once."""


class SideReader(Protocol):
    """Reads rows of one side, in any process."""

    def read(self, part: Sequence[Any]) -> Iterator[pa.Table]:
        """The rows of a part in bounded blocks; both sides give the same columns."""


class Side(NamedTuple):
    """One side of a comparison: what reads it, and its parts, a task each."""

    reader: SideReader
    parts: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads the living rows of data files of one snapshot; a row that has the time of its delete does not live."""

    storage: Storage
    fields: Sequence[Field]
    deleted_at: Field | None = None

    def read(self, part: Sequence[IndexedFile]) -> Iterator[pa.Table]:
        """See `SideReader.read`: a block is a row group.

        Raises:
            TableMismatch: A file has a column of another type.
            TransientError: A file cannot be read.
        """
        load_deleted(part, self.storage)
        for indexed in part:
            with self.opened(indexed) as source:
                for group, (start, end) in enumerate(ranges(source.group_rows)):
                    yield self.living(source, group, dead_between(indexed, start, end))

    def opened(self, indexed: IndexedFile) -> ParquetSource:
        """A file, as a context manager."""
        return ParquetSource(self.storage, indexed.file.path, indexed.file.size)

    def living(self, source: ParquetSource, group: int, dead: Positions) -> pa.Table:
        """The rows of a row group but those at dead positions, which are counted from its first row."""
        rows = source.read(group, [*self.fields, *([] if self.deleted_at is None else [self.deleted_at])])
        if len(dead):
            alive = np.ones(rows.num_rows, dtype=bool)
            alive[dead] = False
            rows = rows.filter(pa.array(alive))
        if self.deleted_at is None:
            return rows
        kept = rows.filter(pc.is_null(rows[self.deleted_at.name]))
        return kept.select([field.name for field in self.fields])


def dead_between(indexed: IndexedFile, start: int, end: int) -> Positions:
    """Dead rows of a file from one position on and before another, counted from the first; they have been read."""
    dead = np.asarray((indexed.deleted or ()) and indexed.deleted.to_array(), dtype=np.int64)
    first, last = np.searchsorted(dead, [start, end])
    return dead[first:last] - start


@dataclass(frozen=True, slots=True)
class UpstreamReader:
    """Reads rows of an export or a TiDB as a load writes them into a table, of which only these columns count."""

    reader: Reader
    table: str
    schema: TableSchema

    def read(self, part: Sequence[Any]) -> Iterator[pa.Table]:
        """See `SideReader.read`.

        Raises:
            ValueRefused: A value cannot be read, or does not fit its column.
            MomentGone, OutsideRefused, TransientError: As the readers of a load.
        """
        for piece in part:
            for rows, _ in self.reader.read(piece):
                yield self.conformed(rows)

    def conformed(self, rows: pa.Table) -> pa.Table:
        """Rows that the reader gave, as the Iceberg table has them. Raises ValueRefused where a value does not fit."""
        names = [field.name for field in self.schema.fields]
        version = self.reader.version
        if (admitting := self.reader.rules.shape_of(version.name).filter) is not None:
            rows = admitting.of(str(version.name), rows)
        return conform(self.table, rows.select(names), self.schema)


def snapshot_side(table: Table, snapshot_id: int | None, fields: Sequence[Field]) -> Side:
    """The living rows of a snapshot; None is that of a table without one.

    Raises:
        OutsideRefused: Python does not reach the files of the table.
        FileTwice: The snapshot has one of them more than once, as a commit leaves it that was repeated.
        TableMismatch: They are in a form that is not read.
        TransientError: The snapshot has expired, or the catalog does not answer.
    """
    storage = storage_for(table)
    if isinstance(storage, JavaStorage):
        what = f"Table {table} cannot be verified: Python does not reach its files at {table.location}."
        hint = "Install the package that PyIceberg needs for them, and set its properties under [catalog]."
        raise OutsideRefused(what, hint)
    files = [] if snapshot_id is None else table.scan_past(snapshot_id)
    index = read_index(str(table), snapshot_id, (), lambda *_: files)
    if len(index.files) < len(files):
        (path, times), *_ = Counter(file.path for file in files).most_common(1)
        raise FileTwice(f"Table {table} holds data file {path} {times} times, and each time its rows count.")
    parts = _parts([*index.files.values()], lambda indexed: indexed.file.size)
    return Side(SnapshotReader(storage, tuple(fields), table.schema.deleted_at), parts)


def upstream_side(reader: Reader, files: Sequence[Any], table: str, schema: TableSchema) -> Side:
    """The rows of files of an export, or of ranges of a TiDB."""
    pieces = [piece for file in files for piece in reader.parts(file, PART_BYTES)]
    return Side(UpstreamReader(reader, table, schema), _parts(pieces, lambda piece: piece.size))


def _parts(pieces: Sequence[Any], size: Any) -> list[list[Any]]:
    total = sum(map(size, pieces))
    return packed(pieces, size, max(PART_BYTES, total // _MOST_PARTS))
