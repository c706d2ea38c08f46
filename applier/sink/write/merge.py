"""Merges small data files of a partition: where their rows are few, Iceberg's own action costs far more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from applier.changefeed.table import fold
from applier.sink.format import types
from applier.sink.format.storage import Storage, read_each
from applier.sink.format.types import Chunks, Field, TypeJson
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.iceberg.table import Table
from applier.sink.write.deletes import load_deleted, stage_position_deletes, stage_vectors
from applier.sink.write.file_groups import FileRows, bytes_of, run_on_groups
from applier.sink.write.file_index import FileIndex, IndexedFile
from applier.sink.write.file_writer import FileWriter, sort
from applier.sink.write.parquet import ParquetSource, Positions
from applier.sink.write.row_ids import LINEAGE, column

MOST_ROWS = 1_000_000
"""Rows of the files of a group, dead ones included: one thread reads them into memory."""

MOST_BYTES = 64 << 20
"""Bytes of those files."""

TIER_BYTES = 4 << 20
"""A file up to this size is written again with smaller ones, however small these are."""

_ORIGIN = (pa.field("\0source", pa.int32()), pa.field("\0position", pa.int64()))
"""Columns that follow those of the table until its rows are in order: where each was. No table can have such names."""

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

    Of a partition come the smallest, and no file that is far larger than all smaller ones together: else each merge
    would write the rows of all earlier ones again. Partitions of few rows come first; what would be too much with those
    before it is left out.
    """
    parts: defaultdict[str, list[IndexedFile]] = defaultdict(list)
    for indexed in files.files.values():
        if indexed.file.spec_id == spec_id and indexed.file.size < small:
            parts[str(indexed.file.partition)].append(indexed)
    result: list[list[IndexedFile]] = []
    rows = size = 0
    for part in sorted((_smallest(part, max(2, fewest)) for part in parts.values()), key=_rows):
        rows, size = rows + _rows(part), size + bytes_of(part)
        if rows > most_rows or size > most_bytes:
            break
        if part:
            result.append(part)
    return result


def _smallest(part: list[IndexedFile], fewest: int) -> list[IndexedFile]:
    """The smallest files of a partition, as many as one merge takes; none where they are too few."""
    rows = size = 0
    taken = list[IndexedFile]()
    for indexed in sorted(part, key=lambda indexed: indexed.file.size):
        file = indexed.file
        is_much = rows + file.records > MOST_ROWS or size + file.size > MOST_BYTES
        if is_much or (len(taken) >= fewest and file.size > max(TIER_BYTES, 2 * size)):
            break
        taken.append(indexed)
        rows, size = rows + file.records, size + file.size
    return taken if len(taken) >= fewest else []


def with_dead_rows(
    files: FileIndex, spec_id: int, share: float, taken: Sequence[Sequence[IndexedFile]], most_bytes: int
) -> list[list[IndexedFile]]:
    """Files of the current spec that are not taken and of whose rows a share is dead, as deletion vectors count them.

    Each is to be written anew without them. Of about `most_bytes`, and at least one where there is any.
    """
    paths = {indexed.file.path for part in taken for indexed in part}
    result: list[list[IndexedFile]] = []
    for path, indexed in files.files.items():
        dead = sum(int(delete.json["record-count"]) for delete in indexed.file.deletes if delete.is_vector)
        if dead < max(1, share * indexed.file.records) or indexed.file.spec_id != spec_id or path in paths:
            continue
        if result and bytes_of([indexed, *chain.from_iterable(result)]) > most_bytes:
            break
        result.append([indexed])
    return result


