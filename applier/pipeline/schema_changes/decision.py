"""Decides what becomes of a DDL by what is configured and known, and says it as the audit and a refusal do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.config.settings import Policy
from applier.ddl.actions import Action, effect, kind, touches
from applier.ddl.statement_head import FLASHBACK_DATABASE
from applier.errors import DdlStopped, SchemaChangeRefused, TableMismatch
from applier.pipeline.ddl_progress import DdlProgress
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.tables.ddl_stamp import shown
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision, IgnoredFor

UNREAD = "unread"
"""Kind of a statement that is not understood, and whose head leaves its kind open."""

_PASSED = ("applied", "rewritten", "ignored", "skipped")

Refusal = TypeVar("Refusal", bound=SchemaChangeRefused | TableMismatch)

Past: TypeAlias = Mapping[tuple[int, str, TableName, str], Decision]
"""What the policies came to when the feed passed: by commit ts, text, table and kind."""


def past(decisions: Iterable[SchemaDecision]) -> Past:
    """What tables that are brought back do again, whatever `[ddl]` says now.

    What was decided while they were parked or left out says nothing of it.
    """
    own = (item for item in decisions if item.ignored_for in (None, IgnoredFor.CONFIGURED))
    return {_key(item): item.decision for item in own if item.decision in _PASSED}


def _key(item: SchemaDecision) -> tuple[int, str, TableName, str]:
    return item.commit_ts, item.sql, item.table, item.kind


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of actions that are applied together, before their tables are asked.

    Attributes:
        decision: `applied`, `ignored`, `skipped` or `refused`; tables may still refuse what is to be applied.
        ignored_for: Why it is ignored, or stops the feed.
        refusal: Why it is refused.
        is_given_up: It could not be applied in this step: the audit says so already.
    """

    decision: Decision
    ignored_for: IgnoredFor | None = None
    refusal: SchemaChangeRefused | None = None
    is_given_up: bool = False


@dataclass(frozen=True, slots=True)
class DdlRules:
    """Decides on DDL by what is configured and known; reads no table.

    Args:
        policies: Policy per kind of DDL, where it is not `apply`.
        past: Decisions that count more than the policies.
    """

    policies: Mapping[str, Policy]
    include: TableFilter
    past: Past = field(default_factory=dict)

    def decide(
        self, change: SchemaChange, group: Sequence[Action], parked: frozenset[TableName], progress: DdlProgress
    ) -> Verdict:
        """Decide on actions that are applied together; `parked` tables take no DDL."""
        names, done = {name for action in group for name in touches(action)}, effect(group[0])
        if change.id in progress.refused and not names.isdisjoint(parked):
            return Verdict("ignored", IgnoredFor.PARKED, is_given_up=True)
        for table, other in done.exchanged:
            if len({table, other} & parked) == 1:
                what = f"Tables {table} and {other} exchange rows, and one of them is parked: {shown(change.sql)}."
                return Verdict("refused", refusal=SchemaChangeRefused(what, "Both resume together."))
        changed = {table for table, _ in done.moved} or names
        # The name of a parked table is free again after CREATE and DROP TABLE.
        if not (done.created or done.removed) and changed and changed <= parked:
            return Verdict("ignored", IgnoredFor.PARKED)
        databases = () if names else [getattr(action, "database", "") for action in group]
        is_meant = any(map(self.include.admits, names)) or any(map(self.include.admits_database, databases))
        if parked.isdisjoint(done.removed) and not is_meant:
            return Verdict("ignored", IgnoredFor.LEFT_OUT)
        return self._by_policy(change, group, progress)

    def decide_unread(self, ddl: Ddl, parked: frozenset[TableName], progress: DdlProgress) -> Verdict:
        """Ignore an unknown statement that concerns no replicated table, or let a person skip it; else refuse it."""
        change, admits = ddl.barrier.change, self.include.admits
        if ddl.names and not any(admits(name) for name in ddl.names):
            return Verdict("ignored", IgnoredFor.LEFT_OUT)
        if ddl.kind == FLASHBACK_DATABASE and not ddl.names:
            return Verdict("without a table")
        if ddl.names and all(name in parked or not admits(name) for name in ddl.names):
            return Verdict("ignored", IgnoredFor.PARKED)
        before = self._before(unread(ddl, "refused"), progress)
        if self.policies.get(ddl.kind) == "ignore" or before == "ignored":
            return Verdict("ignored", IgnoredFor.CONFIGURED)
        if (change.commit_ts, change.sql) in progress.to_skip:
            return Verdict("skipped")
        return Verdict("refused", refusal=ddl.refused)

    def _by_policy(self, change: SchemaChange, group: Sequence[Action], progress: DdlProgress) -> Verdict:
        kinds = list(dict.fromkeys(kind(action) for action in group))
        policies = {self.policies.get(name, "apply") for name in kinds}
        if (change.commit_ts, change.sql) in progress.to_skip:
            return Verdict("skipped")
        before = self._before(decided(change, group, "applied"), progress)
        if before is not None:
            return Verdict("ignored", IgnoredFor.CONFIGURED) if before == "ignored" else Verdict("applied")
        if "stop" in policies:
            what = f"A DDL of kind {', '.join(kinds)} stops the feed, as configured: {shown(change.sql)}."
            hint = "set its policy under [ddl] to apply or ignore, and start again."
            return Verdict("refused", IgnoredFor.CONFIGURED, DdlStopped(what, hint))
        return Verdict("ignored", IgnoredFor.CONFIGURED) if "ignore" in policies else Verdict("applied")

    def _before(self, part: SchemaDecision, progress: DdlProgress) -> Decision | None:
        """What the policies came to before: when the feed passed, or in a step that failed and did a part of it."""
        return self.past.get(_key(part)) or progress.decided(part)


def unread(ddl: Ddl, decision: Decision) -> SchemaDecision:
    """The row of the audit for a statement that is not understood."""
    change = ddl.barrier.change
    table = ddl.names[0] if ddl.names else TableName(change.database, "")
    return SchemaDecision(change.commit_ts, table, change.sql, ddl.kind or UNREAD, decision)


def decided(
    change: SchemaChange,
    group: Sequence[Action],
    decision: Decision,
    reason: str = "",
    ignored_for: IgnoredFor | None = None,
) -> SchemaDecision:
    """The row of the audit for actions that are applied together."""
    names = [name for action in group for name in touches(action)]
    table = names[0] if names else TableName(change.database, "")
    kinds = ", ".join(dict.fromkeys(kind(action) for action in group))
    words = reason if ignored_for is None else ignored_for.words
    return SchemaDecision(change.commit_ts, table, change.sql, kinds, decision, words, ignored_for=ignored_for)


def at_its_place(refusal: Refusal, change: SchemaChange, config: str, *, may_pass: bool) -> Refusal:
    """The refusal with the statement and its commit ts, and where it `may_pass` with the command for that."""
    text = shown(change.sql)
    which = f"commit ts {change.commit_ts}" if text in refusal.what else f"commit ts {change.commit_ts}: {text}"
    hint = refusal.hint
    # Without the statement a table that does not fit would be no other one.
    if may_pass and not isinstance(refusal, TableMismatch):
        skip = f"applier ddl skip {change.commit_ts} -c {config} --why TEXT"
        skip = f"Or pass this statement without its effect, while no applier runs: {skip}."
        hint = f"{hint.rstrip()} {skip}".strip()
    placed = type(refusal)(f"{refusal.clause} ({which}).", hint)
    placed.ddl, placed.mend = change.commit_ts, refusal.mend
    return placed
