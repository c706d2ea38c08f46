"""Groups the files of a table by bytes, and does work on each group: here, or where rows stay in tasks, there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from applier.changefeed.packing import packed
from applier.runtime.places import Where
from applier.sink.format.storage import Storage
from applier.sink.format.types import Field
from applier.sink.iceberg.files import JavaStorage
from applier.sink.iceberg.table import Table
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.parquet import ParquetSource, Positions, ranges

GROUP_BYTES = 64 << 20
"""Bytes of files in a group, about: some seconds of work, and one file of rows that are written anew."""

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def run_on_groups(
    table: Table,
    what: str,
    work: Callable[[_Part], _Result],
    parts: Sequence[_Part],
    files: Sequence[IndexedFile],
    *storages: Storage,
) -> Iterable[_Result]:
    """What work returns for each part, in order: one after the other here, or of one job.

    It can be pickled, and files that it writes have names of their own, as it may be done twice. It reads the `files`;
    tasks reach no storage that Java alone does. Messages say `what` it does to the table.
    """
    tasks, is_by_java = table.java.tasks, any(isinstance(storage, JavaStorage) for storage in storages)
    if tasks is None or tasks.places.of_files(bytes_of(files), is_by_java=is_by_java).where is Where.HERE:
        return map(work, parts)
    return tasks.run(f"{what} table {table}", work, parts)


def bytes_of(files: Iterable[IndexedFile]) -> int:
    """Bytes of some files."""
    return sum(indexed.file.size for indexed in files)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Row groups of a data file: those whose first row is at one of the positions from `first` up to `end`."""

    file: IndexedFile
    first: int
    end: int

    @property
    def size(self) -> float:
        """Bytes, about."""
        return self.file.file.size * (self.end - self.first) / max(1, self.file.file.records)

    def living(self, storage: Storage, fields: Sequence[Field]) -> Iterator[tuple[Positions, pa.Table]]:
        """Positions and some fields of the rows that are not dead, one row group at a time."""
        with ParquetSource(storage, self.file.file.path, self.file.file.size) as source:
            yield from self.living_in(source, fields)

    def living_in(self, source: ParquetSource, fields: Sequence[Field]) -> Iterator[tuple[Positions, pa.Table]]:
        """As `living`, of the file as it is opened."""
        dead = np.array(self.file.deleted or (), np.int64)
        for group, (first, end) in enumerate(ranges(source.group_rows)):
            if not self.first <= first < self.end:
                continue
            gone = dead[np.searchsorted(dead, first) : np.searchsorted(dead, end)]
            living = np.ones(end - first, bool)
            living[gone - first] = False
            if not living.any():
                continue
            rows = source.read(group, fields)
            yield first + np.flatnonzero(living), rows.filter(pa.array(living)) if len(gone) else rows


def groups(files: Iterable[IndexedFile]) -> list[list[FileRows]]:
    """All rows of some files in their order, in groups of about `GROUP_BYTES`; large files are cut."""
    return packed(chain.from_iterable(map(_parts, files)), lambda rows: rows.size, GROUP_BYTES)


def _parts(file: IndexedFile) -> Iterator[FileRows]:
    count = -(-file.file.size // GROUP_BYTES)
    edges = sorted({file.file.records * number // count for number in range(count + 1)})
    return (FileRows(file, *edge) for edge in pairwise(edges))
