"""Finds where a range begins for each of its tables: with their CREATE TABLE, or with the tables as they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.commands.backfill.request import Range
from applier.ddl.actions import Action, CreateTable, effect, kind, touches
from applier.errors import RangeRefused
from applier.pipeline.jobs.copies import gone
from applier.pipeline.schema_changes.decision import past
from applier.pipeline.schema_changes.taken import taken
from applier.pipeline.since import sent_since
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness
from applier.runtime.retry import with_retry
from applier.sink.commit.foreign_commits import Trace, trace


@dataclass(slots=True)
class Beginnings:
    """Where the chosen tables begin in a range.

    A copy of a table has its columns and places of rows of now. So no DDL that changes them may lie among the rows that
    are applied to it again, unless the table was made behind it.
    """

    main: Pipeline
    span: Range
    names: Collection[TableName]
    _ddl: list[tuple[int, Action]] = field(init=False)
    _begun: dict[TableName, completeness.Begun] = field(init=False)
    _applied: set[int] = field(init=False)
    _held: dict[int, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        is_placed = self.main.targets.feed.order.parts_at_ddl
        self._ddl = list(taken(self.main.state)) if is_placed else []
        self._begun = completeness.begun(self.main.state) if is_placed else {}
        # What was ignored or skipped is so again.
        decided = past(self.main.state.control.decisions())
        self._applied = {ts for (ts, *_), decision in decided.items() if decision in ("applied", "rewritten")}

    def of(self, name: TableName) -> FeedPosition:
        """Where a table begins, by its CREATE TABLE where it has no version; RangeRefused where it cannot be built."""
        state, begun = self.main.state, self._begun.get(name)
        made = 0 if begun is None or not begun.is_made else begun.position.ts + 1
        created = {table: action for ts, action in self._ddl if ts == made for table in effect(action).created}
        since = [(ts, action) for ts, action in self._ddl if self.holds(ts) and _concerns(action, name)]
        if begun is not None and begun.position.name in created and self.holds(made):
            self._refuse_model(name, created[begun.position.name])
            self._refuse_strangers(name, [(ts, action) for ts, action in since if ts > made])
            return begun.position
        changed = [(ts, action) for ts, action in since if not effect(action).emptied]
        if changed:
            raise _lies_before(name, changed)
        version, is_emptied = state.tables.get(name), any(ts in self._applied for ts, _ in since)
        if version is None or self.main.targets.writer(name) is None:
            raise gone(self.main.targets.identifier(name))
        if not version.shape.is_idempotent and not is_emptied:
            what = f"Table {name} has no key: rows that are applied again would be there twice."
            begin = "begin the range before its CREATE TABLE, or before a TRUNCATE that emptied it"
            raise RangeRefused(what, f"{begin}; or leave it out in --tables.", [name])
        form = state.tables.partitioning(name)
        return FeedPosition(name, self.span.above, version=version.version, partitioning=form)

    def _refuse_model(self, name: TableName, made: Action) -> None:
        """Refuse a table that was made like another one, whose columns a job does not know that is without it."""
        like = made.like if isinstance(made, CreateTable) else None
        if like is not None and like not in self.names:
            what = f"Table {name} was made LIKE table {like}, which is not built along."
            raise RangeRefused(what, "choose both in --tables; if that one is gone, load the table again.", [name])

    def refuse_set_back(self, name: TableName) -> None:
        """Refuse, by RangeRefused, a table that was set to an older snapshot, and lacks what lies before the range."""
        targets = self.main.targets
        # Judged as it is now, and copied as it was judged.
        targets.close(name)
        targets.damage(name)
        writer = targets.writer(name)
        if writer is None or writer.rolled_back is None:
            return
        found = trace(writer.table.history(), targets.feed.name)
        if due := self._due(name, found):
            shows = f"shows resolved ts {found.resolved_ts}" if found.resolved_ts else "was set to an older snapshot"
            what = f"Table {writer.table} {shows}: it lacks rows from before the range."
            back = "set the table to its newest snapshot again (system.set_current_snapshot)"
            raise RangeRefused(what, f"begin the range there, with --from {due}; or {back}.", [name])

    def _due(self, name: TableName, found: Trace) -> str:
        """Where the range has to begin for a table that shows this; "" where it begins early enough."""
        span = self.span
        if not self.main.targets.feed.order.has_watermark:
            known = AppliedOffsets.from_text(found.offsets or "{}")
            due = {place: min(start, known.whole(place)) for place, (start, _) in sorted(span.spans.items())}
            is_early = all(start == due[place] for place, (start, _) in span.spans.items())
            return "" if is_early else ",".join(f"{place.topic}:{place.partition}:{at}" for place, at in due.items())
        shown = found.resolved_ts or 0
        # Rows up to a DDL are committed under its commit ts before it is applied.
        is_in_doubt = any(ts == shown and _concerns(action, name) for ts, action in self._ddl)
        if self.holds(shown) or (shown == span.above and not is_in_doubt):
            return ""
        return str(shown - is_in_doubt) if shown else "beginning"

    def _refuse_strangers(self, name: TableName, ddl: Collection[tuple[int, Action]]) -> None:
        """Refuse a DDL by which rows came from a table that is not built along."""
        changed = [(ts, action) for ts, action in ddl if not effect(action).emptied]
        if any(effect(action).exchanged and not set(touches(action)) <= set(self.names) for _, action in changed):
            raise _lies_before(name, changed)

    def holds(self, commit_ts: int) -> bool:
        """Whether the messages of a commit ts are certainly in the range, by the time at which they were written."""
        if self.span.above:
            return commit_ts > self.span.above
        if commit_ts not in self._held:
            source = self.main.source
            found = with_retry(lambda: sent_since(source, commit_ts))
            firsts = {place: span.start for place, span in with_retry(source.bounds).items()}
            self._held[commit_ts] = all(
                begin <= (at := found.get(place, end)) and not 0 < firsts.get(place, 0) == at < end
                for place, (begin, end) in self.span.spans.items()
            )
        return self._held[commit_ts]


def changed_since(main: Pipeline, name: TableName, commit_ts: int) -> bool:
    """Whether a DDL has changed the columns of a table, or places of its rows, since rows of a commit ts."""
    ddl = [action for ts, action in taken(main.state) if ts >= commit_ts and not effect(action).emptied]
    return any(_concerns(action, name) for action in ddl)


def _concerns(action: Action, name: TableName) -> bool:
    """Whether an action changes columns or rows of a table."""
    return name in touches(action) or name in effect(action).leaving([name])


def _lies_before(name: TableName, ddl: Sequence[tuple[int, Action]]) -> RangeRefused:
    """The refusal of a range with these DDL; it names the last, as a range that begins after another holds it still."""
    commit_ts, action = max(ddl, key=lambda item: item[0])
    what = f"Rows of table {name} lie before a DDL of kind {kind(action)} at commit ts {commit_ts}."
    begin = f"begin the range after it, with --from {commit_ts}, or before the table's CREATE TABLE"
    return RangeRefused(what, f"{begin}; or leave the table out in --tables.", [name])
