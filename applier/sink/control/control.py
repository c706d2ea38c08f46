"""The durable state of one changefeed: checkpoints, table versions, schema changes and dead letters, as Iceberg tables.

Any engine may read them. Only the holder of the changefeed may write them: `take` makes a process the holder.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.table import TableVersion
from applier.errors import CheckpointConflict, TerminalError
from applier.sink.commit.committer import ATTEMPTS
from applier.sink.commit.fence import fence
from applier.sink.commit.stamp import Stamp
from applier.sink.control.append_table import AppendOnlyTable
from applier.sink.control.lease import StartOf, may_take, process_start
from applier.sink.control.rows import (
    DeadLetter,
    SchemaDecision,
    checkpoint_row,
    dead_letters,
    decision_rows,
    decisions,
    letter_rows,
    newest_checkpoint,
    table_versions,
    version_rows,
)
from applier.sink.control.tables import (
    CHECKPOINTS,
    CONTROL_TABLES,
    DEAD_LETTERS,
    HOLDER,
    SCHEMA_CHANGES,
    STEP,
    TABLE_VERSIONS,
    ControlTable,
)
from applier.sink.control.tables import namespace as namespace_of
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.wording import WAY_FROM_SET_BACK

_GROWING = (SCHEMA_CHANGES, DEAD_LETTERS)
"""Tables of which no row ever goes, and whose rows nothing else has."""

__all__ = ["Control", "DeadLetter", "SchemaDecision", "unix_ms"]


@dataclass(slots=True)
class Control:
    """The state of one changefeed; one thread at a time, save for `confirm` and `append_checkpoint`.

    Every method may raise TransientError. Those that write raise CheckpointConflict once another process has taken
    the changefeed.
    """

    changefeed: str
    tables: Mapping[ControlTable, AppendOnlyTable]
    """A process that only looks makes none: those that are missing are read as empty."""
    written: Counter[ControlTable] = field(default_factory=Counter)
    """Writes of this process to each table but the checkpoints."""
    _last: Checkpoint | None = None
    _known: set[str] = field(default_factory=set)
    _one_thread: threading.RLock = field(default_factory=threading.RLock)

    @staticmethod
    def open(
        catalog: Catalog, changefeed: str, namespace: tuple[str, ...] | None = None, *, is_new: bool = False
    ) -> Control:
        """The state of a changefeed; its tables are created in the namespace, `applier_<changefeed>` by default, if
        they are missing. Where the changefeed `is_new`, no table takes the place of another one.

        Raises:
            TableMismatch: There are tables of those names that are not ours.
        """
        where = namespace or (namespace_of(changefeed),)
        tables = {kind: AppendOnlyTable.open(catalog, where, kind, is_first=is_new) for kind in CONTROL_TABLES}
        return Control(changefeed, tables)

    def rows(self, kind: ControlTable, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """All rows that a control table has now, without some columns."""
        if (table := self.tables.get(kind)) is None:
            return []
        table.table.refresh()
        return table.rows(without).to_pylist()

    def last_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, of any epoch; None for a new changefeed. Reads one small file."""
        if (table := self.tables.get(CHECKPOINTS)) is None:
            return None
        table.table.refresh()
        return newest_checkpoint(table.newest().to_pylist())

    def take(
        self,
        me: Holder,
        lease_seconds: float = 60,
        *,
        take_over: bool = False,
        lost_epoch: int = 0,
        now: int | None = None,
        start_of: StartOf = process_start,
    ) -> tuple[Checkpoint, str]:
        """Take the changefeed: append the newest checkpoint again, under the next epoch and with this holder.

        Of two processes that try at once one gets the changefeed and the other the error. Where all checkpoints are
        lost, `lost_epoch` is the highest epoch that is known of; the other arguments are those of `may_take`.

        Returns:
            The checkpoint to go on from, and why it could be taken.

        Raises:
            CheckpointConflict: Another process holds the changefeed.
            TerminalError: Another control table was set back.
        """
        clock = unix_ms() if now is None else now
        attempts = ATTEMPTS
        while True:
            last = self.last_checkpoint()
            grant = may_take(last, me, clock, lease_seconds, start_of, take_over=take_over)
            taken = _taken(last, replace(me, since=clock), lost_epoch, is_over=grant.is_over)
            attempts -= 1
            for kind in _GROWING:
                # The holder before may have written since they were opened here, up to the checkpoint that was read.
                self.tables[kind].table.refresh()
            try:
                return self._append(taken, last), grant.because
            except CheckpointConflict:
                # The holder may have shown just now that it is alive: then it is for `may_take` to say what follows.
                found = self.last_checkpoint()
                if last is None or found is None or found.lease.epoch != last.lease.epoch or not attempts:
                    raise

    def fence(self, upto: int) -> None:
        """Make the other control tables refuse what processes of epochs up to this one may still send.

        Raises:
            CheckpointConflict: Another process has taken the changefeed.
        """
        for table in (self.tables[kind].table for kind in (TABLE_VERSIONS, SCHEMA_CHANGES, DEAD_LETTERS)):
            table.refresh()
            fence(table, self.changefeed, self._epoch, upto, unwritten=True)

    def confirm(self) -> None:
        """Make sure that this process still holds the changefeed; reads the catalog and writes nothing. Any thread may.

        It goes before what no commit can refuse: making, renaming and dropping tables.

        Raises:
            CheckpointConflict: Another process has taken the changefeed, or this one never did.
        """
        with self._one_thread:
            checkpoints = self.tables[CHECKPOINTS].table
            checkpoints.refresh()
            if self._last is None or checkpoints.setting(HOLDER) != self._last.lease.holder.token:
                raise self._overtaken(self._last)

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Append the next checkpoint: of the held epoch, and with a higher step than the last. Any thread may.

        Raises:
            CheckpointConflict: Another process has taken the changefeed since, or this one never did.
        """
        with self._one_thread:
            last = self._last
            if last is None or _hold(checkpoint.lease) != _hold(last.lease):
                raise CheckpointConflict("A checkpoint was written without holding the changefeed.")
            if checkpoint.step <= last.step:
                raise CheckpointConflict(f"Checkpoint {checkpoint.step} was written after checkpoint {last.step}.")
            self._append(checkpoint, last)

    def release(self, now: int | None = None) -> None:
        """Say that this process has stopped, so that the next one need not wait."""
        last = self._last
        if last is not None and not last.lease.released:
            clock = unix_ms() if now is None else now
            lease = replace(last.lease, released=True)
            self._append(replace(last, step=last.step + 1, written_at=clock, lease=lease), last)

    def load_versions(self) -> list[TableVersion]:
        """All table versions, oldest first; a later one of the same table and number takes the place of an earlier."""
        rows = self.rows(TABLE_VERSIONS)
        self._known = {row["description"] for row in rows}
        return table_versions(rows)

    def save_versions(self, versions: Iterable[TableVersion]) -> None:
        """Keep table versions, so that a restart can decode rows whose schema was sent before its offsets."""
        described = {version.to_json(): version for version in versions}
        new = [version for description, version in described.items() if description not in self._known]
        if new:
            self.write(TABLE_VERSIONS, version_rows(new, self._epoch))
        self._known |= described.keys()

    def record_schema_changes(self, decisions: Sequence[SchemaDecision]) -> None:
        """Keep what became of some DDL."""
        self.write(SCHEMA_CHANGES, decision_rows(decisions, self._epoch))

    def decisions(self, since: int = 0) -> list[SchemaDecision]:
        """What became of the DDL at or above a commit ts, oldest first."""
        return decisions(row for row in self.rows(SCHEMA_CHANGES) if row["commit_ts"] >= since)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Keep messages that were passed over. A replay may bury one again: topic, partition and offset show."""
        self.write(DEAD_LETTERS, letter_rows(letters, self._epoch))

    def letters(self, *, every: bool = False, whole: bool = True) -> list[DeadLetter]:
        """Messages that were passed over, each once, in order of offset; all or those not made up for since.

        Those that are not `whole` lack the bytes of their messages.
        """
        return dead_letters(self.rows(DEAD_LETTERS, () if whole else ("key", "value")), every=every)

    @property
    def _epoch(self) -> int:
        if self._last is None:
            raise CheckpointConflict("Durable state was written without holding the changefeed.")
        return self._last.lease.epoch

    def _append(self, checkpoint: Checkpoint, last: Checkpoint | None) -> Checkpoint:
        checkpoint = replace(checkpoint, control_rows={kind.name: self._grown(kind, last) for kind in _GROWING})
        # An append whose answer was lost may be there already; the same step written again takes its place.
        places = (_place(last), _place(checkpoint))

        def check(table: Table) -> None:
            """The head must still be ours; two processes that take the same epoch are distinguished only here."""
            if (table.setting(HOLDER), table.setting(STEP)) not in places:
                raise self._overtaken(last)

        extra = {HOLDER: checkpoint.lease.holder.token, STEP: str(checkpoint.step)}
        stamp = Stamp(self.changefeed, checkpoint.lease.epoch, checkpoint.resolved_ts, extra)
        self.tables[CHECKPOINTS].append(checkpoint_row(checkpoint), stamp, check)
        self._last = checkpoint
        return checkpoint

    def _grown(self, kind: ControlTable, last: Checkpoint | None) -> int:
        """Rows of a table that only grows.

        Raises:
            TerminalError: It was set back: what it lacks would be taken for never decided, or made up for.
        """
        table = self.tables[kind]
        size, before = table.size, 0 if last is None or table.is_lost else last.control_rows.get(kind.name, 0)
        if size < before:
            what = f"Control table {table.table} was set back: of its {before} rows it has {size}."
            raise TerminalError(what, WAY_FROM_SET_BACK)
        return size

    def _overtaken(self, last: Checkpoint | None) -> CheckpointConflict:
        found = newest_checkpoint(self.tables[CHECKPOINTS].newest().to_pylist())
        step = int(self.tables[CHECKPOINTS].table.setting(STEP) or 0)
        if found is not None and found.step < step:
            what = f"Control table checkpoints of changefeed {self.changefeed} was set back: its newest row is of step"
            way_out = "Set it to its newest snapshot again (system.set_current_snapshot), or drop it and start again:"
            return CheckpointConflict(
                f"{what} {found.step}, and it says itself that there was a step {step}.",
                f"{way_out} the tables say themselves what they have, and the feed is read from its beginning.",
            )
        holder, epoch = (found.lease.holder, found.lease.epoch) if found else ("nobody", 0)
        what = (
            f"Changefeed {self.changefeed} was taken by {holder} (epoch {epoch}) "
            f"while this process held or wanted it (epoch {last.lease.epoch if last else 0})."
        )
        return CheckpointConflict(what, "Keep one applier per changefeed; this one stops.")

    def write(self, kind: ControlTable, rows: pa.Table) -> None:
        """Append to one of the control tables.

        Raises:
            TerminalError: It was set back: behind these rows, its size would hide that.
        """
        if rows.num_rows > 0:
            self.confirm()

            def check(_: Table) -> None:
                self._grown(kind, self._last)

            self.tables[kind].append(rows, Stamp(self.changefeed, self._epoch, 0), check)
            self.written[kind] += 1


def _taken(last: Checkpoint | None, holder: Holder, lost_epoch: int, *, is_over: bool) -> Checkpoint:
    if last is None:
        lease = Lease(lost_epoch + 1, holder, unfenced=lost_epoch)
        return Checkpoint(lease, step=0, resolved_ts=0, written_at=holder.since, is_lost=lost_epoch > 0)
    lease = last.lease.next(holder, is_over=is_over)
    return replace(last, lease=lease, step=last.step + 1, written_at=holder.since)


def _hold(lease: Lease) -> tuple[int, str]:
    return lease.epoch, lease.holder.token


def unix_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def _place(checkpoint: Checkpoint | None) -> tuple[str | None, str | None]:
    return (checkpoint.lease.holder.token, str(checkpoint.step)) if checkpoint else (None, None)
