"""Lists the data files of a snapshot with key bounds and deleted positions: what a batch is located against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyroaring import BitMap64

from applier.errors import TableMismatch
from applier.sink.format.bounds import Ordered, SortedKeys, decode_bound
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile, DeleteFile

Scan = Callable[[int, Sequence[str]], list[DataFile]]
"""`Table.scan`: lists the data files of a snapshot, with the bounds of some columns."""


@dataclass(slots=True)
class IndexedFile:
    """A data file of the snapshot.

    Bounds of the index's columns are None where they are unknown; positions of dead rows until they are needed and
    read.
    """

    file: DataFile
    lower: tuple[Ordered | None, ...]
    upper: tuple[Ordered | None, ...]
    deleted: BitMap64 | None


@dataclass(slots=True)
class FileIndex:
    """Data files of one snapshot (None: of a table without one) by path, and the columns whose bounds are known.

    The columns are usually the key. The index is changed in place by `advance`, so it serves one thread at a time.
    """

    snapshot_id: int | None
    columns: tuple[Field, ...]
    files: dict[str, IndexedFile] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of all files, dead ones included."""
        return sum(indexed.file.records for indexed in self.files.values())

    def candidates(self, keys: pa.Table) -> list[IndexedFile]:
        """Files that may hold one of the keys, in the table's types: every key column has a key within its bounds."""
        found = list(self.files.values())
        for index, column in enumerate(self.columns):
            if not found or column.name not in keys.column_names:
                continue
            wanted = SortedKeys(keys[column.name])
            lower = [indexed.lower[index] for indexed in found]
            held = wanted.within(lower, [indexed.upper[index] for indexed in found])
            found = [indexed for indexed, is_held in zip(found, held, strict=True) if is_held]
        return found

    def advance(
        self,
        snapshot_id: int,
        rows: Iterable[DataFile],
        deletes: Mapping[str, tuple[Sequence[DeleteFile], BitMap64]],
    ) -> None:
        """Become the index of the snapshot that was just committed on top of this one with these new data files.

        By path of a data file, `deletes` has the delete files that apply to it now, and its dead positions.
        """
        for path, (files, deleted) in deletes.items():
            indexed = self.files[path]
            indexed.file = replace(indexed.file, deletes=tuple(files))
            indexed.deleted = deleted
        for file in rows:
            self.add(replace(file, json={}))
        self.snapshot_id = snapshot_id

    @property
    def lacks_ids(self) -> bool:
        """Whether row ids of files are not known here.

        Commits on top of the snapshot that was read have added the files, or given ids to those of format 2.
        """
        return any(None in (indexed.file.sequence, indexed.file.first_row_id) for indexed in self.files.values())

    def number(self, listed: Iterable[DataFile]) -> None:
        """Take the row ids of files over from a new list of the same snapshot."""
        for file in listed:
            indexed = self.files[file.path]
            indexed.file = replace(indexed.file, first_row_id=file.first_row_id, sequence=file.sequence)

    def add(self, file: DataFile) -> None:
        """Take a data file of the snapshot in."""
        self.files[file.path] = IndexedFile(
            file,
            tuple(_bound(column, file.lower) for column in self.columns),
            tuple(_bound(column, file.upper) for column in self.columns),
            None if file.deletes else BitMap64(),
        )


def read_index(name: str, snapshot_id: int | None, columns: Sequence[Field], scan: Scan) -> FileIndex:
    """Index the data files of a snapshot (None: of a table without one) with the bounds of some columns.

    Raises:
        TableMismatch: The table holds equality deletes, or data files that are not Parquet.
    """
    result = FileIndex(snapshot_id, tuple(columns))
    for file in scan(snapshot_id, [column.name for column in columns]) if snapshot_id is not None else ():
        if any(delete.content == "equality" for delete in file.deletes):
            what = f"Table {name} holds equality deletes, so the rows that are still alive cannot be found by position"
            way_out = "Stop the writer that makes them and run rewrite_data_files with delete-file-threshold 1 once."
            raise TableMismatch(what, way_out)
        if file.format != "parquet":
            what = f"Table {name} holds a data file in {file.format} format: {file.path}"
            raise TableMismatch(what, "Set write.format.default to parquet and run rewrite_data_files once.")
        result.add(file)
    return result


def _bound(column: Field, bounds: Mapping[int, bytes]) -> Ordered | None:
    value = bounds.get(column.id)
    return None if value is None else decode_bound(column.arrow, value)
