"""DDL that the tables of a changefeed have, and those that a user let pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from applier.changefeed.checkpoint import Moving
from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName
from applier.ddl.late_rows import PastDdl, past
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision, IgnoredFor

_LATEST = 1000
"""DDL that a feed in offset order remembers."""

_TAKEN = ("applied", "rewritten", "without a table")
"""Decisions after which rows from before the DDL are out of place."""

BY_TIME = attrgetter("commit_ts", "sql", "table")
"""Puts the ids of DDL in order."""


@dataclass(slots=True)
class DdlProgress:
    """DDL that were decided at or above the checkpoint.

    Attributes:
        applied: DDL at exactly the checkpoint's resolved ts; in offset order the latest ones.
        to_skip: DDL that a user let pass, by commit ts and text.
        refused: DDL that this step could not apply; the tables that they are for are parked.
        to_move: Names that the DDL of this step free or give away.
        past: DDL of decided ones that rows may come late of, in their order.
        held: Decisions that are in memory alone, so that one commit keeps them; None where each is kept at once.
        altered: By table the commit ts of the newest DDL that this step has come past, and all of its DDL at that ts.
    """

    applied: set[DdlId] = field(default_factory=set)
    to_skip: set[tuple[int, str]] = field(default_factory=set)
    refused: set[DdlId] = field(default_factory=set)
    to_move: Moving = Moving({}, {})  # noqa: RUF009 - a tuple
    past: list[PastDdl] = field(default_factory=list)
    altered: dict[TableName, tuple[int, tuple[DdlId, ...]]] = field(default_factory=dict)
    held: list[SchemaDecision] | None = None
    _lost: tuple[int, frozenset[tuple[int, str]]] = (0, frozenset())
    _done: dict[tuple[int, str], list[SchemaDecision]] = field(default_factory=dict)
    _changed: dict[TableName, int] = field(default_factory=dict)

    def restore(self, applied: Iterable[DdlId], decisions: Iterable[SchemaDecision]) -> None:
        """Return to a checkpoint, which lists what is `applied`, with what was decided at or above it.

        What a user let pass stays so.
        """
        self.applied, self.held, self._lost = set(applied), None, (0, frozenset())
        self._done, self._changed, self.altered, self.refused, self.past = {}, {}, {}, set(), []
        self.note(decisions)

    def is_begun(self, ddl: DdlId) -> bool:
        """True if a step that did not reach its checkpoint applied the DDL, or a part: the rows below it are in."""
        return (ddl.commit_ts, ddl.sql) in self._done or self._is_lost(ddl.commit_ts, ddl.sql)

    def _is_lost(self, commit_ts: int, sql: str) -> bool:
        """Whether a DDL was decided on before the audit was lost."""
        upto, texts = self._lost
        return commit_ts < upto or (commit_ts, sql) in texts

    def had(self, ddl: DdlId) -> bool:
        """Whether the audit says that tables took a DDL: it was applied, and not passed, ignored or skipped."""
        items = self._done.get((ddl.commit_ts, ddl.sql), ())
        return bool(items) and all(item.decision in ("applied", "rewritten") and item.job is None for item in items)

    def is_done(self, decision: SchemaDecision) -> bool:
        """True if such a step applied this part of a DDL."""
        return self.done([decision])[0]

    def done(self, parts: Sequence[SchemaDecision]) -> list[bool]:
        """Which parts of one DDL such a step applied; a name that it moves twice stands for two parts."""
        if parts and self._is_lost(parts[0].commit_ts, parts[0].sql):
            return [True] * len(parts)
        known = self._done.get((parts[0].commit_ts, parts[0].sql), ()) if parts else ()
        left = Counter((item.table, item.kind) for item in known)
        found = []
        for part in parts:
            key = part.table, part.kind
            found.append(left[key] > 0)
            left[key] -= 1
        return found

    def decided(self, part: SchemaDecision) -> Decision | None:
        """What such a step came to by the policies of its time, for a part of a DDL or another one of its kind."""
        known = self._done.get((part.commit_ts, part.sql), ())
        own = (item for item in known if item.ignored_for in (None, IgnoredFor.CONFIGURED) and item.kind == part.kind)
        return next((item.decision for item in own), None)

    def changed_at(self, name: TableName) -> int:
        """Commit ts of the newest decision on a table; 0 without any."""
        return self._changed.get(name, 0)

    @property
    def reached(self) -> int:
        """The highest commit ts of a DDL that is in a table; 0 without any."""
        return max((commit_ts for commit_ts, _ in self._done), default=self._lost[0])

    def note(self, decisions: Iterable[SchemaDecision]) -> None:
        """Take decisions on parts of DDL."""
        found = list(self.past)
        for item in decisions:
            if self.held is not None:
                self.held.append(item)
            if item.decision == "lost":
                upto, texts = self._lost
                one = frozenset({(item.commit_ts, item.sql)}) if item.sql else frozenset()
                self._lost = max(upto, 0 if item.sql else item.commit_ts), texts | one
            elif item.decision == "to skip":
                self.to_skip.add((item.commit_ts, item.sql))
            elif item.decision != "refused":
                self._done.setdefault((item.commit_ts, item.sql), []).append(item)
                self._changed[item.table] = max(item.commit_ts, self._changed.get(item.table, 0))
            if item.decision in _TAKEN or item.ignored_for is IgnoredFor.PARKED:
                found += filter(None, [past(item.commit_ts, item.sql, item.table)])
        self.past = sorted(found, key=attrgetter("commit_ts"))[-_LATEST:]

    def pass_by(self, ddl: DdlId, names: Iterable[TableName]) -> None:
        """Take note that tables have come past a DDL in this step."""
        for name in names:
            ts, known = self.altered.get(name, (0, ()))
            self.altered[name] = (ddl.commit_ts, (*known, ddl) if ts == ddl.commit_ts else (ddl,))

    def at(self, upto: int, ddl: Iterable[DdlId]) -> set[DdlId]:
        """The DDL that the next checkpoint lists.

        Without a watermark no DDL is known to be the last of its time: the latest are kept, as they may come again.
        """
        if upto:
            return {item for item in (*self.applied, *ddl) if item.commit_ts == upto}
        return set(sorted({*self.applied, *ddl}, key=BY_TIME)[-_LATEST:])

    def advance(self, upto: int, applied: set[DdlId]) -> None:
        """Go on from a checkpoint that was written."""
        self.applied, self.altered, self.refused = applied, {}, set()
        self._done = {key: tables for key, tables in self._done.items() if key[0] >= upto}
        self.past = [item for item in self.past if item.commit_ts >= upto]
