"""Commits the changes of one table as one fenced and stamped Iceberg commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from applier.errors import CheckpointConflict, TableIncomplete, TableMismatch
from applier.runtime import failpoints
from applier.runtime.figures import counted
from applier.runtime.outages import OUTAGES
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import own_columns
from applier.sink.commit.stamp import Stamp
from applier.sink.format.storage import is_local
from applier.sink.format.types import Field
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write import row_ids
from applier.sink.write.deletes import Deletes, load_deleted, stage_position_deletes, stage_vectors
from applier.sink.write.file_groups import groups, run_on_groups
from applier.sink.write.file_index import FileIndex, read_index
from applier.sink.write.new_keys import NewKeySample
from applier.sink.write.stage import Stage, StagedBatch, stage_where

_FILTERED = "If the changefeed leaves out deletes or updates on purpose, set changefeed.filtered = true."

Staged = Callable[[], list[DataFile]]
"""Writes rows to data files that the commit will add."""

Predicate = Callable[[pa.Table], "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"]
"""Decides which rows to delete: takes living rows with some columns, returns one boolean a row."""


@dataclass(slots=True)
class CommitWork:
    """One commit: what has been staged, for the head it was planned on, and what became of it.

    Attributes:
        base: Head that the newest attempt was planned on.
        rows: Data files that are staged; good for later attempts too, while the columns stay.
        schema_id: Schema that they were written with.
        deletes: Delete files of the newest attempt.
        not_found: Rows that the batch updates or deletes and that the table does not hold, at least: a key that may be
            new does not count, and one that is there after all hides one that is not. 0 where the table is not exact.
        is_complete: The table must hold every row that the changes update or delete, if it is exact.
        lacking: Properties that the commit sets if it does not, and need not.
        unset: Properties that the commit removes.
        truncates: All rows go.
        dropped: Data files that go with their rows.
        start: When it began, by `time.perf_counter`.
        seconds: Wall seconds that it took, once it is made.
        snapshot_id: The snapshot, once it is made.
    """

    base: int | None = None
    rows: list[DataFile] | None = None
    schema_id: int | None = None
    deletes: Deletes = field(default_factory=Deletes)
    not_found: int = 0
    is_complete: bool = False
    lacking: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    truncates: bool = False
    dropped: Sequence[DataFile] = ()
    start: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0
    snapshot_id: int = -1

    @property
    def upserted(self) -> int:
        """Rows that it adds."""
        return sum(file.records for file in self.rows or ())

    def needs_rows(self, schema_id: int) -> bool:
        """Whether rows must be staged, now that the table has this schema."""
        return self.rows is None or self.schema_id != schema_id

    def take_rows(self, rows: Staged, schema_id: int) -> None:
        """Let the rows that are staged elsewhere be those of the commit."""
        if self.needs_rows(schema_id):
            self.rows, self.schema_id = rows(), schema_id

    def change(self, table: Table, stamp: Stamp) -> Change:
        """What the commit sends."""
        lacking = self.lacking if self.not_found else {}
        return Change(
            rows=self.rows or (),
            deletes=self.deletes.files,
            replaced=self.deletes.replaced,
            touched=list(self.deletes.state),
            truncate=self.truncates,
            dropped=self.dropped,
            summary=stamp.summary(),
            properties={**stamp.entries(), **own_columns(table), **lacking},
            schema_id=self.schema_id,
            unset=self.unset,
        )


class TableWriter:
    """Writes one Iceberg table under one changefeed. Different tables may be written by different threads at once.

    Every method that writes makes exactly one snapshot, which holds all of the change and the stamp, or none. It may
    be called again with the same arguments after an error; it is not noticed here that a batch was applied before,
    which its resolved ts shows beside `known`.

    A table is loaded for its writer alone; the epoch is that of this applier.

    Attributes:
        storage: Where the files of the table are.

    Raises:
        TableMismatch: The table belongs to another changefeed.
        CheckpointConflict: A newer applier holds it.
    """

    def __init__(self, table: Table, changefeed: str, epoch: int) -> None:
        self.table = table
        self._committer = Committer(table, changefeed, epoch)
        self._committer.open()
        self.storage, self._handle = storage_for(table), table.handle
        self._index: FileIndex | None = None  # Of the newest head that was planned on.
        self._new_keys = NewKeySample(str(table), self.storage)
        self._planned: Stage | None = None

    @property
    def known(self) -> Stamp | None:
        """Stamp of the table when this writer last looked or wrote."""
        return self._committer.known

    @property
    def head(self) -> int | None:
        """Snapshot that this writer last saw at the head, or wrote."""
        return self._committer.head

    @property
    def index(self) -> FileIndex | None:
        """Files of that head; None while they are not known."""
        kept = self._index
        return kept if kept is not None and kept.snapshot_id == self.head else None

    @property
    def own_stamp(self) -> Stamp | None:
        """The table's progress under this applier's epoch, and its doubts; None for a table without a stamp.

        It lacks the other extra entries: the commit of a DDL is found by them.
        """
        known, ours = self.known, self._committer
        return None if known is None else Stamp(ours.changefeed, ours.epoch, known.resolved_ts, ours.doubts)

    @property
    def rolled_back(self) -> TableMismatch | None:
        """Why the table must not be written on: it was set to an older snapshot; None if it was not."""
        return self._committer.rolled_back

    def hold_to(self, snapshot_id: int | None) -> None:
        """Refuse the table if it was rolled back: `snapshot_id` must be its head or below it; None if none is known.

        Raises:
            TableMismatch: It was set to an older snapshot.
        """
        self._committer.hold_to(snapshot_id)

    def look(self) -> None:
        """Read the table again, and notice if another writer has changed its rows.

        Raises:
            CheckpointConflict: A newer applier holds it.
            TransientError: The catalog does not answer.
        """
        self.table.refresh()
        self._committer.look()

    def reload(self) -> None:
        """Read the table again, after something else (a schema change, maintenance) has written it on purpose."""
        self.table.refresh()
        # Traced: others may have been there between that commit and this look.
        self._committer.open()

    def attempts(self, work: CommitWork, stamp: Stamp) -> Iterator[AbstractContextManager[None]]:
        """Attempts to commit what the block of each lets `take` have, until one is made.

        Each is for the head that it found, which may be that of another writer who was first.

        Raises:
            TableMismatch: The table does not fit the changes, or belongs to another changefeed.
            CheckpointConflict: Another applier wrote the table.
            TransientError: Storage or catalog did not answer.
        """
        self._renew()
        for attempt in self._committer.attempts(stamp):
            yield self._attempt(attempt, work, stamp)
        work.snapshot_id, work.seconds = self._committer.made, time.perf_counter() - work.start
        OUTAGES.worked("lake")
        # Of a commit that came late the files are not those of the newest attempt.
        index, is_other = self._index, work.truncates or work.dropped or self._committer.is_late
        if is_other or index is None or index.snapshot_id != work.base:
            self._index = None
        else:
            index.advance(work.snapshot_id, work.rows or (), work.deletes.state)

    def _renew(self) -> None:
        """Load the table anew before a step finds out that its keys have expired, which would count as an outage."""
        if self.table.is_stale:
            self.look()
        self._reach()

    def _reach(self) -> None:
        """Go to the storage with the keys that the table has now, or in another way: it may answer Python by now."""
        is_in_java = isinstance(self.storage, JavaStorage) and not is_local(self.table.location)
        if is_in_java or self._handle is not self.table.handle:
            self.storage, self._handle = storage_for(self.table), self.table.handle
            self._new_keys = NewKeySample(str(self.table), self.storage)

    @contextmanager
    def _attempt(self, attempt: AbstractContextManager[int | None], work: CommitWork, stamp: Stamp) -> Iterator[None]:
        with attempt as head:
            work.base, work.deletes, work.not_found = head, Deletes(), 0
            self._reach()
            try:
                yield
            except BaseException:
                # Nothing that it read or wrote may count in the next attempt.
                self._index = work.rows = None
                raise
            failpoints.reach("data-files-staged")
            self._committer.send(work.change(self.table, stamp))

    def plan(self, key: Sequence[str] | None, *, exact: bool, work: CommitWork | None = None) -> Stage:
        """How changes are staged for the head of an attempt; without one, for the table as it is now.

        It is the same object while that is as good. The table is `exact` if it holds exactly the rows of the resolved
        ts that it is stamped with, so that `ChangeBatch.fresh` may be trusted: not in the first steps after a load or a
        start in the middle. A table without a key has None.

        Raises:
            TableMismatch, TransientError: As `attempts`.
        """
        if work is None:
            self._renew()
            work = CommitWork(self.head)
        layout = self.table.file_layout
        if key is None:
            columns = [field for field in layout.schema.upstream if not pa.types.is_nested(field.arrow)]
        else:
            # A row that another writer added may have a key that is new upstream.
            columns, exact = _fields(self.table, key), exact and self._committer.trusts_new_keys
        index, needs_rows = self._index_of(work, columns), work.needs_rows(layout.schema.id)
        new_keys = None if isinstance(self.storage, JavaStorage) else self._new_keys
        stage = Stage(layout, index, self.storage, exact, needs_rows, new_keys)
        kept = self._planned
        if kept is None or kept.index is not index or kept != stage:
            self._planned = kept = stage
        return kept

    def _index_of(self, work: CommitWork, columns: Sequence[Field]) -> FileIndex:
        """The index of the head of this work. The one in memory is good for it exactly if it is of that snapshot: the
        fence lets no other writer slip in between two commits unnoticed.
        """
        kept, head = self._index, work.base
        if kept is None or kept.snapshot_id != head or kept.columns != tuple(columns):
            kept = self._index = read_index(str(self.table), head, columns, self.table.scan)
        elif head is not None and kept.lacks_ids and row_ids.are_kept(self.table.file_layout):
            kept.number(self.table.scan(head))
        return kept

    def take(self, work: CommitWork, staged: StagedBatch) -> bool:
        """Let what became of changes be what an attempt commits; False if they must be staged as not exact instead.

        Raises:
            TableIncomplete: The table must be complete, and lacks a row that they update or delete, or has a new one.
        """
        if staged.holds_new:
            if work.is_complete:
                what = f"Table {self.table} holds a row that the feed inserts, as if deletes were left out"
                raise TableIncomplete(f"{what} (changefeed.filtered).", _FILTERED)
            return False
        work.not_found = max(0, staged.missing)
        if work.is_complete and work.not_found:
            what = (
                f"Table {self.table} does not hold {counted(work.not_found, 'row')} that the feed updates or deletes."
            )
            raise TableIncomplete(what, _FILTERED)
        if staged.rows is not None:
            work.rows, work.schema_id = staged.rows, self.table.schema.id
        layout, files = self.table.file_layout, {} if self._index is None else self._index.files
        stage = stage_vectors if layout.format_version >= 3 else stage_position_deletes
        # Tasks elsewhere may have read them: without them the rows that were dead before would live again.
        load_deleted([files[path] for path in staged.living], self.storage)
        work.deletes = stage(staged.living, files, self.storage, layout.place)
        return True

    def stamp(self, stamp: Stamp, unset: Sequence[str] = ()) -> CommitWork:
        """Make a commit that changes no row and only says how far the table is; `unset` are properties to remove."""
        return self._commit(CommitWork(unset=unset), stamp)

    def truncate(self, stamp: Stamp) -> CommitWork:
        """Remove every row."""
        return self._commit(CommitWork(truncates=True), stamp)

    def drop(self, chosen: Callable[[FileIndex], Sequence[DataFile]], stamp: Stamp) -> CommitWork:
        """Remove whole data files with their rows: a change of metadata."""

        def stage(work: CommitWork) -> None:
            work.dropped = chosen(self._index_of(work, ()))

        return self._commit(CommitWork(), stamp, stage)

    def append(self, rows: Staged, stamp: Stamp) -> CommitWork:
        """Add rows that replace none.

        Raises:
            CheckpointConflict: Another process has written the table since this writer last looked.
        """
        base = self.head

        def stage(work: CommitWork) -> None:
            if work.base != base:
                raise CheckpointConflict(f"Another process writes table {self.table}.")
            work.take_rows(rows, self.table.schema.id)

        return self._commit(CommitWork(), stamp, stage)

    def replace_where(
        self, columns: Sequence[str], predicate: Predicate, stamp: Stamp, rows: Staged | None = None
    ) -> CommitWork:
        """Remove the rows that a predicate names, which is called with some columns of some rows at a time; add those
        that are staged.
        """

        def stage(work: CommitWork) -> None:
            if rows is not None:
                work.take_rows(rows, self.table.schema.id)
            fields = _fields(self.table, columns)
            files = list(self._index_of(work, fields).files.values())
            load_deleted(files, self.storage)
            find = partial(stage_where, predicate, fields, self.storage)
            found = run_on_groups(self.table, "look for rows in", find, groups(files), files, self.storage)
            self.take(work, StagedBatch.sum(list(found)))

        return self._commit(CommitWork(), stamp, stage)

    def _commit(
        self, work: CommitWork, stamp: Stamp, stage: Callable[[CommitWork], None] = lambda _: None
    ) -> CommitWork:
        for attempt in self.attempts(work, stamp):
            with attempt:
                stage(work)
        return work


def _fields(table: Table, names: Sequence[str]) -> list[Field]:
    fields = {field.name: field for field in table.schema.fields}
    missing = [name for name in names if name not in fields]
    if missing:
        what = f"Table {table} has no key column {', '.join(missing)}"
        raise TableMismatch(what, "Drop the table and backfill it.")
    return [fields[name] for name in names]
