"""A job of a backfill: applies a range to copies of tables, compares them, and shows them, or in a branch."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from applier.changefeed.checkpoint import UNKNOWN, Resuming, Tracked
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.commands.backfill.beginnings import Beginnings
from applier.commands.backfill.compare import compare
from applier.commands.backfill.report import STOPPED, Difference, Outcome
from applier.commands.backfill.request import OPEN, Range, Request
from applier.commands.follower import Driver
from applier.errors import ConfigError, RangeRefused
from applier.pipeline.jobs.copies import Copies, CopyOutdated, forgetting
from applier.pipeline.jobs.job import JobRun, job, progress
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables import completeness, history_gap
from applier.runtime import failpoints, terminal
from applier.runtime.figures import counted
from applier.runtime.logs import logger
from applier.runtime.retry import with_retry
from applier.sink.commit.foreign_commits import BACKFILL
from applier.sink.iceberg import clone
from applier.sink.iceberg.table import Table


@dataclass(slots=True, kw_only=True)
class HeldJob(JobRun):
    """A job of a backfill; the pipeline of the changefeed takes no step meanwhile.

    `begun_at` are the tables, by the keys of the places at which they begin.
    """

    span: Range
    branch: str
    begun_at: Mapping[tuple[object, ...], TableName]
    is_held: ClassVar[bool] = True

    def names(self) -> Mapping[tuple[object, ...], TableName]:
        """Those that the range was given for."""
        return self.begun_at

    @property
    def goal(self) -> int:
        """Commit ts up to which rows count: what lies beyond the checkpoint is left to `run`."""
        return min(self.span.upto, self.main.state.resolved_ts)

    def step(self) -> Step:
        """Apply the next window of the range."""
        ends = self.span.ends
        if not self.main.targets.feed.order.has_watermark:
            ends = {place: min(end, self.main.state.next_offsets.get(place, end)) for place, end in ends.items()}
        return self.read(self.goal, ends)

    def is_over(self) -> bool:
        """Whether the copies have all rows up to the goal; without a watermark the ends of the range show it."""
        return self.main.targets.feed.order.has_watermark and self.state.resolved_ts >= self.goal

    def refuse_short(self) -> None:
        """Refuse, by RangeRefused, tables whose CREATE TABLE was not read."""
        for own, known in self.state.completeness.items():
            if own not in self.state.tables and known.origin is not None:
                what = f"The range does not hold the CREATE TABLE of {own} at commit ts {known.origin.ts + 1}."
                raise RangeRefused(what, "let it end behind that, or load the table again.", [own])

    def copy(self, name: TableName) -> Table | None:
        """The copy of a table; None for one that was not made."""
        own = next(own for own, shown in self.members.items() if shown == name)
        return self.main.targets.catalog.load(self.copies.targets.identifier(own))

    def keep_in_branch(self, name: TableName) -> None:
        """Let the branch of a table show its copy.

        Raises:
            RangeRefused: The table or its copy is gone, or the table was written meanwhile.
        """
        own = next(own for own, shown in self.members.items() if shown == name)
        copies, catalog = self.copies, self.main.targets.catalog
        table = catalog.load(self.main.targets.identifier(name))
        if table is None:
            what = f"Table {'.'.join(self.main.targets.identifier(name))} is not in the catalog: no branch can show it."
            raise RangeRefused(what, "give the range with --repair, which makes the table anew.")
        self._copy_to_show(name)
        if copies.is_outdated(name, own):
            raise RangeRefused(f"Table {table} was written while it was brought back.", "give the same command again.")
        copies.settle(name, own, self.goal, {BACKFILL: self.branch})
        copy = self._copy_to_show(name)
        self.main.targets.confirm()
        clone.show_in_branch(table, copy, self.branch)

    def _copy_to_show(self, name: TableName) -> Table:
        copy = self.copy(name)
        if copy is None:
            raise RangeRefused(f"Others have dropped the copy of table {name}.", "give the same command again.")
        return copy

    def publish(self) -> None:
        """Let readers see the copies, and the changefeed go on with them; may be called again after a crash.

        It raises RangeRefused where another writer changed a table since it was copied.
        """
        state, main = self.state, self.main
        members = self.members
        for own, name in members.items():
            self.copies.settle(name, own, main.state.resolved_ts, {})
            state.completeness[own] = self._ended(state.completeness[own], main.state.completeness.get(name, LIVE))
        # Before any is shown: after a crash `run` may go on with what is shown, without this job.
        letters = [name for own, name in members.items() if state.completeness[own].why is Why.LETTERS]
        completeness.doubt(main.state, letters, Reason(Why.LETTERS))
        completeness.keep(main.state, main.targets)
        try:
            self.handover.show(members)
        except CopyOutdated as error:
            completeness.write(main.state, main.targets, None)
            raise RangeRefused(f"{error.what}.", "give the same command again.") from None
        for name in members.values():
            table = main.targets.catalog.load(main.targets.identifier(name))
            if table is not None:
                clone.drop_branch(table, self.branch)

    def _ended(self, own: Completeness, before: Completeness) -> Completeness:
        """What a table is that readers see as it was built."""
        if own.is_live and not before.is_live:
            return Completeness(Reason(Why.REPAIRED, self.span.text), origin=own.origin)
        is_anew = own.origin is not None and own.origin.version is None
        # Of a table that was built on what it was, changes find no row that later ones have removed.
        counts = is_anew or own.why is Why.LETTERS
        return own if counts and not own.is_live else replace(before, origin=own.origin)


def held(main: Pipeline, request: Request, span: Range, names: Sequence[TableName]) -> HeldJob:
    """Begin a job, or go on with that of a process which was doing the same.

    Raises:
        RangeRefused: A table cannot be built from the range, or has a branch of that name which no backfill made.
        TransientError: Catalog or source do not answer.
    """
    for name in names:
        _refuse_branch(main, name, request.branch)
    beginnings = Beginnings(main, span, names)
    origins = {name: beginnings.of(name) for name in names}
    hold, last = _identity(main, request, names), main.state.checkpoint
    resuming = last.resuming
    if resuming is not None and not resuming.hold:
        what = "Parked tables are being brought back."
        raise RangeRefused(what, f"let `applier run -c {main.config.path} --once` end that first.")
    names_at = {origin.key: name for name, origin in origins.items()}
    kind = partial(HeldJob, span=span, branch=request.branch, begun_at=names_at)
    if resuming is not None and resuming.hold == hold and resuming.progress.lease.epoch > last.lease.fenced:
        found = job(kind, main, resuming)
        copied = [(own, name) for own, name in found.members.items() if own in found.state.tables]
        if not any(found.copies.is_outdated(name, own) for own, name in copied):
            logger().info("backfill goes on", branch=request.branch, resolved_ts=resuming.progress.resolved_ts)
            return found
        logger().info("branch is built anew", branch=request.branch)
    with forgetting(main.targets):
        resuming = _begun(beginnings, hold, origins)
    return job(kind, main, resuming)


def _begun(beginnings: Beginnings, hold: str, origins: Mapping[TableName, FeedPosition]) -> Resuming:
    """A new job: its copies are there before the checkpoint names it."""
    main, span = beginnings.main, beginnings.span
    number, last, tables = uuid.uuid4().hex[:8], main.state.checkpoint, {}
    copies = Copies(main.targets, number)
    for name, origin in origins.items():
        history_gap.note_dropped(main.targets, name)
        topic, known = main.state.topics.get(name, ""), Completeness(Reason(Why.NOT_READ), origin=origin)
        if origin.version is None:
            tables[origin.name] = Tracked(UNKNOWN, topic, None, known)
            continue
        beginnings.refuse_set_back(name)
        copies.again(name, span.above)
        before = main.state.completeness.get(name, LIVE)
        loaded = main.state.loaded.get(name, 0)
        tables[name] = Tracked(origin.version, topic, origin.partitioning, replace(before, origin=origin), loaded)
    begin = progress(last, span.above, {place: Reading(start) for place, (start, _) in span.spans.items()})
    resuming = Resuming(number, replace(begin, tables=tables, feed=last.feed), hold)
    completeness.write(main.state, main.targets, resuming)
    return resuming


def _identity(main: Pipeline, request: Request, names: Sequence[TableName]) -> str:
    """What makes a backfill the same as another: the range, the tables, and how far the changefeed is."""
    state = main.state
    asked = (request.begin.text, request.end.text, sorted(names), state.resolved_ts, sorted(state.next_offsets.items()))
    return f"{request.branch} {hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}"


def _refuse_branch(main: Pipeline, name: TableName, branch: str) -> None:
    """Refuse, by RangeRefused, a branch that others have made."""
    table = main.targets.catalog.load(main.targets.identifier(name))
    head = None if table is None else next(table.history(branch), None)
    if table is not None and head is not None and BACKFILL not in head.summary:
        what = f"Table {table} has a branch {branch} that no backfill made."
        raise RangeRefused(what, "give another name with --branch, or drop that one.")


def refuse_parked(state: State, names: Sequence[TableName]) -> None:
    """Refuse, by RangeRefused, tables that lack DDL: rows alone do not make up for them."""
    parked = sorted(name for name in names if name in state.parked)
    if parked:
        name = parked[0]
        what = f"Table {name} is parked: the DDL since then are missing from it, which no range of rows makes up for."
        raise RangeRefused(what, state.ways.of(parked[:1], state.completeness[parked[0]]))


def refuse_short(main: Pipeline, request: Request, span: Range, names: Sequence[TableName]) -> None:
    """Refuse, before anything is read, a range of which nothing is covered (ConfigError), or that ends before what the
    tables have (RangeRefused).
    """
    state = main.state
    refuse_parked(state, names)
    ahead = sorted(name for name in names if name in state.ahead or name in state.unsettled)
    if ahead:
        what = f"Table {ahead[0]} is ahead of the checkpoint, as a step failed half way."
        raise RangeRefused(what, "finish it first, with `applier run -c FILE --once`.")
    if main.targets.feed.order.has_watermark and span.above >= state.resolved_ts:
        begins = f"The range begins at {span.above}, beyond resolved ts {state.resolved_ts} of the tables"
        raise ConfigError([f"{begins}: nothing is applied twice."])
    if not request.publish:
        return
    if span.upto != OPEN and span.upto < state.resolved_ts:
        raise _short(f"at resolved ts {span.upto}", f"resolved ts {state.resolved_ts}")
    for place, due in sorted(state.next_offsets.items()):
        if place in span.spans and span.spans[place].end < due:
            raise _short(f"at offset {span.spans[place].end} of {place}", f"offset {due}")


def _short(end: str, covered: str) -> RangeRefused:
    what = f"The range ends {end}, but the tables have what comes up to {covered}: older values would win."
    way_out = "let it end there or later; or look at what it gives, with --branch and without --publish."
    return RangeRefused(what, way_out)


def build(main: Pipeline, request: Request, span: Range, names: Sequence[TableName], driver: Driver) -> Outcome:
    """Build copies, compare them with their tables, and show them; raises RangeRefused where the result would be wrong.

    A process that is killed on the way goes on when the same is asked for again, unless the changefeed has moved on.
    """
    refuse_short(main, request, span, names)
    with terminal.waiting("copying the tables"):
        job = held(main, request, span, names)
    if not driver.drive(lambda: with_retry(job.step), job.is_over):
        return Outcome([STOPPED], is_done=False)
    job.refuse_short()
    failpoints.reach("range-built")
    differences: list[Difference] = []
    with terminal.progress("comparing the tables", "tables") as bar:
        for name in names:
            bar(len(differences), len(names))
            differences.append(_compared(job, name))
    count = counted(len(names), "table")
    built = f"The range {span.text} is built in branch {request.branch} of {count}."
    if not request.publish:
        for name in names:
            job.keep_in_branch(name)
        shown = f"--publish shows it; until then `VERSION AS OF '{request.branch}'` reads it."
        return Outcome([built, shown], differences=differences)
    _refuse_short_build(main, job, differences)
    with terminal.waiting("showing the tables to readers"):
        job.publish()
    return Outcome([built, "Readers see it now."], differences=differences)


def _compared(job: HeldJob, name: TableName) -> Difference:
    known, copy = job.main.state.tables.get(name), job.copy(name)
    identifier = job.main.targets.identifier(name)
    table = job.main.targets.catalog.load(identifier)
    return compare(".".join(identifier), table, copy, known.key if known else ())


def _refuse_short_build(main: Pipeline, job: HeldJob, differences: Sequence[Difference]) -> None:
    reached = job.state.resolved_ts
    is_behind = main.targets.feed.order.has_watermark and reached < main.state.resolved_ts
    if is_behind and not all(item.is_equal for item in differences):
        raise _short(f"at resolved ts {reached}", f"resolved ts {main.state.resolved_ts}")
