"""What a window holds: row passes, repeated until schemas, DDL and the watermark that they need are all known.

The common window takes one pass. Another one is needed only if a message brought something that changes how the rows
of this very window must be read: a schema that rows waited for, a DDL among them, a message that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.window import Window
from applier.consume.runner import Ran, Runner
from applier.consume.source import Source
from applier.consume.window_size import Limits, WindowTooLargeError
from applier.ddl.late_rows import lates
from applier.decode.decoder import Decoder
from applier.decode.protocols import decoder_of_thread
from applier.errors import DecodeError, SchemaUnknown
from applier.order.barrier import cut, in_order
from applier.order.feed_order import FeedOrder, Passages, passages
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.reduced_rows import ReducedRows
from applier.pipeline.scan.statements import Ddl, Taken, read_all
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks
from applier.pipeline.scan.watermarks import mark, resolved_in, resolved_near_ends
from applier.pipeline.scan.window_scan import NO_WATERMARK, WindowScan
from applier.pipeline.scan.window_tables import met, shown, spelling, take_keys, typed_by, with_rows
from applier.pipeline.state import State
from applier.runtime import failpoints
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from applier.runtime.retry import Deadline

HEAD_MESSAGES = 1_000
"""Messages at the start of a first window's partitions that are searched for CREATE TABLE."""

_MAX_PASSES = 100

_NO_LIMITS = Limits()

Run = Callable[[DecodeTask], Ran[TaskResult]]
"""Runs a row pass over the messages of a window."""


