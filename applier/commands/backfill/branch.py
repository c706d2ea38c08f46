"""Commits batches of a covered range to a branch of each table; readers see none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.commands.backfill.replay_ddl import DdlReplay, concerns, left_of, refuse_moved
from applier.ddl.actions import Action, effect
from applier.errors import RangeRefused
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.state import State
from applier.pipeline.tables.ddl_stamp import DDL, is_in, mark
from applier.pipeline.tables.table_batch import Batch
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import BACKFILL
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.snapshot import MAIN
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter

REBUILT = "applier.rebuilt-by"
"""Property of a table that was gone and is made anew by a backfill: readers see no row of it before it is shown. It has
no stamp until then, so that it is not taken for the one that is gone."""

EMPTIED = "applier.emptied"
"""Entry of the stamp of a commit that removed all rows from a branch, because a DDL of the range did."""


@dataclass(slots=True)
class Branches:
    """The branches of some tables, in which a range is applied on top of what readers see: the policy of their commits.

    `main` has the tables as readers see them, and `targets` as the branches show them. The job names this backfill, and
    the lineage says what becomes of old rows.
    """

    main: TargetTables
    names: Sequence[TableName]
    branch: str
    job: str
    lineage: DdlReplay
    targets: TargetTables = field(init=False)

    def __post_init__(self) -> None:
        # Commits of other processes go to main, and are fenced there.
        self.targets = replace(self.main, policy=self, fenced=0)

    def begin(self, above: int) -> None:
        """Make all branches anew, each at what readers see, and the tables that are gone.

        The range begins above a commit ts, which is 0 where offsets alone show it.

        Raises:
            RangeRefused: A branch of that name was made by another job; or a table is gone, and the range does not
                hold all of its rows.
        """
        for name in self.names:
            identifier, version = self.main.identifier(name), self._begun(name, above)
            if version is not None and self.main.catalog.load(identifier) is None:
                self.main.confirm()
                self.main.maker.make(identifier, version, {REBUILT: self.job})
            table = self.table(name)
            head = table.branches.head(self.branch)
            if head is not None:
                if BACKFILL not in head.summary and head.id not in {snapshot.id for snapshot in table.history()}:
                    what = f"Table {table} has a branch {self.branch} that no backfill made."
                    raise RangeRefused(what, "give another name with --branch, or drop that one.")
                table.branches.drop(self.branch)
            self._make(table)
            self.targets.close(name)

    def table(self, name: TableName, branch: str = MAIN) -> Table:
        """The table as readers see it, or as a branch shows it.

        Raises:
            RangeRefused: It is gone.
        """
        table = self.main.catalog.load(self.main.identifier(name), branch)
        if table is None:
            raise _gone(self.main.identifier(name))
        return table

    def refuse_part(self) -> None:
        """Refuse to show tables that were made anew, but not from their first row on; they are removed again.

        Raises:
            RangeRefused: With the table.
        """
        for name in self.names:
            table = self.table(name)
            if table.setting(REBUILT) is not None and not self.is_emptied(name):
                self.main.confirm()
                self.main.catalog.drop(table.identifier, purge=True)
                raise _gone(table.identifier)

    def show(self, name: TableName, resolved_ts: int) -> Table:
        """Let readers see a branch, and return the table; may be called again.

        A table that was made anew is stamped with the resolved ts that the changefeed has applied.

        Raises:
            JavaError: Another writer changed the table since the branch was begun.
        """
        table, feed = self.table(name), self.main.feed
        table.branches.fast_forward(self.branch)
        if table.setting(REBUILT) is not None:
            found = TableWriter(self.table(name), feed.name, feed.epoch)
            found.stamp(Stamp(feed.name, feed.epoch, resolved_ts), unset=(REBUILT,))
        return self.table(name)

    def _begun(self, name: TableName, above: int) -> TableVersion | None:
        """A table whose every row may be in the range, as a DDL after its beginning made it; None for others."""
        coming = self.lineage.coming(name, above + 1) if self.main.feed.order.parts_at_ddl else []
        is_begun = any(effect(action).empties for _, actions in coming for action in actions)
        return self.lineage.live.get(name) if is_begun else None

    def load(self, identifier: tuple[str, ...]) -> Table | None:
        """The branch of a table, which is made if it is missing; None for a table that was not chosen.

        Raises:
            RangeRefused: The table is gone.
        """
        name = next((name for name in self.names if self.main.identifier(name) == identifier), None)
        if name is None:
            return None
        main = self.table(name)
        if main.branches.head(self.branch) is None:
            self._make(main)
        return self.table(name, self.branch)

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit to a branch says about itself."""
        del writer
        return self.main.feed.stamp(upto, {**(extra or {}), BACKFILL: self.job})

    def applied(self, writer: TableWriter) -> Stamp | None:
        """The stamp of the last commit of this backfill; None before its first, and in a feed in offset order.

        Commits of main say nothing about a branch, and what a range of offsets holds is applied again.
        """
        known = writer.known
        return known if known and self.main.feed.order.has_watermark and known.extra.get(BACKFILL) == self.job else None

    def forward(self, batch: Batch, tracked: TableVersion | None) -> Batch | None:
        """The batch in the columns that its table has now; None if DDL that come removed all of its rows.

        Raises:
            RangeRefused: What became of such rows cannot be determined, or they would be there twice.
        """
        moved = [self.lineage.forward(batch.name, part, tracked) for part in batch.parts]
        parts = [part for part in moved if part is not None]
        if not parts:
            return None
        if not parts[0].version.shape.is_idempotent and not self.is_emptied(batch.name):
            what = f"Table {batch.name} has no key: rows that are applied again would be there twice."
            way_out = "begin the range before its CREATE TABLE or TRUNCATE, or leave it out in --tables."
            raise RangeRefused(what, way_out)
        return Batch(batch.name, parts, batch.upto)

    def empty(self, name: TableName, change: SchemaChange) -> None:
        """Remove all rows from a branch, as a DDL of the range did; nothing if that was done before."""
        writer = self._writer(name)
        known = self.applied(writer)
        is_past = known is not None and known.resolved_ts > change.commit_ts
        if not is_past and not is_in(writer.known, change):
            extra = {DDL: mark(change), EMPTIED: str(change.commit_ts)}
            writer.truncate(self.stamp(change.commit_ts, extra))

    def is_emptied(self, name: TableName) -> bool:
        """Whether a branch holds what the range says alone, and nothing of what readers see."""
        for snapshot in self._writer(name).table.history():
            if snapshot.summary.get(BACKFILL) != self.job:
                return False
            if EMPTIED in snapshot.summary:
                return True
        return False

    def _writer(self, name: TableName) -> TableWriter:
        writer = self.targets.writer(name)
        if writer is None:
            raise _gone(self.main.identifier(name))
        return writer

    def _make(self, table: Table) -> None:
        feed = self.main.feed
        if table.snapshot_id is None:
            # A branch begins at a snapshot, and a table that never had rows has none.
            found = TableWriter(table, feed.name, feed.epoch)
            if table.setting(REBUILT) is None:
                found.stamp(found.known or Stamp(feed.name, feed.epoch, 0))
            else:
                committer = Committer(table, feed.name, feed.epoch)
                for attempt in committer.attempts(self.stamp(0)):
                    with attempt:
                        committer.send(Change(summary=self.stamp(0).entries()))
        self.main.confirm()
        table.branches.create(self.branch)