@dataclass(frozen=True, slots=True)
class Merged:
    """The files of a group that take the place of others, and where each of their rows was.

    Attributes:
        files: New data files, in the order of their rows.
        sources: By row, the number of the file that it was in, within its group.
        positions: By row, its position there.
    """

    files: list[DataFile]
    sources: np.ndarray[Any, np.dtype[np.int32]]
    positions: Positions

    def rows_of(self, source: int, positions: BitMap64) -> dict[str, BitMap64]:
        """Where rows of a file, by their positions there, are now: positions by path of a new file."""
        gone = np.asarray(positions.to_array()).astype(np.int64)
        rows = np.flatnonzero((self.sources == source) & np.isin(self.positions, gone))
        edges = pairwise(np.cumsum([0, *(file.records for file in self.files)]))
        parts = [rows[slice(*np.searchsorted(rows, edge))] - edge[0] for edge in edges]
        return {file.path: BitMap64(part) for file, part in zip(self.files, parts, strict=True) if len(part)}


@dataclass(frozen=True, slots=True)
class GroupMerge:
    """Writes the living rows of a group of files of one partition as one file, in any process.

    Its fields are the columns of the table, and `LINEAGE` where rows have an identity to keep.
    """

    writer: FileWriter
    fields: tuple[Field, ...]

    def __call__(self, part: Sequence[IndexedFile]) -> Merged | None:
        """The new files; None if a file does not show its columns."""
        is_large = len(part) == 1 and (bytes_of(part) > MOST_BYTES or _rows(part) > MOST_ROWS)
        return self._in_its_order(part[0]) if is_large else self._sorted(part)

    def _sorted(self, part: Sequence[IndexedFile]) -> Merged | None:
        layout, storage, schema = self.writer.layout, self.writer.storage, self._schema
        key = layout.schema.identifier
        order, order_id = layout.order_of(key)
        traced = pa.schema([*schema, *_ORIGIN])
        tables = [traced.empty_table()]
        for number, living in enumerate(read_each(storage, self._living, part)):
            if living is None:
                return None
            for positions, columns in living:
                origin: Any = (pa.array(np.full(len(positions), number, np.int32)), pa.array(positions))
                tables.append(pa.Table.from_arrays([*columns, *origin], schema=traced))
        rows = sort(pa.concat_tables(tables), order)
        files = []
        if rows.num_rows:
            files = self.writer.write(rows.select(schema.names), part[0].file.partition, key, order_id)
        return Merged(files, *(rows[field.name].to_numpy() for field in _ORIGIN))

    def _in_its_order(self, indexed: IndexedFile) -> Merged | None:
        """A file that may be more than memory holds, a row group at a time."""
        places, schema = [np.empty(0, np.int64)], self._schema
        with ParquetSource(self.writer.storage, indexed.file.path, indexed.file.size) as source:
            if not source.has_ids:
                return None

            def groups() -> Iterator[pa.Table]:
                for positions, columns in self._rows(source, indexed):
                    places.append(positions)
                    yield pa.Table.from_arrays(columns, schema=schema)

            key = self.writer.layout.schema.identifier
            files = self.writer.write_groups(groups(), schema, indexed.file.partition, key, 0)
        positions = np.concatenate(places)
        return Merged(files, np.zeros(len(positions), np.int32), positions)

    def _living(self, indexed: IndexedFile) -> list[tuple[Positions, list[Chunks]]] | None:
        with ParquetSource(self.writer.storage, indexed.file.path, indexed.file.size) as source:
            return list(self._rows(source, indexed)) if source.has_ids else None

    def _rows(self, source: ParquetSource, indexed: IndexedFile) -> Iterator[tuple[Positions, list[Chunks]]]:
        """Positions and columns of the rows of a file that are not dead, one row group at a time."""
        file: Any = indexed.file
        for positions, rows in FileRows(indexed, 0, file.records).living_in(source, self.fields):
            columns = rows.columns
            if self.fields[-len(LINEAGE) :] == LINEAGE:
                inherited: Any = (pa.array(positions + file.first_row_id), pa.scalar(file.sequence))
                own = columns[-len(LINEAGE) :]
                columns[-len(LINEAGE) :] = [pc.coalesce(*each) for each in zip(own, inherited, strict=True)]
            yield positions, columns

    @property
    def _schema(self) -> pa.Schema:
        """Of the files that are written."""
        own = self.writer.layout.schema
        return pa.schema([*own.arrow, *map(column, self.fields[len(own.fields) :])])


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that are to take the place of others, staged for a head that may have moved on since.

    Attributes:
        uuid: The table.
        schema_id: Schema that the new files were written with.
        parts: The old files of each group, as they were, and what became of them.
    """

    uuid: str
    schema_id: int
    parts: Sequence[tuple[Sequence[IndexedFile], Merged]]

    def change(self, table: Table, storage: Storage, files: FileIndex) -> Change | None:
        """What puts the new files into the head, whose index is `files`, without a stamp.

        Rows that died since are dead in the new files as well. Delete files that apply to no other file are dropped.

        Returns:
            The change; None where the head has other files, or rows that were dead: it was set back, or written anew.
        """
        old = [indexed for part, _ in self.parts for indexed in part]
        found = [files.files.get(indexed.file.path) for indexed in old]
        now = {indexed.file.path: indexed for indexed in found if indexed is not None}
        if len(now) < len(old) or (table.uuid, table.schema.id) != (self.uuid, self.schema_id):
            return None
        load_deleted([*now.values()], storage)
        hits, new = dict[str, BitMap64](), FileIndex(None, ())
        for part, merged in self.parts:
            for file in merged.files:
                new.add(file)
            for number, indexed in enumerate(part):
                then, dead = indexed.deleted or BitMap64(), now[indexed.file.path].deleted or BitMap64()
                if then - dead:
                    return None
                for path, positions in merged.rows_of(number, dead - then).items():
                    hits[path] = hits.get(path, BitMap64()) | positions
        kept = {
            identity(delete)
            for path, indexed in files.files.items()
            if path not in now
            for delete in indexed.file.deletes
        }
        dropped = {identity(delete): delete for indexed in now.values() for delete in indexed.file.deletes}
        replaced = [delete for key, delete in dropped.items() if key not in kept]
        if hits and not replaced:
            return None  # Iceberg takes no delete file into a rewrite that drops none.
        stage_deletes = stage_vectors if table.format_version >= 3 else stage_position_deletes
        return Change(
            rows=[file for _, merged in self.parts for file in merged.files],
            deletes=stage_deletes(hits, new.files, storage, table.file_layout.place).files,
            rewritten=[indexed.file for indexed in now.values()],
            replaced=replaced,
            schema_id=self.schema_id,
        )


def stage(table: Table, storage: Storage, chosen: Sequence[Sequence[IndexedFile]]) -> Merge | None:
    """Write the living rows of each group of files as one file, in the table's sort order or else by key.

    Rows keep their identity (`LINEAGE`).

    Returns:
        What can be committed; None if a file does not show its columns or its rows' identity.
    """
    old = [indexed for part in chosen for indexed in part]
    has_lineage = table.format_version >= 3
    if has_lineage and any(None in (indexed.file.first_row_id, indexed.file.sequence) for indexed in old):
        return None
    load_deleted(old, storage)
    fields = (*table.schema.fields, *(LINEAGE if has_lineage else ()))
    merge, parts = GroupMerge(FileWriter(table.file_layout, storage), fields), []
    for part, written in zip(chosen, run_on_groups(table, "compact", merge, chosen, old, storage), strict=True):
        if written is None:
            return None
        parts.append((part, written))
    return Merge(table.uuid, table.schema.id, parts)


def _rows(part: Sequence[IndexedFile]) -> int:
    return sum(indexed.file.records for indexed in part)


def identity(delete: DeleteFile) -> tuple[str, Any]:
    """What distinguishes a delete file: one Puffin file may hold the vectors of many data files."""
    return delete.path, delete.json.get("content-offset")


def _has_plain_values(kind: TypeJson) -> bool:
    if isinstance(kind, dict):
        return kind["type"] == "list" and isinstance(kind["element"], str) and _has_plain_values(kind["element"])
    return _PLAIN.fullmatch(kind) is not None