@dataclass(frozen=True, slots=True)
class WindowScanner:
    """Scans windows of one changefeed.

    Args:
        runner: Runs row passes over the messages of a source.
        template: A row pass with everything that does not change between windows.
        rows_describe: True if rows or a registry describe the columns, so that the types their DDL gave count more.
        keep_bad: True to set bad messages aside; False to end the window before the first.
        parks: True to leave out a table with a message that cannot be applied, rather than to end the window.
        chosen: Chooses the DDL to apply, where only some tables are followed; None for all.
        taken: Shows the order of renames that involve tables not known here.
        ceiling: Commit ts above which nothing is due, however far the watermark is.
        schema_deadline: For schemas that the registry does not know yet.
        unsplit: As `Limits.unsplit`: topics that a window has shown to be such.
        reduced: Reads the rows that messages hold by their key alone; None where such a row is refused.
    """

    runner: Runner
    template: DecodeTask
    rows_describe: bool
    keep_bad: bool
    parks: bool = False
    chosen: Callable[[Sequence[Ddl]], Sequence[Ddl]] | None = None
    taken: Taken | None = None
    ceiling: int = NO_WATERMARK
    schema_deadline: Deadline = field(default_factory=Deadline)
    unsplit: set[str] = field(default_factory=set)
    reduced: ReducedRows | None = None

    @property
    def source(self) -> Source:
        """Where the messages are."""
        return self.runner.source

    def decoder(self) -> Decoder:
        """A decoder of the feed."""
        return decoder_of_thread(self.template.protocol, self.template.options)

    def may_come(self, error: DecodeError | None) -> bool:
        """Whether a message may be read yet that cannot be now: its schema may be late in the registry."""
        return isinstance(error, SchemaUnknown) and not self.schema_deadline.is_over(error.schema_id)

    def scan(
        self,
        window: Window,
        state: State,
        ends: Mapping[TopicPartition, int],
        stopwatch: Stopwatch,
        *,
        where: Where,
        limits: Limits = _NO_LIMITS,
    ) -> WindowScan:
        """Find out what a window holds; reads only, and nothing of the state changes meanwhile. `ends` as `WindowScan`.

        Raises:
            WindowTooLargeError: The window has more bytes.
            TransientError: The source, the registry, the claim-check storage or TiDB does not answer.
            SchemaChangeRefused: A DDL statement that cannot be understood.
        """
        counted = {version.name for version in state.versions.values() if not version.shape.is_idempotent}
        self.unsplit.update(state.topics[name] for name in counted & state.topics.keys())
        limits = replace(limits, unsplit=frozenset(self.unsplit), piece_rows=self.template.limits.piece_rows)
        job = replace(self.template, order=self._order(state), marks=self._marks(state), limits=limits)
        found = WindowScan(window, dict(state.checkpoint.resolved), job, ends, ceiling=self.ceiling)
        found.job = replace(job, marks=replace(job.marks, shown=shown(found, state)))
        with stopwatch.stage("read"):
            run = self._reader(found, state, where)
        failpoints.reach("read")
        if not state.declared:
            with stopwatch.stage("decode"):
                self._peek(found, state)
        for _ in range(_MAX_PASSES):
            found.upto = self._upto(found, state)
            with stopwatch.stage("decode"):
                results, found.kept = run(found.task(state))
                found.results = TaskResult.sum(results)
            revised = self._revise(found, state)
            if revised is None and self.reduced is not None:
                with stopwatch.stage("decode"):
                    revised = self._fill(found, state, self.reduced)
            if revised is None:
                found.hold_set_aside()
                return found
            if revised:
                # What lies beyond the new end is not read: its resolved ts would claim rows that are not applied.
                found.resolved, found.ceiling, found.waiting = dict(state.checkpoint.resolved), self.ceiling, []
                where = where if found.window.ranges else Where.HERE  # Tasks have nothing to read.
                with stopwatch.stage("read"):
                    run = self._reader(found, state, where)
        msg = f"a window of {window.messages} messages did not settle in {_MAX_PASSES} passes"
        raise AssertionError(msg)

    def _order(self, state: State) -> FeedOrder:
        """What places the rows of a window; a table that is ahead of the others has its own resolved ts."""
        loaded = {name: ts for name, ts in state.loaded.items() if ts > state.resolved_ts}
        sent = passages(state.checkpoint.feed.passed, ())
        return type(self.template.order)(state.resolved_ts, {**state.ahead, **loaded}, state.covered, sent)

    def _marks(self, state: State) -> DdlMarks:
        """What DDL of earlier steps say of rows."""
        names = {name for name, _ in state.versions}
        late = {} if self.template.order.parts_at_ddl else lates(state.ddl.past, state.ddl.applied, names)
        if not self.rows_describe:
            return DdlMarks(late=late)
        changed = {name: at for name in state.tables if (at := state.changed_at(name))}
        return DdlMarks(typed=typed_by((), state.declared), changed=changed, late=late)

    def _reader(self, found: WindowScan, state: State, where: Where) -> Run:
        """Search the tails for resolved ts, and bind the messages of the window to a function that runs row passes."""
        window = found.window
        if where is Where.HERE:
            messages = self.runner.read(window)
            self._resolve(found, state, lambda tails: tails.among(messages))
            return lambda job: Ran([job(messages.items())])
        self._resolve(found, state, self.source.collect)
        return lambda job: self.runner.run(window, job, where)

    def _peek(self, found: WindowScan, state: State) -> None:
        """Learn from its first messages what tables a first window makes.

        It is the largest, and rows whose values do not fit what they alone say would be sought, and all read again.
        """
        found.upto = self._upto(found, state)
        try:
            messages = self.source.collect(found.window.head(HEAD_MESSAGES))
        except WindowTooLargeError:
            return  # The pass itself learns it, and what it read without it is read again.
        # Rows are not due: before a DDL has shown the types of its columns, values need not fit what a row alone says.
        found.results = replace(found.task(state), upto=-1)(messages.items())
        found.learn(state)
        self._cut(found, state)

    def _resolve(self, found: WindowScan, state: State, read: Callable[[Window], Messages]) -> None:
        """Take over what the source shows of resolved ts, or else what messages near the ends of the window show."""
        if not self.template.order.has_watermark:
            return
        behind = {place: span.end for place, span in found.window.ranges.items()}
        offsets = {place: behind.get(place, state.next_offsets.get(place, 0)) for place in found.ends}
        shown = self.source.resolved(offsets, state.resolved_ts)
        if shown is None:
            found.resolve(resolved_near_ends(found.window, read, self.decoder))
            return
        found.is_shown = True
        found.resolve(shown)
        ranges = found.window.ranges
        cut = Window({place: span for place, span in ranges.items() if place not in shown}).tail(1)
        with suppress(WindowTooLargeError):
            found.resolve(resolved_in(read(cut), self.decoder()))

    def _upto(self, found: WindowScan, state: State) -> int | None:
        """The watermark, or None while a partition in use has no resolved ts: then a pass only looks for schemas."""
        if not self.template.order.has_watermark:
            return found.ceiling
        watermark = mark(found, state)
        return None if watermark is None else min(watermark, found.ceiling)

    def _revise(self, found: WindowScan, state: State) -> bool | None:
        """What the last pass teaches about how the window must be read.

        Returns:
            None if it was read right; else whether the window itself changed and its messages must be read again.
        """
        learnt = found.learn(state)
        # Before the bad messages: a value may fit its column once a DDL of this very window has shown its type.
        if self._cut(found, state) or self._mend(found):
            return False
        if found.results.bad:
            return self._set_aside(found)
        if found.results.waiting and (learnt or found.learn_loaded(state)):
            return False
        if _hold_back(found):
            return False
        # The tails may have missed a resolved ts that the pass met.
        found.resolve(found.results.resolved)
        after = self._upto(found, state)
        return False if after is not None and after > (found.upto or 0) else None

    def _fill(self, found: WindowScan, state: State, reduced: ReducedRows) -> bool | None:
        """Let whole rows take the place of reduced ones; returns what `_revise` does."""
        reduced.fill(found.results, found.job.marks, found.job.limits.most_bytes)
        if found.results.bad:
            return self._set_aside(found)
        found.learn(state)
        return None

    def _mend(self, found: WindowScan) -> bool:
        """Let one task read each partition of a topic, where several have read one that they must not; True if so."""
        torn = found.results.misread
        self.unsplit.update(torn)
        found.job = replace(found.job, limits=replace(found.job.limits, unsplit=frozenset(self.unsplit)))
        return bool(torn)

    def _set_aside(self, found: WindowScan) -> bool:
        """Bad messages become dead letters, their table is left out, or the first of them ends the window.

        One whose schema may yet come always ends it.
        """
        if self.parks and found.leave_out(self.may_come):
            return False
        ending = [bad for bad in found.results.bad if not self.keep_bad or self.may_come(bad.error)]
        if not ending:
            found.job = replace(found.job, try_all=bool(found.bad))
            found.bad += found.results.bad
            return False
        found.end_before(ending, [bad for bad in ending if self.parks and not self.may_come(bad.error)])
        return True

    def _cut(self, found: WindowScan, state: State) -> bool:
        """DDL among the rows cut them into segments; rows that were reduced across one must be read again."""
        due = [barrier for barrier in found.results.barriers if barrier.change.commit_ts <= (found.upto or 0)]
        barriers = in_order(due, state.resolved_ts, state.ddl.applied)
        every = read_all(barriers, spelling(found, state), met(found, state), self.taken) if barriers else []
        had, tables = {**state.exported, **state.loaded}, state.declared
        every = [with_rows(ddl, found) for ddl in every if not ddl.is_in(had)]
        found.ddl = every if self.chosen is None else self.chosen(every)
        found.coming = _coming(found, state) if found.results.has_unplaced else frozenset()
        cuts = cut((ddl.commit_ts, ddl.parts(tables)) for ddl in found.ddl)
        typed = typed_by(found.ddl, tables) if self.rows_describe else {}
        before, order = found.job, replace(found.job.order, passages=_passages(found, state))
        moving = found.coming | _moved(every) if found.results.has_unplaced else before.marks.moving
        marks = replace(before.marks, cuts=cuts, typed=typed, shown=shown(found, state), moving=moving)
        found.job = replace(before, order=order, marks=marks)
        revised = (not self.rows_describe and bool(found.ddl) and take_keys(found, state)) or found.job != before
        stopped = _stop_at_end(found) or self._stop_at_return(found, state) or _stop_at_part(found, state)
        return stopped or (revised and found.results.has_rows)

    def _stop_at_return(self, found: WindowScan, state: State) -> bool:
        """Let the window end with a DDL after which the rows of a parked table's name count again.

        They are left out of this window as a whole, and those behind the DDL would be lost.
        """
        left_out = found.left_out(state) if self.chosen is None else None
        return _stop_at([ddl for ddl in found.ddl if ddl.frees(_freed(ddl, left_out, state))], found)


