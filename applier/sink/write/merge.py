"""Merges small data files of a partition: where their rows are few, Iceberg's own action costs far more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import fold
from applier.sink.format import types
from applier.sink.format.storage import Storage, read_each
from applier.sink.format.types import FIELD_ID, Field, TypeJson
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.iceberg.table import Table
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_groups import bytes_of, run_on_groups
from applier.sink.write.file_index import FileIndex, IndexedFile
from applier.sink.write.file_writer import FileWriter, sort
from applier.sink.write.parquet import ParquetSource

MOST_ROWS = 1_000_000
"""Rows of the files of a group, dead ones included: one thread reads them into memory."""

MOST_BYTES = 64 << 20
"""Bytes of those files."""

LINEAGE = (
    Field(2147483540, types.LINEAGE[0], "long", pa.int64(), required=False),
    Field(2147483539, types.LINEAGE[1], "long", pa.int64(), required=False),
)
"""A file has them if its rows were in another one before; else a row's place in the file and the file's sequence number
say it."""

_PLAIN = re.compile(r"boolean|int|long|float|double|date|timestamp|timestamptz|string|binary|decimal\(.*|fixed\[.*")
"""Types whose values are written as Iceberg's own writer does."""

_OF_ICEBERG = ("encryption.", "write.parquet.bloom-filter-")
"""Table properties by which files are written in a way that only Iceberg's own writer knows begin so."""


def is_plain(table: Table) -> bool:
    """Whether a file that is merged here is what Iceberg's own compaction would write."""
    layout = table.file_layout
    return (
        layout.format_version >= 2
        and layout.properties.get("write.format.default", "parquet").lower() == "parquet"
        and layout.sort is not None
        and all(_has_plain_values(field.type) for field in layout.schema.fields)
        and not any(fold(name) in types.LINEAGE for name in layout.schema.names)
        and not any(key.startswith(_OF_ICEBERG) for key in layout.properties)
    )


def groups(
    files: FileIndex, spec_id: int, small: float, fewest: int, most_bytes: int, most_rows: float = MOST_ROWS
) -> list[list[IndexedFile]]:
    """Files of the current spec to merge, by partition: at least `fewest` below `small` bytes each.

    Partitions of few rows come first; what would be too much in a group, or with those before it, is left out.
    """
    parts: defaultdict[str, list[IndexedFile]] = defaultdict(list)
    for indexed in files.files.values():
        if indexed.file.spec_id == spec_id and indexed.file.size < small:
            parts[str(indexed.file.partition)].append(indexed)
    result: list[list[IndexedFile]] = []
    rows = size = 0
    for part in sorted(parts.values(), key=_rows):
        if len(part) < max(2, fewest):
            continue
        rows, size = rows + _rows(part), size + bytes_of(part)
        if rows > most_rows or size > most_bytes or _rows(part) > MOST_ROWS or bytes_of(part) > MOST_BYTES:
            break
        result.append(part)
    return result


@dataclass(frozen=True, slots=True)
class GroupMerge:
    """Writes the living rows of a group of files of one partition as one file, in any process.

    Its fields are the columns of the table, and `LINEAGE` where rows have an identity to keep.
    """

    writer: FileWriter
    fields: tuple[Field, ...]

    def __call__(self, part: Sequence[IndexedFile]) -> list[DataFile] | None:
        """The new file, or none; None if a file does not show its columns."""
        layout, storage = self.writer.layout, self.writer.storage
        own, key = len(layout.schema.fields), layout.schema.identifier
        order, order_id = layout.order_of(key)
        schema = pa.schema([*layout.schema.arrow, *map(_column, self.fields[own:])])
        tables = [schema.empty_table()]
        for living in read_each(storage, lambda indexed: _living(indexed, self.fields, storage), part):
            if living is None:
                return None
            tables.append(pa.Table.from_arrays(living.columns, schema=schema))
        rows = sort(pa.concat_tables(tables), order)
        return self.writer.write(rows, part[0].file.partition, key, order_id) if rows.num_rows else []


def stage(table: Table, storage: Storage, files: FileIndex, chosen: Sequence[Sequence[IndexedFile]]) -> Change | None:
    """Write the living rows of each group of files as one file, in the table's sort order or else by key.

    Rows keep their identity (`LINEAGE`). Delete files that apply to no other file of the index are dropped.

    Returns:
        The change, without a stamp; None if a file does not show its columns or its rows' identity.
    """
    old = [indexed for part in chosen for indexed in part]
    has_lineage = table.format_version >= 3
    if has_lineage and any(None in (indexed.file.first_row_id, indexed.file.sequence) for indexed in old):
        return None
    load_deleted(old, storage)
    fields = (*table.schema.fields, *(LINEAGE if has_lineage else ()))
    merge = GroupMerge(FileWriter(table.file_layout, storage), fields)
    new = list[DataFile]()
    for written in run_on_groups(table, "compact", merge, chosen, old, storage):
        if written is None:
            return None
        new += written
    gone = {indexed.file.path for indexed in old}
    kept = {
        identity(delete) for path, indexed in files.files.items() if path not in gone for delete in indexed.file.deletes
    }
    dropped = {identity(delete): delete for indexed in old for delete in indexed.file.deletes}
    return Change(
        rows=new,
        rewritten=[indexed.file for indexed in old],
        replaced=[delete for key_of, delete in dropped.items() if key_of not in kept],
        schema_id=table.schema.id,
    )


def _living(indexed: IndexedFile, fields: Sequence[Field], storage: Storage) -> pa.Table | None:
    """Rows of a file that are not dead; None if a column of it has no field id."""
    living = np.ones(indexed.file.records, bool)
    living[np.array(indexed.deleted or (), np.int64)] = False
    positions = np.flatnonzero(living)
    with ParquetSource(storage, indexed.file.path, indexed.file.size) as source:
        if not source.has_ids:
            return None
        rows = source.take(positions, fields)
    if fields[-len(LINEAGE) :] == LINEAGE:
        file: Any = indexed.file
        inherited: Any = (pa.array(positions + file.first_row_id), pa.scalar(file.sequence))
        for field, value in zip(LINEAGE, inherited, strict=True):
            filled: Any = pc.coalesce(rows[field.name], value)
            rows = rows.set_column(rows.column_names.index(field.name), field.name, filled)
    return rows


def _rows(part: Sequence[IndexedFile]) -> int:
    return sum(indexed.file.records for indexed in part)


def _column(field: Field) -> pa.Field[Any]:
    return pa.field(field.name, field.arrow, metadata={FIELD_ID: str(field.id).encode()})


def identity(delete: DeleteFile) -> tuple[str, Any]:
    """What distinguishes a delete file: one Puffin file may hold the vectors of many data files."""
    return delete.path, delete.json.get("content-offset")


def _has_plain_values(kind: TypeJson) -> bool:
    if isinstance(kind, dict):
        return kind["type"] == "list" and isinstance(kind["element"], str) and _has_plain_values(kind["element"])
    return _PLAIN.fullmatch(kind) is not None
