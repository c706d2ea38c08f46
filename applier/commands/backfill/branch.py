"""Commits batches of a covered range to a branch of each table; readers see none of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.commands.backfill.replay_ddl import DdlReplay, concerns, refuse_moved
from applier.config.settings import Policy
from applier.ddl import actions as say
from applier.ddl.actions import effect, kind
from applier.ddl.schema_tracker import Tables
from applier.errors import RangeRefused
from applier.pipeline.schema_changes.stamp import DDL, is_in, mark
from applier.pipeline.schema_changes.statements import Ddl
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.state import State
from applier.pipeline.tables.listed_tables import ListedTables
from applier.pipeline.tables.table_batch import Batch
from applier.pipeline.tables.target_tables import Refused, TargetTables
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import BACKFILL
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.snapshot import MAIN
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import Applied, TableWriter

REBUILT = "applier.rebuilt-by"
"""Property of a table that was gone and is made anew by a backfill: readers see no row of it before it is shown. It has
no stamp until then, so that it is not taken for the one that is gone."""

EMPTIED = "applier.emptied"
"""Entry of the stamp of a commit that removed all rows from a branch, because a DDL of the range did."""


@dataclass(slots=True, kw_only=True)
class Branches(TargetTables):
    """The branches of some tables, in which a range is applied on top of what readers see.

    Args:
        names: The tables.
        branch: Name of the branch in each of them.
        job: Which backfill this is.
        lineage: What becomes of old rows.
    """

    names: Sequence[TableName]
    branch: str
    job: str
    lineage: DdlReplay

    @staticmethod
    def of(targets: TargetTables, names: Sequence[TableName], branch: str, job: str, lineage: DdlReplay) -> Branches:
        """Branches of the tables of a replica."""
        given = {item.name: getattr(targets, item.name) for item in fields(TargetTables)}
        own = {"snapshots": {}, "_writers": {}, "listed": ListedTables()}
        return Branches(**(given | own), names=names, branch=branch, job=job, lineage=lineage)

    def begin(self, above: int) -> None:
        """Make all branches anew, each at what readers see, and the tables that are gone.

        Args:
            above: Commit ts above which the range begins; 0 where offsets alone show it.

        Raises:
            RangeRefused: A branch of that name was made by another job; or a table is gone, and the range does not
                hold all of its rows.
        """
        for name in self.names:
            version = self._begun(name, above)
            if version is not None and self.catalog.load(self.identifier(name)) is None:
                self._create(version, {REBUILT: self.job})
                self._writers.pop(self.identifier(name))
            table = self.main(name)
            head = table.head_of(self.branch)
            if head is not None:
                if BACKFILL not in head.summary and head.id not in {snapshot.id for snapshot in table.history()}:
                    what = f"Table {table} has a branch {self.branch} that no backfill made."
                    raise RangeRefused(what, "give another name with --branch, or drop that one.")
                table.drop_branch(self.branch)
            self._make(table, name)

    def main(self, name: TableName, branch: str = MAIN) -> Table:
        """The table as readers see it, or as a branch shows it.

        Raises:
            RangeRefused: It is gone.
        """
        table = self.catalog.load(self.identifier(name), branch)
        if table is None:
            raise _gone(self.identifier(name))
        return table

    def refuse_part(self) -> None:
        """Refuse to show tables that were made anew, but not from their first row on; they are removed again.

        Raises:
            RangeRefused: With the table.
        """
        for name in self.names:
            table = self.main(name)
            if table.setting(REBUILT) is not None and not self.is_emptied(name):
                self.confirm()
                self.catalog.drop(table.identifier, purge=True)
                raise _gone(table.identifier)

    def show(self, name: TableName, resolved_ts: int) -> Table:
        """Let readers see a branch; may be called again.

        Args:
            name: The table.
            resolved_ts: What the changefeed has applied, for the stamp of a table that was made anew.

        Returns:
            The table.

        Raises:
            JavaError: Another writer changed the table since the branch was begun.
        """
        table = self.main(name)
        table.fast_forward(self.branch)
        if table.setting(REBUILT) is not None:
            found = TableWriter(self.main(name), self.changefeed, self.epoch)
            found.stamp(Stamp(self.changefeed, self.epoch, resolved_ts), unset=(REBUILT,))
        return self.main(name)

    def _begun(self, name: TableName, above: int) -> TableVersion | None:
        """A table whose every row may be in the range, as a DDL after its beginning made it; None for others."""
        coming = self.lineage.coming(name, above + 1) if self.ordered else []
        is_begun = any(effect(action).is_fresh for _, actions in coming for action in actions)
        return self.lineage.live.get(name) if is_begun else None

    def writer(self, name: TableName) -> TableWriter:
        """The writer of a branch."""
        identifier = self.identifier(name)
        if identifier not in self._writers:
            main = self.main(name)
            if main.head_of(self.branch) is None:
                self._make(main, name)
            self._writers[identifier] = self._open(self.main(name, self.branch))
        return self._writers[identifier]

    def ensure(self, version: TableVersion, stamp: Stamp) -> TableWriter:
        """The writer of a branch; there is one of each table that is meant."""
        del stamp
        return self.writer(version.name)

    def restore(self, names: Iterable[TableName], checkpoint: Checkpoint) -> dict[TableName, int]:
        """Look at the branches anew; see `TargetTables.restore`. Commits of main say nothing about a branch."""
        del names
        self._writers.clear()
        self.snapshots.clear()
        found = {name: self.applied_ts(name) or 0 for name in self.names}
        return {name: applied for name, applied in found.items() if applied > checkpoint.resolved_ts}

    def applied_ts(self, name: TableName) -> int | None:
        """Resolved ts of the last commit of this backfill; None before its first."""
        writer = self.writer(name) if name in self.names else None
        known = writer.known if writer else None
        return known.resolved_ts if known is not None and self._is_own(known) else None

    def covered(self, name: TableName) -> AppliedOffsets:
        """Nothing: what a range holds is applied again."""
        del name
        return AppliedOffsets()

    def stamp(self, upto: int, extra: Mapping[str, str] | None = None, writer: TableWriter | None = None) -> Stamp:
        """What a commit to a branch says about itself."""
        del writer
        return Stamp(self.changefeed, self.epoch, upto if self.ordered else 0, {**(extra or {}), BACKFILL: self.job})

    def apply(
        self, batches: Sequence[Batch], tables: Tables, whole: Collection[TableName] = (), refused: Refused = None
    ) -> dict[TableName, Applied]:
        """Commit batches, in the columns that the tables have now; see `TargetTables.apply`.

        A branch holds rows of later changes already, so a row that a change does not find shows nothing.

        Raises:
            RangeRefused: What became of such rows cannot be determined, or they would be there twice.
        """
        del whole, refused
        found = (self._forward(batch, tables.get(batch.name)) for batch in batches)
        due = [batch for batch in found if batch is not None]
        done = TargetTables.apply(self, due, tables) if due else {}
        return {name: replace(applied, not_found=0) for name, applied in done.items()}

    def empty(self, name: TableName, change: SchemaChange) -> None:
        """Remove all rows from a branch, as a DDL of the range did; nothing if that was done before."""
        writer = self.writer(name)
        known = writer.known
        is_past = known is not None and self._is_own(known) and known.resolved_ts > change.commit_ts
        if not is_past and not is_in(known, change):
            extra = {DDL: mark(change), EMPTIED: str(change.commit_ts)}
            writer.truncate(self.stamp(change.commit_ts, extra))

    def is_emptied(self, name: TableName) -> bool:
        """Whether a branch holds what the range says alone, and nothing of what readers see."""
        for snapshot in self.writer(name).table.history():
            if snapshot.summary.get(BACKFILL) != self.job:
                return False
            if EMPTIED in snapshot.summary:
                return True
        return False

    def _forward(self, batch: Batch, tracked: TableVersion | None) -> Batch | None:
        moved = [self.lineage.forward(batch.name, part, tracked) for part in batch.parts]
        parts = [part for part in moved if part is not None]
        if not parts:
            return None
        if not parts[0].version.key and not self.is_emptied(batch.name):
            what = f"Table {batch.name} has no key: rows that are applied again would be there twice."
            way_out = "begin the range before its CREATE TABLE or TRUNCATE, or leave it out in --tables."
            raise RangeRefused(what, way_out)
        return Batch(batch.name, parts, batch.upto)

    def _make(self, table: Table, name: TableName) -> None:
        if table.snapshot_id is None:
            # A branch begins at a snapshot, and a table that never had rows has none.
            found = TableWriter(table, self.changefeed, self.epoch)
            if table.setting(REBUILT) is None:
                found.stamp(found.known or Stamp(self.changefeed, self.epoch, 0))
            else:
                committer = Committer(table, self.changefeed, self.epoch)
                committer.commit(self.stamp(0), lambda _: Change(summary=self.stamp(0).entries()))
        self.confirm()
        table.create_branch(self.branch)
        self._writers.pop(self.identifier(name), None)

    def _is_own(self, stamp: Stamp) -> bool:
        return stamp.extra.get(BACKFILL) == self.job

    def _is_exact(self, writer: TableWriter, stamp: Stamp) -> bool:
        del writer, stamp
        return False


@dataclass(frozen=True, slots=True)
class PassedDdl:
    """Handles DDL that the tables have passed already: they change what old rows mean, and no columns.

    Args:
        branches: The branches.
        state: What is known of the tables in the range.
        policies: Policy per kind of DDL, where it is not `apply`.
        assumed: Commit ts up to which the tables were taken to have passed their DDL when the range began.
    """

    branches: Branches
    state: State
    policies: Mapping[str, Policy]
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
            RangeRefused: It moved rows of which the feed says nothing.
        """
        change = ddl.barrier.change
        self._refuse_assumed(ddl)
        for action in ddl.actions:
            if self.policies.get(kind(action)) != "ignore":
                self._pass(change, action, [name for name in self.branches.names if concerns(action, name)])
        move_past(change, ddl.actions, self.state, self.branches)

    def _refuse_assumed(self, ddl: Ddl) -> None:
        """What tables were before the first DDL of a range of offsets is taken from the time of its first records."""
        for name in self.branches.names:
            if name in self._created or not any(concerns(action, name) for action in ddl.actions):
                continue
            if not self.branches.ordered:
                raise _unordered(name, ddl)
            if any(effect(action).is_fresh for action in ddl.actions):
                self._created.add(name)
            elif ddl.commit_ts <= self.assumed:
                when = ddl.commit_ts
                what = f"The offsets begin before a DDL of table {name} at commit ts {when}, older than their records."
                raise RangeRefused(what, f"give --from as a resolved ts: {when} to begin after it, or a lower one.")

    def _pass(self, change: SchemaChange, action: say.Action, names: Sequence[TableName]) -> None:
        done = effect(action)
        for name in names:
            if done.is_fresh:
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


def _unordered(name: TableName, ddl: Ddl) -> RangeRefused:
    what = f"The range holds a DDL of table {name}, and in offset order nothing shows which rows lie before it."
    begin = f"{ddl.barrier.topic}:{ddl.barrier.position.partition}:{ddl.barrier.position.offset + 1}"
    return RangeRefused(what, f"begin the range after it ({begin}), or leave the table out in --tables.")