@dataclass(frozen=True, slots=True)
class PassedDdl:
    """Handles DDL that the tables have passed already: they change what old rows mean, and no columns.

    When the range began, the tables were taken to have passed their DDL up to the commit ts `assumed`.
    """

    branches: Branches
    state: State
    assumed: int
    _created: set[TableName] = field(default_factory=set, init=False)

    def is_begun(self, ddl: Ddl) -> bool:
        """Never: the stamps of the branches show what is in them."""
        del ddl
        return False

    def leaves_rows(self, ddl: Ddl) -> bool:
        """Never, as none is begun."""
        del ddl
        return False

    def follow(self, version: TableVersion) -> None:
        """Take note of other columns, in a feed whose DDL do not come."""
        if not version.keys_only:
            self.state.track(version)

    def apply(self, ddl: Ddl) -> None:
        """Pass one DDL.

        Raises:
            RangeRefused: It moved rows, and the feed does not say which.
        """
        change = ddl.barrier.change
        left = left_of(change, ddl.actions, self.branches.lineage.left)
        taken = [action for action in ddl.actions if action not in left]
        self._refuse_assumed(ddl, taken)
        for action in taken:
            self._pass(change, action, [name for name in self.branches.names if concerns(action, name)])
        move_past(change, ddl.actions, self.state, self.branches.targets)

    def _refuse_assumed(self, ddl: Ddl, taken: Sequence[Action]) -> None:
        """What tables were before the first DDL of a range of offsets is taken from the time of its first records."""
        for name in self.branches.names:
            if name in self._created or not any(concerns(action, name) for action in ddl.actions):
                continue
            if not self.branches.main.feed.order.parts_at_ddl:
                raise _holds_ddl(name, ddl)
            if any(effect(action).empties for action in taken):
                self._created.add(name)
            elif ddl.commit_ts <= self.assumed:
                when = ddl.commit_ts
                what = f"The offsets begin before a DDL of table {name} at commit ts {when}, older than their records."
                raise RangeRefused(what, f"give --from as a resolved ts: {when} to begin after it, or a lower one.")

    def _pass(self, change: SchemaChange, action: Action, names: Sequence[TableName]) -> None:
        done = effect(action)
        for name in names:
            if done.empties:
                self.branches.empty(name, change)
            elif done.moved or done.restored or (done.is_silent and self.branches.is_emptied(name)):
                refuse_moved(name, change.commit_ts, action)


def _gone(identifier: tuple[str, ...]) -> RangeRefused:
    what = f"Table {'.'.join(identifier)} is not in the catalog, and the range does not hold all of its rows."
    way_out = (
        "register its last metadata file again (system.register_table); or begin the range before its CREATE TABLE or "
        "TRUNCATE, which makes it anew; see docs/backfill.md."
    )
    return RangeRefused(what, way_out)


def _holds_ddl(name: TableName, ddl: Ddl) -> RangeRefused:
    what = f"The range holds a DDL of table {name}, and offset order does not show which rows lie before it."
    begin = f"{ddl.barrier.topic}:{ddl.barrier.position.partition}:{ddl.barrier.position.offset + 1}"
    return RangeRefused(what, f"begin the range after it ({begin}), or leave the table out in --tables.")
