"""DDL applied to the Iceberg tables, each in its place, with an audit row for each decision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from applier.changefeed.completeness import Reason, Why
from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.config.settings import Policy
from applier.ddl.actions import Action, Alteration, CreateTable, NoRows, RecoverTable, by_table, effect, kind, touches
from applier.ddl.statement_head import FLASHBACK_DATABASE
from applier.errors import DdlStopped, SchemaChangeRefused, TableMismatch
from applier.pipeline.batches.commit import doubt
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.apply_to_rows import RowDdlApplier, Rows
from applier.pipeline.schema_changes.columns import ColumnDdl
from applier.pipeline.schema_changes.decision import (
    DdlRules,
    Past,
    Refusal,
    Verdict,
    at_its_place,
    decided,
    unread,
)
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.schema_changes.upstream import AskedUpstream
from applier.pipeline.schema_changes.whole_tables import NewTables, TableDdl
from applier.pipeline.state import State
from applier.pipeline.tables import completeness, table_records
from applier.pipeline.tables.changefeed import left_behind
from applier.pipeline.tables.ddl_stamp import DROPPED_AT, is_in, shown
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints, terminal
from applier.runtime.logs import logger
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision, IgnoredFor

_MADE = ("applied", "rewritten")
"""Decisions after which a table has taken the DDL."""


@dataclass(slots=True)
class DdlApplier:
    """Applies DDL to the tables of a changefeed.

    All rows at or below the DDL's commit ts must be in the tables before. A crash at any point leaves in each table
    either the whole effect of a DDL or none of it, and `apply` may be called again.

    Args:
        policies: Policy per kind of DDL, where it is not `apply`.
        past: Decisions that count more than the policies.
        upstream: See `ColumnDdl`.

    Attributes:
        new_tables: Makes many tables at once.
        is_stopped: A refused DDL ends the run, rather than parks its tables.
    """

    targets: TargetTables
    state: State
    policies: Mapping[str, Policy]
    past: Past = field(default_factory=dict)
    upstream: AskedUpstream | None = None
    new_tables: NewTables = field(init=False)
    is_stopped: bool = field(default=False, init=False)
    _rules: DdlRules = field(init=False)
    _tables: TableDdl = field(init=False)
    _columns: ColumnDdl = field(init=False)
    _rows: RowDdlApplier = field(init=False)
    _absent: set[tuple[TableName, str]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._rules = DdlRules(self.policies, self.targets.include, self.past)
        self.new_tables = NewTables(self.targets, self.state, self._rules)
        self._tables = TableDdl(self.targets, self.state)
        self._columns = ColumnDdl(self.targets, self.state, self.upstream)
        self._rows = RowDdlApplier(self.targets, self.state)

    def follow(self, version: TableVersion) -> None:
        """See `ColumnDdl.follow`."""
        self._columns.follow(version)

    def apply(self, ddl: Ddl) -> None:
        """Apply one DDL, and keep what became of it.

        Raises:
            SchemaChangeRefused: It cannot be applied exactly, or the configuration says to stop.
            TableMismatch: The Iceberg table that is there does not fit.
        """
        change = ddl.barrier.change
        if ddl.refused is not None:
            self._pass_unread(ddl)
        made = [decided(change, group, "applied") for group in by_table(ddl.actions)]
        before = self.state.ddl.done(made)
        for group, done in zip(by_table(ddl.actions), before, strict=True):
            if not done:
                failpoints.reach("ddl-due")
            verdict = self._rules.decide(change, group, self.state.parked, self.state.ddl)
            if verdict.ignored_for is IgnoredFor.CONFIGURED and not done and self._is_made(ddl):
                verdict = Verdict("applied")
            known = dict(self.state.completeness) if done else {}
            try:
                with terminal.waiting(f"applying {shown(change.sql)}"):
                    decision = self._carry_out(change, group, verdict, done=done)
            except (SchemaChangeRefused, TableMismatch) as refusal:
                placed = self._placed(ddl, refusal)
                self.new_tables.settle()
                self.state.record([decided(change, group, "refused", placed.what)])
                raise placed from refusal
            if done:
                is_left_out = verdict.ignored_for is IgnoredFor.LEFT_OUT
                there = self._there(group)
                table_records.hold(self.state, self.targets, there, known, is_left_out=is_left_out)
            if decision.decision in _MADE:
                _list(self.targets, group)
            if not done and not verdict.is_given_up:
                failpoints.reach("ddl-applied")
                self.state.record([_located(self.targets, decision, group)])
                if self.state.ddl.held is None:
                    failpoints.reach("ddl-recorded")
                _log(decision)

    def _there(self, group: Sequence[Action]) -> set[TableName]:
        """The tables that a DDL concerns and that are there behind it."""
        found = set[TableName]()
        for action in group:
            done = effect(action)
            found |= {*touches(action)} - {*done.leaving([*touches(action), *self.state.tables])} | {*done.brought}
        return found

    def is_begun(self, ddl: Ddl) -> bool:
        """True if a step that did not reach its checkpoint came as far as the DDL: the rows below it are in the tables.

        After a rename they are under another name, where no reader would look for them.
        """
        change = ddl.barrier.change
        moved = [to for done in ddl.effects for _, to in done.moved]
        if self.state.ddl.is_begun(change.id) or any(self._tables.is_renamed(change, to) for to in moved):
            return True
        writers = [self.targets.writer(name) for name in ddl.names] if self.leaves_rows(ddl) else []
        return any(writer is not None and is_in(writer.known, change) for writer in writers)

    def leaves_rows(self, ddl: Ddl) -> bool:
        """True if rows that lie before a DDL can follow it: only in offset order, which cannot prove that all came.

        A repeated step may read further than the one that failed, in partitions that had not come to the DDL yet.
        """
        are_late = not self.targets.feed.order.parts_at_ddl
        return are_late and all(isinstance(action, Alteration) for action in ddl.actions)

    def _is_made(self, ddl: Ddl) -> bool:
        """Whether a step that failed has made a DDL, or a part of it, and `[ddl]` says otherwise since."""
        gone = {name for done in ddl.effects for name in done.leaving(self.state.tables)}
        for name in {*ddl.names, *(to for done in ddl.effects for _, to in done.moved)}:
            writer, kept = self.targets.writer(name), self.targets.dropped(name)
            if kept is not None and kept.table.setting(DROPPED_AT) == str(ddl.commit_ts):
                return True
            if writer is None:
                if name in gone and name in self.state.tables and name in self.state.unsettled:
                    return True
            elif is_in(writer.known, ddl.barrier.change):
                return True
        return False

    def _placed(self, ddl: Ddl, refusal: Refusal) -> Refusal:
        may_pass = self.is_stopped or isinstance(refusal, DdlStopped) or _waits(ddl, self.state, self.targets)
        return at_its_place(refusal, ddl.barrier.change, self.state.ways.config, may_pass=may_pass)

    def _pass_unread(self, ddl: Ddl) -> None:
        change = ddl.barrier.change
        verdict = self._rules.decide_unread(ddl, self.state.parked, self.state.ddl)
        placed = verdict.refusal and self._placed(ddl, verdict.refusal)
        if verdict.decision == "skipped":
            # A statement that names no table may concern any of them.
            completeness.doubt(self.state, ddl.names or self.state.tables, _skipped(change))
        ignored_for = verdict.ignored_for
        why = placed.what if placed else ignored_for.words if ignored_for else ""
        record = replace(unread(ddl, verdict.decision), reason=why, ignored_for=ignored_for)
        if not self.state.ddl.is_done(record) and ddl.barrier.change.id not in self.state.ddl.refused:
            self.state.record([record])
        if placed:
            raise placed from verdict.refusal
        for name in self.state.completeness.keys() & set(ddl.misnamed):
            self.state.completeness[name] = replace(self.state.completeness[name], is_misnamed=True)
        if ddl.kind == FLASHBACK_DATABASE:
            self._tables.come_back(ddl.names, Reason(Why.DDL, ddl.refused.clause if ddl.refused else ""))
        self.state.tables.move(change, ())
        self.state.keep_versions()

    def _carry_out(
        self, change: SchemaChange, group: Sequence[Action], verdict: Verdict, *, done: bool
    ) -> SchemaDecision:
        if verdict.refusal is not None:
            raise verdict.refusal
        decision = verdict.decision
        if verdict.ignored_for is IgnoredFor.PARKED:
            if not (verdict.is_given_up and effect(group[0]).brought):
                self._tables.pass_parked(change, group, done=done)
            elif isinstance(group[0], CreateTable):
                # Its columns are known, as far as the statement says: a user may adopt what is there.
                self.state.tables.move(change, group)
                self.state.keep_versions()
        elif verdict.ignored_for is not IgnoredFor.LEFT_OUT:
            if decision == "applied":
                decision = self._pass_done(change, group) if done else self._do(change, group)
            elif not done and (kept := left_behind(group, self.state.tables)):
                doubt(self.targets, kept)
            move_past(change, group, self.state, self.targets, ignored=decision == "ignored")
            if decision == "without a table":
                completeness.meet_absent(group[0], self.state, self.targets.include.admits)
            self._tables.follow_include(group)
            if decision == "skipped":
                # Afterwards: a CREATE TABLE or a TRUNCATE that was skipped made no table whole.
                completeness.doubt(self.state, [name for action in group for name in touches(action)], _skipped(change))
        return decided(change, group, decision, ignored_for=verdict.ignored_for)

    def _do(self, change: SchemaChange, group: Sequence[Action]) -> Decision:
        decision: Decision = "applied"
        first = group[0]
        if self._tables.is_absent(change, first):
            decision = "without a table"
        elif isinstance(first, Rows):
            decision = self._rows.apply(change, first)
        elif not isinstance(first, Alteration):
            self._tables.apply(change, first)
        elif not all(isinstance(action, NoRows) for action in group):
            decision = self._columns.evolve(change, group)
        if decision == "without a table":
            self._note_absent(change, touches(first)[0], kind(first))
        return decision

    def _pass_done(self, change: SchemaChange, group: Sequence[Action]) -> Decision:
        for action in group:
            self._tables.pass_done(action)
            if isinstance(action, RecoverTable):
                self._rows.know_again(change, action)
        return "applied"

    def _note_absent(self, change: SchemaChange, name: TableName, what: str) -> None:
        """Log the first DDL of each kind that finds no table of a name."""
        if (name, what) not in self._absent:
            self._absent.add((name, what))
            logger().warning("ddl without a table", table=str(name), kind=what, commit_ts=change.commit_ts)


def _waits(ddl: Ddl, state: State, targets: TargetTables) -> bool:
    """Whether a table that a refused DDL parks waits in front of it, where `ddl skip` finds the DDL."""
    if targets.feed.order.parts_at_ddl and any(done.created for done in ddl.effects):
        return True
    found = [state.completeness.get(name) for name in ddl.names]
    is_placed = any(known is not None and known.position is not None for known in found)
    return is_placed or not ddl.names or any(name in state.tables for name in ddl.names)


def _list(targets: TargetTables, group: Sequence[Action]) -> None:
    """Let the cut list what a DDL made: a repeated step finds it made already, and commits nothing."""
    for name in dict.fromkeys(name for action in group for name in touches(action)):
        writer = targets.writer(name)
        if writer is not None:
            targets.follow(writer)


def _located(targets: TargetTables, decision: SchemaDecision, group: Sequence[Action]) -> SchemaDecision:
    """The decision with the snapshot and the schema of the table that the DDL left."""
    done = effect(group[0])
    names = [*(to for _, to in done.moved), *touches(group[0])]
    is_there = bool(names) and not done.removed and decision.decision in _MADE
    writer = targets.writer(names[0]) if is_there else None
    if writer is None:
        return decision
    schema_id = int(json.loads(writer.table.schema_json)["schema-id"])
    return replace(decision, snapshot_id=writer.table.snapshot_id, schema_id=schema_id)


def _log(made: SchemaDecision) -> None:
    table, said = str(made.table) if made.table.table else made.table.database or None, shown(made.sql)
    logger().info("ddl", table=table, decision=made.decision, kind=made.kind, commit_ts=made.commit_ts, sql=said)


def _skipped(change: SchemaChange) -> Reason:
    return Reason(Why.SKIPPED, str(change.commit_ts))
