"""DDL applied to the Iceberg tables, each in its place, with an audit row for each decision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from applier.changefeed.completeness import LEFT_OUT, SKIPPED
from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.settings import Policy, TablesSection
from applier.ddl import actions as say
from applier.ddl.actions import kind, touches
from applier.errors import DdlStopped, SchemaChangeRefused
from applier.pipeline.schema_changes.apply_to_rows import RowDdlApplier
from applier.pipeline.schema_changes.columns import ColumnDdl
from applier.pipeline.schema_changes.decision import at_its_place, decided
from applier.pipeline.schema_changes.parked import PARKED, ParkedDdl
from applier.pipeline.schema_changes.stamp import DROPPED_AT, is_in, shown
from applier.pipeline.schema_changes.statements import Ddl
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.schema_changes.whole_tables import TableDdl
from applier.pipeline.state import State
from applier.pipeline.tables import completeness
from applier.pipeline.tables.batch_commit import doubt
from applier.pipeline.tables.filtered import left_behind
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.runtime.logs import logger
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision

_Evolves: TypeAlias = say.ColumnAction | say.IndexAction | say.SetComment | say.NoRows
"""Actions that leave the rows of a table where they are."""

_NEEDS_TABLE = say.TruncateTable | say.RenameTable | say.DropTable | say.DropPartitions | say.TruncatePartitions
"""Actions that have no effect, and no error, where their table is not here."""

_CONFIGURED = "configured under [ddl]"
_MADE = ("applied", "rewritten")
"""Decisions after which a table has taken the DDL."""

_UNREAD = "unread"
"""Kind of a statement that is not understood, and whose head leaves its kind open."""


@dataclass(slots=True)
class DdlApplier:
    """Applies DDL to the tables of a changefeed.

    All rows at or below the DDL's commit ts must be in the tables before. A crash at any point leaves in each table
    either the whole effect of a DDL or none of it, and `apply` may be called again.

    Args:
        targets: The tables.
        state: What is known of them, and where decisions are kept.
        policies: Policy per kind of DDL, where it is not `apply`.
        settings: Which tables are meant, and what becomes of dropped ones.
        rules: How types map.
    """

    targets: TargetTables
    state: State
    policies: Mapping[str, Policy]
    settings: TablesSection
    rules: TypeRules
    _tables: TableDdl = field(init=False)
    _columns: ColumnDdl = field(init=False)
    _parked: ParkedDdl = field(init=False)
    _absent: set[tuple[TableName, str]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._tables = TableDdl(self.targets, self.state, self.settings)
        self._columns = ColumnDdl(self.targets, self.state, self.rules)
        self._parked = ParkedDdl(self.targets, self.state, self.settings, self._tables)

    def follow(self, version: TableVersion) -> None:
        """Bring a table to the columns that its rows have, in a feed whose DDL do not come.

        Raises:
            SchemaChangeRefused: The difference is one that could also be a rename, or cannot be applied exactly.
        """
        self._columns.follow(version)

    def apply(self, ddl: Ddl) -> None:
        """Apply one DDL, and keep what became of it.

        Raises:
            SchemaChangeRefused: It cannot be applied exactly, or the configuration says to stop.
        """
        change = ddl.barrier.change
        if ddl.refused is not None:
            self._pass_unread(ddl, ddl.refused)
        for group in _by_table(ddl.actions):
            done = self.state.ddl.is_done(decided(change, group, "applied"))
            if not done:
                failpoints.reach("ddl-due")
            try:
                decision = self._decide(change, group, done=done)
            except SchemaChangeRefused as refusal:
                placed = at_its_place(refusal, change, self.state.config_path)
                self.state.record([decided(change, group, "refused", placed.what)])
                raise placed from refusal
            if decision.decision in _MADE:
                self._list(group)
            if not done and not self._parked.is_given_up(change, group):
                failpoints.reach("ddl-applied")
                self.state.record([self._located(decision, group)])
                failpoints.reach("ddl-recorded")

    def _list(self, group: Sequence[say.Action]) -> None:
        """Let the cut list what a DDL made: a repeated step finds it made already, and commits nothing."""
        for name in dict.fromkeys(name for action in group for name in touches(action)):
            writer = self.targets.writer(name)
            if writer is not None and writer.table.setting(DROPPED_AT) is None:
                self.targets.committed(writer, writer.head)

    def _pass_unread(self, ddl: Ddl, refusal: SchemaChangeRefused) -> None:
        """Pass an unknown statement that concerns no replicated table, or that a person skips; else refuse."""
        change = ddl.barrier.change
        table = ddl.names[0] if ddl.names else TableName(change.database, "")
        admits = TableFilter(self.settings.include).admits
        decision: Decision = "refused"
        reason = (placed := at_its_place(refusal, change, self.state.config_path)).what
        if ddl.names and not any(admits(name) for name in ddl.names):
            decision, reason = "ignored", LEFT_OUT
        elif ddl.names and all(name in self.state.parked or not admits(name) for name in ddl.names):
            decision, reason = "ignored", PARKED
        elif self.policies.get(ddl.kind) == "ignore":
            decision, reason = "ignored", _CONFIGURED
        elif (change.commit_ts, change.sql) in self.state.ddl.to_skip:
            decision, reason = "skipped", ""
            # A statement that names no table may concern any of them.
            completeness.doubt(self.state, ddl.names or self.state.tables, _skipped(change))
        record = SchemaDecision(change.commit_ts, table, change.sql, ddl.kind or _UNREAD, decision, reason)
        if not self.state.ddl.is_done(record) and ddl.barrier.id not in self.state.ddl.refused:
            self.state.record([record])
        if decision == "refused":
            raise placed from refusal
        if change.after is not None and change.after.name in self.state.tables:
            self.state.tables.put(change.after.declared(self.state.tables.get(change.after.name)))
            self.state.keep_versions()

    def _located(self, decision: SchemaDecision, group: Sequence[say.Action]) -> SchemaDecision:
        """The decision with the snapshot and the schema of the table that the DDL left."""
        names = [name for action in group for name in touches(action)]
        is_rename = isinstance(group[0], say.RenameTable)
        is_gone = not names or isinstance(group[0], say.DropTable)
        writer = None if is_gone else self.targets.writer(names[1] if is_rename else names[0])
        if writer is None or decision.decision not in _MADE:
            return decision
        schema_id = int(json.loads(writer.table.schema_json)["schema-id"])
        return replace(decision, snapshot_id=writer.table.snapshot_id, schema_id=schema_id)

    def is_begun(self, ddl: Ddl) -> bool:
        """True if a step that did not reach its checkpoint came as far as the DDL: the rows below it are in the tables.

        After a rename they are under another name, where no reader would look for them.
        """
        renames = [action for action in ddl.actions if isinstance(action, say.RenameTable)]
        change = ddl.barrier.change
        if self.state.ddl.is_begun(ddl.barrier.id) or any(
            self._tables.is_renamed(change, action) for action in renames
        ):
            return True
        writers = [self.targets.writer(name) for name in ddl.names] if self.leaves_rows(ddl) else []
        return any(writer is not None and is_in(writer.known, change) for writer in writers)

    def leaves_rows(self, ddl: Ddl) -> bool:
        """True if rows that lie before a DDL can follow it: only in offset order, where nothing shows that all came.

        A repeated step may read further than the one that failed, in partitions that had not come to the DDL yet.
        """
        return not self.targets.feed.ordered and all(isinstance(action, _Evolves) for action in ddl.actions)

    def _decide(self, change: SchemaChange, group: Sequence[say.Action], *, done: bool) -> SchemaDecision:
        if self._parked.takes(change, group):
            return decided(change, group, "ignored", PARKED)
        if not self._is_ours(group):
            return decided(change, group, "ignored", LEFT_OUT)
        decision = self._policy(change, group)
        if decision == "applied" and not done:
            decision = "without a table" if self._is_without_table(change, group[0]) else self._do(change, group)
        if decision in ("ignored", "skipped") and not done and (kept := left_behind(group, self.state.tables)):
            doubt(self.targets, kept)
        move_past(change, group, self.state, self.targets, ignored=decision == "ignored")
        if decision == "skipped":
            # Afterwards: a CREATE TABLE or a TRUNCATE that was skipped made no table whole.
            completeness.doubt(self.state, [name for action in group for name in touches(action)], _skipped(change))
        return decided(change, group, decision, _CONFIGURED if decision == "ignored" else "")

    def _policy(self, change: SchemaChange, group: Sequence[say.Action]) -> Decision:
        """What the configuration, or a user, says about a DDL.

        Raises:
            DdlStopped: It stops the changefeed.
        """
        kinds = list(dict.fromkeys(kind(action) for action in group))
        policies = {self.policies.get(name, "apply") for name in kinds}
        if (change.commit_ts, change.sql) in self.state.ddl.to_skip:
            return "skipped"
        if "stop" in policies:
            what = f"A DDL of kind {', '.join(kinds)} stops the feed, as configured: {shown(change.sql)}."
            raise DdlStopped(what, "set its policy under [ddl] to apply or ignore, and start again.")
        return "ignored" if "ignore" in policies else "applied"

    def _is_without_table(self, change: SchemaChange, action: say.Action) -> bool:
        """Whether the table that an action changes is not here, neither by what is known nor in the catalog."""
        if not isinstance(action, _NEEDS_TABLE):
            return False
        name = action.table
        if name in self.state.tables or self.targets.writer(name) is not None:
            return False
        if isinstance(action, say.RenameTable) and (
            self._tables.is_renamed(change, action) or not TableFilter(self.settings.include).admits(name)
        ):
            return False
        self._note_absent(change, name, action)
        return True

    def _note_absent(self, change: SchemaChange, name: TableName, action: say.Action) -> None:
        """Log the first DDL of each kind that finds no table of a name."""
        if (name, kind(action)) not in self._absent:
            self._absent.add((name, kind(action)))
            logger().warning("ddl without a table", table=str(name), kind=kind(action), commit_ts=change.commit_ts)

    def _is_ours(self, group: Sequence[say.Action]) -> bool:
        admits = TableFilter(self.settings.include)
        names = [name for action in group for name in touches(action)]
        if isinstance(group[0], say.DropTable) and names[0] in self.state.parked:
            return True
        if names:
            return any(admits.admits(name) for name in names)
        return any(admits.admits_database(getattr(action, "database", "")) for action in group)

    def _do(self, change: SchemaChange, group: Sequence[say.Action]) -> Decision:
        match group[0]:
            case say.CreateTable() as create:
                self._tables.create(change, create)
            case say.DropTable(table):
                self._tables.drop(table, change.commit_ts)
            case say.DropDatabase(database):
                for name in self.state.tables.of_database(database):
                    self._tables.drop(name, change.commit_ts)
            case say.TruncateTable(table):
                self._tables.truncate(change, table)
            case say.RenameTable() as rename:
                self._tables.rename(change, rename)
            case say.RecoverTable() | say.DropPartitions() | say.TruncatePartitions() | say.ExchangePartition():
                return RowDdlApplier(self.targets, self.state, self.settings).apply(change, group[0])
        if any(isinstance(action, say.ColumnAction | say.IndexAction | say.SetComment) for action in group):
            decision = self._columns.evolve(change, group)
            if decision == "without a table":
                self._note_absent(change, touches(group[0])[0], group[0])
            return decision
        return "applied"


def _skipped(change: SchemaChange) -> str:
    return f"{SKIPPED} (commit ts {change.commit_ts})"


def _by_table(actions: Sequence[say.Action]) -> list[list[say.Action]]:
    """Runs of actions that must be applied together: the specifications of one ALTER TABLE."""
    return [list(run) for _, run in groupby(actions, key=_together)]


def _together(action: say.Action) -> tuple[object, ...]:
    return ("alter", touches(action)) if isinstance(action, _Evolves) else ("own", id(action))