def _moved(ddl: Sequence[Ddl]) -> frozenset[TableName]:
    """The names that some DDL give to tables, or take off them."""
    return frozenset(
        name for item in ddl for done in item.effects for name in (*done.brought, *done.leaving(item.names))
    )


def _coming(found: WindowScan, state: State) -> frozenset[TableName]:
    """The same of DDL that the window holds and that are not due yet."""
    applied = max(state.resolved_ts, found.upto or 0)
    names = spelling(found, state)
    return _moved([Ddl.of(item, names) for item in found.results.barriers if item.change.commit_ts > applied])


def _freed(ddl: Ddl, left_out: frozenset[TableName] | None, state: State) -> frozenset[TableName]:
    """The tables that a DDL may end whose rows are left out: those that have not left the feed behind it."""
    names = ddl.names if left_out is None else left_out
    return frozenset(name for name in names if ddl.commit_ts > state.left_at(name))


def _hold_back(found: WindowScan) -> bool:
    """Rows without a schema wait, and the watermark stays below the first of them."""
    if not found.results.waiting:
        return False
    found.waiting = list(found.results.waiting.values())
    found.ceiling = min(row.commit_ts for row in found.waiting) - 1
    return True


def _passages(found: WindowScan, state: State) -> Passages:
    """DDL messages behind which rows were sent again: those to apply, copies, and those that were applied."""
    if found.job.order.parts_at_ddl:
        return {}
    names, spelt = {ddl.barrier.change.id: ddl.names for ddl in found.ddl}, spelling(found, state)
    told = ((item, names.get(item.change.id) or Ddl.of(item, spelt).names) for item in found.results.barriers)
    return passages(state.checkpoint.feed.passed, told)


def _stop_at_end(found: WindowScan) -> bool:
    """Let the window end with the DDL that takes its name from a table which a message of this window parks.

    The message may be of the next holder of the name: then it is behind the new end, and parks that one alone.
    """
    parked = found.parking.keys()
    is_stopped = _stop_at([ddl for ddl in found.ddl if parked and ddl.takes(parked)], found)
    if is_stopped:
        found.parking.clear()
    return is_stopped


def _stop_at(ddl: Sequence[Ddl], found: WindowScan) -> bool:
    """Let the window end with the first of some DDL, unless it ends with it or before it already."""
    end = min((item.commit_ts for item in ddl), default=found.ceiling)
    if not found.job.order.parts_at_ddl or found.ceiling <= end:
        return False
    found.ceiling = end
    return True


def _stop_at_part(found: WindowScan, state: State) -> bool:
    """Hold back renames that lack a part of their statement: it may follow the watermark of its commit ts."""
    watermark = mark(found, state) if found.job.order.has_watermark else None
    loose = [ddl for ddl in found.ddl if ddl.is_loose and ddl.commit_ts == watermark]
    if loose:
        found.ceiling = loose[0].commit_ts - 1
    return bool(loose)
