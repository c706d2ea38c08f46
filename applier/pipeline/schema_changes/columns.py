"""DDL of columns and keys: the schema of a target table follows that of its upstream table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from applier.changefeed.event import SchemaChange
from applier.changefeed.history import changes_version
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.actions import Action, touches
from applier.errors import RELOAD, SchemaChangeRefused
from applier.pipeline.schema_changes.track import after_of, altered
from applier.pipeline.schema_changes.upstream import AskedUpstream
from applier.pipeline.state import State
from applier.pipeline.tables import history_gap
from applier.pipeline.tables.completeness import is_unmet
from applier.pipeline.tables.ddl_stamp import DDL, is_in, mark, shown
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.sink.control.rows import Decision
from applier.sink.evolve.apply import apply_evolution
from applier.sink.evolve.plan import plan
from applier.sink.evolve.row_columns import of_schemas, supplied, with_virtual
from applier.sink.write.table_writer import TableWriter


@dataclass(frozen=True, slots=True)
class ColumnDdl:
    """Changes columns, keys and comments of target tables. Each method may be called again after a crash.

    Where there is an `upstream`, it is asked for values that a DDL gave to rows and that are not known otherwise.
    """

    targets: TargetTables
    state: State
    upstream: AskedUpstream | None = None

    def evolve(self, change: SchemaChange, group: Sequence[Action]) -> Decision:
        """Apply the specifications of one ALTER TABLE.

        Raises:
            SchemaChangeRefused: The table before it is not known, or the change cannot be applied exactly.
            TransientError: The upstream does not answer.
        """
        name = touches(group[0])[0]
        after = after_of(change, name)
        writer = self.targets.writer(name)
        if writer is not None and is_in(writer.known, change):
            return "applied"
        before = self.state.tables.get(name)
        # Deletes alone do not say what the table was.
        before = None if before is not None and before.keys_only else before
        if before is None and writer is not None and writer.known is None:
            before = self._described(name, after)
        if before is None and after is not None and writer is None:
            # The table became eligible only now, for instance by its first key: there is nothing to change yet.
            self.targets.ensure(after, self.targets.stamp(name, change.commit_ts, {DDL: mark(change)}))
            return "applied"
        if writer is None and (before is None or is_unmet(name, self.state)):
            # TiCDC sent no row of it so far: the rows that follow make a table that is incomplete.
            return "without a table"
        if before is None or writer is None:
            what = f"What table {name} was before is not known: {shown(change.sql)}."
            raise SchemaChangeRefused(what, RELOAD)
        self.targets.maker.adopt(writer, before)
        wanted = cast("TableVersion", altered(self.state.tables, change, group))
        if (changes := self.targets.maker.rules.changes(name)) is not None:
            history_gap.set_aside_unfit(self.targets, changes, name, before)
        beside = None if changes is None else self.targets.writer(changes)
        if beside is not None and not is_in(beside.known, change):
            # First, as what dies between the two is repeated for the table, and passed by here.
            gap = history_gap.named(self.targets, name, beside)
            self._take(beside, changes_version(before), changes_version(wanted), change, group, gap)
            failpoints.reach("changes-evolved")
        return self._take(writer, before, wanted, change, group)

    def _take(
        self,
        writer: TableWriter,
        before: TableVersion,
        wanted: TableVersion,
        change: SchemaChange,
        group: Sequence[Action],
        entries: Mapping[str, str] | None = None,
    ) -> Decision:
        name, schema = before.name, writer.table.schema
        evolution = plan(supplied(before, schema), wanted, group, self.targets.maker.rules, schema)
        upto = max(change.commit_ts, writer.known.resolved_ts if writer.known else 0)
        stamp = self.targets.stamp(name, upto, {DDL: mark(change), **(entries or {})}, writer)
        try:
            done = apply_evolution(writer.table, evolution, stamp, name)
        except SchemaChangeRefused as refusal:
            if self.upstream is None or not evolution.lacks_values:
                raise
            with self.upstream.in_place_of(refusal):
                evolution = self.upstream.completed(evolution, wanted.name, change.commit_ts, self.targets.maker.rules)
                done = apply_evolution(writer.table, evolution, stamp, name)
        writer.reload()
        self.targets.committed(writer, done.snapshot_id)
        return "rewritten" if done.rewritten else "applied"

    def _described(self, name: TableName, after: TableVersion | None) -> TableVersion | None:
        """What a loaded table was before its first row: its newest version that messages described."""
        versions = [version for version in self.state.versions.values() if version.name == name]
        older = [version for version in versions if after is not None and version.version < after.version]
        return max(older, key=lambda version: version.version, default=None)

    def follow(self, version: TableVersion) -> None:
        """Bring a table to the columns that its rows have, in a feed whose DDL do not come.

        Raises:
            SchemaChangeRefused: The difference is one that could also be a rename, or cannot be applied exactly.
        """
        before, writer = self.state.tables.get(version.name), self.targets.writer(version.name)
        if before is None or writer is None or version.keys_only:
            return
        version = with_virtual(version.completed(before), before)
        if before.columns == version.columns:
            return
        evolution = plan(before, version, (), of_schemas(self.targets.maker.rules), writer.table.schema)
        # A step that failed, or a user, has done these.
        schema = writer.table.schema
        evolution = replace(evolution, steps=tuple(step for step in evolution.steps if not step.is_done(schema)))
        if evolution.steps or evolution.refused:
            upto = writer.known.resolved_ts if writer.known else 0
            stamp = self.targets.stamp(version.name, upto, None, writer)
            apply_evolution(writer.table, evolution, stamp, version.name)
            writer.reload()
        self.state.track(version)
