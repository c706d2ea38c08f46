"""Commits a change once: fenced, never twice, planned again when another writer commits first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from applier.errors import TableMismatch, TransientError
from applier.runtime import failpoints
from applier.sink.commit.foreign_commits import FOREIGN, changed, rolled_back, set_back, trace
from applier.sink.commit.stamp import Stamp, guard, progress
from applier.sink.iceberg.commit import Change, CommitFailure, commit
from applier.sink.iceberg.table import Table

ATTEMPTS = 6
"""Commits tried for one batch. Between two of them lies a whole look-up, so a table that is compacted all the time
still lets one through."""


class _Moved(TransientError):
    """Another writer committed, or the outcome was not this commit's: plan again."""


@dataclass(slots=True)
class Committer:
    """Commits changes to one table under one changefeed; one thread at a time.

    Attributes:
        table: The table.
        changefeed: The changefeed it belongs to.
        epoch: Epoch of this applier.
        head: Snapshot that our plan is of; valid until a commit is refused.
        known: Stamp that the table had when we last looked or wrote.
        is_foreign: Another writer has changed rows since the last commit of applier; compaction does not count.
        is_cut: Whether another writer did cannot be determined, as the history has expired.
        rolled_back: Why the table cannot be used: it was set to an older snapshot.
        changed: Why the table cannot be used: others dropped or renamed columns.
        made: Snapshot that the last commit made; -1 before the first.
    """

    table: Table
    changefeed: str
    epoch: int
    head: int | None = None
    known: Stamp | None = None
    is_foreign: bool = False
    is_cut: bool = False
    rolled_back: TableMismatch | None = None
    changed: TableMismatch | None = None
    made: int = -1
    _sent: list[int] = field(default_factory=list)
    _newest: int | None = None
    _is_sent: bool = False
    _failure: Exception | None = None

    def open(self, *, traced: bool = True) -> None:
        """Read where the table is, and trace what others have done to it unless that does not matter.

        Raises:
            TableMismatch: It belongs to another changefeed.
            CheckpointConflict: A newer applier holds it.
        """
        known = progress(self.table, self.changefeed)
        guard(self.table, known, known, self.epoch)
        self.head, self.known, self.changed = self.table.snapshot_id, known, changed(self.table, known)
        if traced:
            self.trace()

    def trace(self) -> None:
        """Find out what others have done to the table while no applier looked."""
        if self.known is not None:
            found = trace(self.table.history(), self.changefeed)
            self.is_foreign, self.is_cut = self.is_foreign or found.is_foreign, found.is_cut
            self.rolled_back = rolled_back(self.table, self.known, found)

    def hold_to(self, snapshot_id: int | None) -> None:
        """Refuse a table that was set to an older snapshot than its stamp says, or than `snapshot_id`, which it had,
        or that lacks a column which applier wrote.

        Raises:
            TableMismatch: It was rolled back, or its columns were changed.
        """
        if self.changed is not None:
            raise self.changed
        if self.rolled_back is None and snapshot_id is not None:
            self.rolled_back = set_back(self.table, snapshot_id)
        if self.rolled_back is not None:
            raise self.rolled_back

    @property
    def is_late(self) -> bool:
        """Whether the commit that was made is an earlier attempt that came late, and not what was planned last.

        What was planned last may have no snapshot: an earlier one that comes before it is prepared has it refused.
        """
        return self.made in self._sent and self.made != self._newest

    @property
    def trusts_new_keys(self) -> bool:
        """Whether a key that is new upstream is certainly not in the table."""
        return not (self.doubts or self.table.setting(FOREIGN))

    @property
    def doubts(self) -> dict[str, str]:
        """Property that a commit sets if others have changed rows, or may have: its stamp hides that from a trace."""
        return {FOREIGN: "true"} if self.is_foreign or self.is_cut else {}

    def attempts(self, stamp: Stamp) -> Iterator[AbstractContextManager[int | None]]:
        """Attempts at one commit, until one is made. Each gives the head to plan on, and its block ends with `send`.

        After every failure the table is read again, and three answers are possible: our commit is there (the answer was
        lost, not the commit); another applier was there (stop); another writer was, a compaction or none at all
        (plan again on what is there now).

        Raises:
            TableMismatch: The table has changed so that the change cannot be planned.
            CheckpointConflict: Another applier wrote the table.
            TransientError: The catalog did not answer, or others kept committing.
        """
        self._sent.clear()
        for attempt in retrying(_Moved):
            yield self._attempt()
            with attempt:
                if self._failure is not None:
                    raise _Moved(str(self._failure)) from None
        self.head, self.known, self.rolled_back = self.made, stamp, None

    @contextmanager
    def _attempt(self) -> Iterator[int | None]:
        self._is_sent, self._failure, self._newest = False, None, None
        # Outside of the block: a read that fails here has planned nothing, and a block that ends cannot begin.
        head, columns = self.head, self.table.schema.id
        try:
            yield head
        except (TransientError, TableMismatch) as error:
            # What was planned on an old head may need files that maintenance has removed, or columns of old.
            if self._is_sent:
                raise
            if not self._is_made_after(error) and (head, columns) == (self.head, self.table.schema.id):
                raise

    def send(self, change: Change) -> None:
        """Commit what an attempt has planned.

        Raises:
            OutsideRefused: A data file is on another machine alone.
        """
        self._is_sent = True
        if self.doubts and change.properties:
            change = replace(change, properties={**change.properties, **self.doubts})
        try:
            self.made = commit(self.table, change, self.head, lambda: failpoints.reach("commit-sent"))
        except CommitFailure as failure:
            self._newest = failure.snapshot_id
            if failure.snapshot_id is not None:
                self._sent.append(failure.snapshot_id)
            if not self._is_made_after(failure):
                return
        failpoints.reach("commit-done")

    def _is_made_after(self, error: Exception) -> bool:
        """Whether the table shows after an error that an attempt was made; the next one waits for the answer."""
        made = self._resolve()
        self.made, self._failure = (self.made, error) if made is None else (made, None)
        return made is not None

    def _resolve(self) -> int | None:
        """Read the table again: the snapshot of an attempt that did not end well and was made, or None to plan anew."""
        # Without the catalog's answer it is unknown whether a commit was made.
        retrying(TransientError, 0.1, 5)(self.table.refresh)
        for snapshot_id in self._sent:
            if self.table.has_snapshot(snapshot_id):
                self.table.meet(snapshot_id)
                return snapshot_id
        self.look()
        return None

    def look(self) -> None:
        """Take note of what the table's refreshed metadata says, and whether others have changed rows.

        Raises:
            TableMismatch: It belongs to another changefeed.
            CheckpointConflict: Another applier wrote it.
        """
        found = progress(self.table, self.changefeed)
        guard(self.table, found, self.known, self.epoch)
        before, head, self.changed = self.head, self.table.snapshot_id, changed(self.table, found)
        if before != head or self.rolled_back is not None:
            self.trace()
            self.hold_to(before)
        if self.changed is not None:
            raise self.changed
        is_foreign = self.is_foreign or not self._same_rows_since(before)
        # Last: a head that is known without what led to it would hide rows of others.
        self.head, self.is_foreign = head, is_foreign

    def _same_rows_since(self, before: int | None) -> bool:
        for snapshot in self.table.history():
            if snapshot.id == before:
                return True
            if snapshot.operation != "replace":
                return False
        return before is None


def retrying(error: type[Exception], first: float = 0.05, longest: float = 2, attempts: int = ATTEMPTS) -> Retrying:
    """Try again after an error of this type, with pauses that grow between two numbers of seconds."""
    return Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=first, max=longest),
        reraise=True,
    )
