"""Commits the changes of one table as one fenced and stamped Iceberg commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from applier.errors import CheckpointConflict, TableMismatch
from applier.runtime import failpoints
from applier.runtime.outages import OUTAGES
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import own_columns
from applier.sink.commit.stamp import Stamp
from applier.sink.format.storage import Storage
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.table import Table
from applier.sink.write.deletes import Deletes
from applier.sink.write.file_index import FileIndex
from applier.sink.write.stage import Stage, StagedBatch
from applier.sink.write.staging import CommitWork, Predicate, Staged, Staging


@dataclass(frozen=True, slots=True)
class Applied:
    """What one commit did.

    Attributes:
        snapshot_id: The snapshot.
        rows_upserted: Rows added.
        rows_deleted: Living rows that it removed, the replaced versions of updated rows included.
        seconds: Wall seconds of each part: `plan`, `locate`, `rows`, `deletes`, `commit`; repeated parts add up.
        not_found: Rows that the batch updates or deletes and that the table does not hold, at least: a key that may be
            new does not count, and one that is there after all hides one that is not. 0 where the table is not exact.
    """

    snapshot_id: int
    rows_upserted: int
    rows_deleted: int
    seconds: dict[str, float]
    not_found: int = 0


class TableWriter:
    """Writes one Iceberg table under one changefeed. Different tables may be written by different threads at once.

    Every method that writes makes exactly one snapshot, which holds all of the change and the stamp, or none. It may
    be called again with the same arguments after an error; it is not noticed here that a batch was applied before,
    which its resolved ts shows beside `known`.

    Args:
        table: The table, loaded for this writer alone.
        changefeed: The changefeed it belongs to.
        epoch: Epoch of this applier.

    Raises:
        TableMismatch: The table belongs to another changefeed.
        CheckpointConflict: A newer applier holds it.
    """

    def __init__(self, table: Table, changefeed: str, epoch: int) -> None:
        self.table = table
        self._committer = Committer(table, changefeed, epoch)
        self._committer.open()
        self._staging = Staging(table)

    @property
    def known(self) -> Stamp | None:
        """Stamp of the table when this writer last looked or wrote."""
        return self._committer.known

    @property
    def head(self) -> int | None:
        """Snapshot that this writer last saw at the head, or wrote."""
        return self._committer.head

    @property
    def storage(self) -> Storage:
        """Where its files are."""
        return self._staging.storage

    @property
    def index(self) -> FileIndex | None:
        """Files of that head; None while they are not known."""
        kept = self._staging.index
        return kept if kept is not None and kept.snapshot_id == self.head else None

    @property
    def own_stamp(self) -> Stamp | None:
        """The table's progress under this applier's epoch; None for a table without a stamp.

        It lacks the extra entries: the commit of a DDL is found by them.
        """
        known, ours = self.known, self._committer
        return None if known is None else Stamp(ours.changefeed, ours.epoch, known.resolved_ts)

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

    def plan(self, key: Sequence[str] | None, *, exact: bool) -> Stage:
        """How changes are staged for the table as it is now; arguments and errors as of `attempts`."""
        trusts_new_keys = self._committer.trusts_new_keys
        return self._staging.plan(CommitWork(self.head), key, exact=exact, trusts_new_keys=trusts_new_keys)

    def attempts(
        self, work: CommitWork, stamp: Stamp, key: Sequence[str] | None, *, exact: bool
    ) -> Iterator[AbstractContextManager[Stage]]:
        """Attempts to commit changes whose rows the resolved ts of a stamp covers, until one is made.

        Each gives how changes are staged for the head that it found: what `plan` gave, unless another writer was first.
        Its block stages them so, and lets `take` have what became of them.

        The table is `exact` if it holds exactly the rows of the resolved ts that it is stamped with, so that
        `ChangeBatch.fresh` may be trusted: not in the first steps after a load or a start in the middle.

        Args:
            work: What the commit is for.
            stamp: Its stamp.
            key: Columns of the key; None for a table without one.
            exact: See above.

        Raises:
            TableMismatch: The table does not fit the changes, or belongs to another changefeed.
            CheckpointConflict: Another applier wrote the table.
            TransientError: Storage or catalog did not answer.
        """
        for attempt in self._attempts(work, stamp):
            yield self._planned(attempt, work, key, exact=exact)

    @contextmanager
    def _planned(
        self, attempt: AbstractContextManager[None], work: CommitWork, key: Sequence[str] | None, *, exact: bool
    ) -> Iterator[Stage]:
        with attempt:
            trusts_new_keys = self._committer.trusts_new_keys
            yield self._staging.plan(work, key, exact=exact, trusts_new_keys=trusts_new_keys)

    def take(self, work: CommitWork, staged: StagedBatch) -> bool:
        """Let what became of changes be what an attempt commits; False if they must be staged as not exact instead.

        Raises:
            TableIncomplete: The table must be complete, and lacks a row that they update or delete, or has a new one.
        """
        return self._staging.take(work, staged)

    def applied(self, work: CommitWork) -> Applied:
        """What a commit did, once it is made."""
        work.seconds["commit"] = time.perf_counter() - work.start - sum(work.seconds.values())
        return Applied(self._committer.made, work.upserted, work.deleted, work.seconds, work.not_found)

    def stamp(self, stamp: Stamp, unset: Sequence[str] = ()) -> Applied:
        """Make a commit that changes no row and only says how far the table is; `unset` are properties to remove."""
        work = CommitWork()
        for attempt in self._attempts(work, stamp, unset):
            with attempt:
                pass
        return self.applied(work)

    def truncate(self, stamp: Stamp) -> Applied:
        """Remove every row."""
        self._staging.index = None
        for attempt in self._committer.attempts(stamp):
            with attempt:
                self._committer.send(self._change(stamp, CommitWork(), truncate=True))
        return Applied(self._committer.made, 0, 0, {})

    def delete_where(self, columns: Sequence[str], predicate: Predicate, stamp: Stamp) -> Applied:
        """Remove the rows that a predicate names, which is called with some columns of some rows at a time."""
        work = CommitWork()
        for attempt in self._attempts(work, stamp):
            with attempt:
                self._staging.where(work, columns, predicate)
        return self.applied(work)

    def append(self, rows: Staged, stamp: Stamp) -> Applied:
        """Add rows that replace none.

        Raises:
            CheckpointConflict: Another process has written the table since this writer last looked.
        """
        work, base = CommitWork(), self.head
        for attempt in self._attempts(work, stamp):
            with attempt:
                if work.base != base:
                    raise CheckpointConflict(f"Another process writes table {self.table}.")
                self._staging.take_rows(work, rows)
        return self.applied(work)

    def exchange_where(self, columns: Sequence[str], predicate: Predicate, rows: Staged, stamp: Stamp) -> Applied:
        """Remove the rows that a predicate names as in `delete_where`, and add the rows that are staged."""
        work = CommitWork()
        for attempt in self._attempts(work, stamp):
            with attempt:
                self._staging.take_rows(work, rows)
                self._staging.where(work, columns, predicate)
        return self.applied(work)

    def _attempts(
        self, work: CommitWork, stamp: Stamp, unset: Sequence[str] = ()
    ) -> Iterator[AbstractContextManager[None]]:
        """Attempts to commit what the block of each stages in `work`, until one is made; see `Committer.attempts`."""
        for attempt in self._committer.attempts(stamp):
            yield self._attempt(attempt, work, stamp, unset)
        OUTAGES.worked("lake")
        self._staging.advance(work, None if self._committer.is_late else self._committer.made)

    @contextmanager
    def _attempt(
        self, attempt: AbstractContextManager[int | None], work: CommitWork, stamp: Stamp, unset: Sequence[str]
    ) -> Iterator[None]:
        with attempt as head:
            work.base, work.deletes, work.deleted, work.not_found = head, Deletes(), 0, 0
            try:
                yield
            except BaseException:
                # Nothing that it read or wrote may count in the next attempt.
                self._staging.index = work.rows = None
                raise
            failpoints.reach("data-files-staged")
            self._committer.send(replace(self._change(stamp, work), unset=unset))

    def _change(self, stamp: Stamp, staged: CommitWork, *, truncate: bool = False) -> Change:
        return Change(
            rows=staged.rows or (),
            deletes=staged.deletes.files,
            replaced=staged.deletes.replaced,
            touched=list(staged.deletes.state),
            truncate=truncate,
            summary=stamp.summary(),
            properties={**stamp.entries(), **own_columns(self.table), **(staged.lacking if staged.not_found else {})},
            schema_id=staged.schema_id,
        )
