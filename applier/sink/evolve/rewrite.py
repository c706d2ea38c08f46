"""Rewrites the living rows of a table with other columns, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import pyarrow as pa

from applier.sink.evolve.casts.cast import CastRefused, cast
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.storage import Storage
from applier.sink.format.types import Chunks, Field
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_groups import FileRows, groups, run_on_groups
from applier.sink.write.file_index import IndexedFile, read_index
from applier.sink.write.file_writer import FileWriter

R = TypeVar("R")

CHUNK_BYTES = 256 << 20
"""Bytes of rows in memory that become one data file. Older small files are merged on the way."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where the values of a new field come from: the old field, whose values a step may cast, or else a constant.

    What TiDB shows for a step is found by the `key`: the names of its columns upstream and here.
    """

    field: Field
    old: Field | None = None
    step: ConvertField | None = None
    constant: pa.Scalar[Any] | None = None
    key: tuple[tuple[str, str], ...] = ()

    def values(self, rows: pa.Table) -> Chunks:
        """The field's values, from rows of the old fields; raises as `cast`, and as `UpstreamRows.values`."""
        if self.step is not None and self.step.shown is not None:
            keys = pa.table({name: rows[own] for name, own in self.key})
            return self.step.shown.values(self.field.name, self.step.new, self.field.arrow, keys)
        if self.old is None:
            constant: Any = pa.repeat(self.constant, rows.num_rows)  # type: ignore[arg-type]
            return pa.chunked_array([constant])
        column = rows[self.old.name]
        if self.step is None:
            return column.cast(self.field.arrow)
        return _cast_chunks(column, self.step)


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
        if snapshot_id is None:
            return []
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
        return sum(indexed.file.records - len(indexed.deleted or ()) for indexed in self._files)

    @property
    def spec_ids(self) -> set[int]:
        """Ids of the partition specs of the files that hold them."""
        return {indexed.file.spec_id for indexed in self._files}

    def each(
        self, what: str, fields: Sequence[Field], work: Callable[[Iterator[pa.Table]], R], *others: Storage
    ) -> Iterable[R]:
        """What work makes of some fields of all rows, a group of files at a time; rows of one partition together.

        It takes them one row group of a file at a time, in any process, and writes to the `others`. Messages say `what`
        it does to the table.
        """
        if not self._files:
            return ()
        reading = partial(_read, self._storage, fields, work)
        return run_on_groups(self._table, what, reading, groups(self._files), self._files, self._storage, *others)

    def has_null(self, field: Field) -> bool:
        """Whether a row has no value for a field; rows are read only if the metrics of the files do not exclude it."""
        head = self._snapshot_id
        if head is not None and self._table.files.null_count(head, field) == 0:
            return False
        return any(self.each("look for NULL in", [field], _has_null))

    def are_changed(self, field: Field, step: ConvertField) -> bool:
        """Whether a cast gives any row another value than it has; raises as `cast`."""
        return any(self.each("look for values that change in", [field], partial(_is_changed, step)))


def _read(
    storage: Storage, fields: Sequence[Field], work: Callable[[Iterator[pa.Table]], R], group: Sequence[FileRows]
) -> R:
    return work(rows for part in group for _, rows in part.living(storage, fields))


def _has_null(parts: Iterator[pa.Table]) -> bool:
    return any(rows.column(0).null_count for rows in parts)


def _is_changed(step: ConvertField, parts: Iterator[pa.Table]) -> bool:
    columns = (rows.column(0) for rows in parts)
    return any(not _cast_chunks(column, step).equals(column.cast(step.new_arrow)) for column in columns)


def rewrite(
    live: LiveRows, sources: Sequence[ValueSource], table: Table, show: Callable[[int], None]
) -> list[DataFile]:
    """Write all rows to the table as it will be, each field with the values of its source; show how many there are.

    Raises:
        CastRefused: A value cannot be cast exactly; the files written so far are orphans.
    """
    old = {source.old.name: source.old for source in sources if source.old is not None}
    return write_anew(live, list(old.values()), partial(_values, sources), table, show)


def write_anew(
    live: LiveRows,
    fields: Sequence[Field],
    columns: Callable[[pa.Table], Sequence[Chunks]],
    table: Table,
    show: Callable[[int], None] = lambda _: None,
) -> list[DataFile]:
    """Write rows to data files of a table as it will be, a bounded part at a time, sorted by the identifier fields.

    All its columns, in order, are made of the fields that are read; `show` takes the number of rows written so far.
    """
    writer, files = FileWriter(table.file_layout, storage_for(table)), list[DataFile]()
    for staged in live.each("write anew the rows of", fields, partial(_staged, writer, columns), writer.storage):
        files += staged
        show(sum(file.records for file in files))
    return files


def _values(sources: Sequence[ValueSource], rows: pa.Table) -> list[Chunks]:
    return [source.values(rows) for source in sources]


def _staged(
    writer: FileWriter, columns: Callable[[pa.Table], Sequence[Chunks]], parts: Iterator[pa.Table]
) -> list[DataFile]:
    schema, files, waiting = writer.layout.schema, list[DataFile](), list[pa.Table]()
    for rows in parts:
        waiting.append(pa.Table.from_arrays(list(columns(rows)), schema=schema.arrow))
        if sum(part.nbytes for part in waiting) >= CHUNK_BYTES:
            files += writer.stage(pa.concat_tables(waiting), schema.identifier)
            waiting.clear()
    return files + (writer.stage(pa.concat_tables(waiting), schema.identifier) if waiting else [])


def _cast_chunks(column: Chunks, step: ConvertField) -> Chunks:
    try:
        chunks: Any = [cast(chunk, step) for chunk in column.chunks]
        result: Chunks = pa.chunked_array(chunks, type=step.new_arrow)  # type: ignore[call-overload]
    except CastRefused as error:
        raise CastRefused(f"column {step.name}: {error}") from None
    return result
