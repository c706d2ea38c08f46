"""Data files and delete files of one commit, staged for the head that it is planned on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import pyarrow as pa

from applier.errors import TableIncomplete, TableMismatch
from applier.runtime.figures import counted
from applier.sink.format.types import Field
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write.deletes import Deletes, load_deleted, stage_position_deletes, stage_vectors
from applier.sink.write.file_groups import groups, run_on_groups
from applier.sink.write.file_index import FileIndex, read_index
from applier.sink.write.new_keys import NewKeySample
from applier.sink.write.stage import Stage, StagedBatch, stage_where, timed

_FILTERED = "If the changefeed leaves out deletes or updates on purpose, set changefeed.filtered = true."

Staged = Callable[[], list[DataFile]]
"""Writes rows to data files that the commit will add."""

Predicate = Callable[[pa.Table], "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"]
"""Decides which rows to delete: takes living rows with some columns, returns one boolean a row."""


@dataclass(slots=True)
class CommitWork:
    """One commit on its way: what has been staged, for the head it was planned on.

    Attributes:
        base: Head that the newest attempt was planned on.
        rows: Data files that are staged; good for later attempts too, while the columns stay.
        schema_id: Schema that they were written with.
        upserted: Rows in them.
        deletes: Delete files of the newest attempt.
        deleted: Living rows that they remove.
        seconds: See `Applied`.
        not_found: See `Applied`.
        is_complete: The table must hold every row that the changes update or delete, if it is exact.
        lacking: Properties that the commit sets if it does not, and need not.
        start: When it began, by `time.perf_counter`.
    """

    base: int | None = None
    rows: list[DataFile] | None = None
    schema_id: int | None = None
    upserted: int = 0
    deletes: Deletes = field(default_factory=Deletes)
    deleted: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    not_found: int = 0
    is_complete: bool = False
    lacking: Mapping[str, str] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)

    def needs_rows(self, schema_id: int) -> bool:
        """Whether rows must be staged, now that the table has this schema."""
        return self.rows is None or self.schema_id != schema_id


class Staging:
    """Stages the changes of one table.

    Attributes:
        storage: Where its files are.
        index: Files of the newest head that was planned on; None while they are not known.
    """

    def __init__(self, table: Table) -> None:
        self.storage = storage_for(table)
        self.index: FileIndex | None = None
        self._table = table
        self._new_keys = NewKeySample(str(table), self.storage)
        self._planned: Stage | None = None

    def advance(self, work: CommitWork, snapshot_id: int | None) -> None:
        """Move the index past the snapshot of this work; None if the snapshot may be that of an earlier attempt."""
        if snapshot_id is not None and self.index is not None and self.index.snapshot_id == work.base:
            self.index.advance(snapshot_id, work.rows or (), work.deletes.state)
        else:
            self.index = None

    def _index_of(self, work: CommitWork, columns: Sequence[Field]) -> FileIndex:
        """The index of the head of this work. The one in memory is good for it exactly if it is of that snapshot: the
        fence lets no other writer slip in between two commits unnoticed.
        """
        with timed(work.seconds, "plan"):
            kept, head = self.index, work.base
            if kept is None or kept.snapshot_id != head or kept.columns != tuple(columns):
                kept = self.index = read_index(str(self._table), head, columns, self._table.scan)
        return kept

    def plan(self, work: CommitWork, key: Sequence[str] | None, *, exact: bool, trusts_new_keys: bool) -> Stage:
        """How changes are staged for the head of this work, the same object while that is as good; see `attempts`.

        `trusts_new_keys` is False if another writer added rows, which may have a key that is new upstream.
        """
        layout = self._table.file_layout
        if key is None:
            columns = [field for field in layout.schema.fields if not pa.types.is_nested(field.arrow)]
        else:
            columns, exact = list(self._key(key)), exact and trusts_new_keys
        index, needs_rows = self._index_of(work, columns), work.needs_rows(layout.schema.id)
        new_keys = None if isinstance(self.storage, JavaStorage) else self._new_keys
        stage = Stage(layout, index, self.storage, exact, needs_rows, new_keys)
        kept = self._planned
        if kept is None or kept.index is not index or kept != stage:
            self._planned = kept = stage
        return kept

    def take(self, work: CommitWork, staged: StagedBatch) -> bool:
        """See `TableWriter.take`."""
        if staged.holds_new:
            if work.is_complete:
                what = f"Table {self._table} holds a row that the feed inserts, as if deletes were left out"
                raise TableIncomplete(f"{what} (changefeed.filtered).", _FILTERED)
            return False
        for part, seconds in staged.seconds.items():
            work.seconds[part] = work.seconds.get(part, 0.0) + seconds
        work.not_found = max(0, staged.missing)
        if work.is_complete and work.not_found:
            what = (
                f"Table {self._table} does not hold {counted(work.not_found, 'row')} that the feed updates or deletes."
            )
            raise TableIncomplete(what, _FILTERED)
        if staged.rows is not None:
            work.rows, work.upserted, work.schema_id = staged.rows, staged.upserted, self._table.schema.id
        work.deletes, work.deleted = self._deletes(work, staged), staged.deleted
        return True

    def _deletes(self, work: CommitWork, staged: StagedBatch) -> Deletes:
        """Write what removes the rows that go."""
        layout, files = self._table.file_layout, cast("FileIndex", self.index).files
        stage = stage_vectors if layout.format_version >= 3 else stage_position_deletes
        with timed(work.seconds, "deletes"):
            # Tasks elsewhere may have read them: without them the rows that were dead before would live again.
            load_deleted([files[path] for path in staged.living], self.storage)
            return stage(staged.living, files, self.storage, layout.place)

    def where(self, work: CommitWork, columns: Sequence[str], predicate: Predicate) -> None:
        """Stage the removal of the rows that a predicate names."""
        fields = self._key(columns)
        files = list(self._index_of(work, fields).files.values())
        load_deleted(files, self.storage)
        find = partial(stage_where, predicate, fields, self.storage)
        found = run_on_groups(self._table, "look for rows in", find, groups(files), files, self.storage)
        self.take(work, StagedBatch.sum(list(found)))

    def take_rows(self, work: CommitWork, rows: Staged) -> None:
        """Let the rows that are staged elsewhere be those of the commit."""
        if work.needs_rows(self._table.schema.id):
            with timed(work.seconds, "rows"):
                work.rows = rows()
            work.upserted, work.schema_id = sum(file.records for file in work.rows), self._table.schema.id

    def _key(self, names: Sequence[str]) -> tuple[Field, ...]:
        fields = {field.name: field for field in self._table.schema.fields}
        missing = [name for name in names if name not in fields]
        if missing:
            what = f"Table {self._table} has no key column {', '.join(missing)}"
            raise TableMismatch(what, "Drop the table and backfill it.")
        return tuple(fields[name] for name in names)
