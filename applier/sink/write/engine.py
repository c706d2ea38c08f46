"""The heavy parts of a commit: looks keys up in data files, and writes rows to new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from applier.sink.format.storage import Storage, storage_of
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.table import Table
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import FileIndex, IndexedFile
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.lookup import positions_of
from applier.sink.write.parquet import ParquetSource, Positions, ranges

EngineName = Literal["auto", "spark", "arrow"]


class Engine(Protocol):
    """Looks keys up and writes rows of one table. Both calls leave the table as it is and may be repeated; files that
    were written for nothing are orphans, which maintenance removes.
    """

    def locate(self, index: FileIndex, keys: pa.Table) -> dict[str, Positions]:
        """Positions of the rows of some keys, by path of the data file; rows that are dead may be among them.

        The columns of the index are the key; the keys are in the table's types.
        """

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """Write rows in the table's columns, in its sort order or else by key, to data files that a commit can add."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When `auto` leaves a batch to Spark.

    Batches of at least `rows` changed rows deserve more than one core. Look-ups in files of at least `candidate_rows`
    rows run in Spark, whose start takes a second.
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

    @property
    def writer(self) -> FileWriter:
        """Writes files of the table as it is now."""
        return FileWriter(self._table.file_layout, self.storage)

    def locate(self, index: FileIndex, keys: pa.Table) -> dict[str, Positions]:
        """See `Engine.locate`."""
        return positions_of(index.candidates(keys), keys, index.columns, self.storage, self._threads)

    def stage(self, rows: pa.Table, key: Sequence[str]) -> list[DataFile]:
        """See `Engine.stage`."""
        return self.writer.stage(rows, key)

    def where(
        self, index: FileIndex, fields: Sequence[Field], predicate: Callable[[pa.Table], Any]
    ) -> dict[str, Positions]:
        """Positions of the living rows that a predicate names, by path. It is not asked about dead ones."""
        load_deleted(list(index.files.values()), self.storage)
        result: dict[str, Any] = {}
        for path, indexed in index.files.items():
            living = np.ones(indexed.file.records, bool)
            living[np.array(indexed.deleted or (), np.int64)] = False
            with ParquetSource(self.storage, indexed.file.path) as source:
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


def read_located(
    storage: Storage, files: Mapping[str, IndexedFile], hits: Mapping[str, Positions], fields: Sequence[Field]
) -> pa.Table:
    """Columns of located rows, file after file in the order of `hits`."""
    tables = []
    for path, positions in hits.items():
        with ParquetSource(storage, files[path].file.path) as source:
            tables.append(source.take(positions, fields))
    return pa.concat_tables(tables)
