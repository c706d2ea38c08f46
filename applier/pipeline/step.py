"""One step: checkpoint in, next checkpoint out. The only file that composes all stages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from applier.changefeed.applied_offsets import Coverage, furthest
from applier.changefeed.checkpoint import Reading
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import OffsetRange, Window
from applier.config.settings import Config
from applier.consume.offsets import capped, missing, next_window, refuse_missing
from applier.consume.source import Source
from applier.errors import DecodeError, TransientError
from applier.order.resent import passed
from applier.order.watermark import in_use, silent
from applier.pipeline import completeness
from applier.pipeline.filtered import owners
from applier.pipeline.maintenance import Maintenance
from applier.pipeline.scan.described_tables import described
from applier.pipeline.scan.known import Known
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.scan.unreadable import refuse_unreadable
from applier.pipeline.scan.window_scan import Survey, Surveyor
from applier.pipeline.schema_changes.apply import Migration
from applier.pipeline.schema_changes.statements import Ddl
from applier.pipeline.shared_targets import refuse_shared
from applier.pipeline.state import State
from applier.pipeline.table_batch import Batch, Extent
from applier.pipeline.target_tables import Replica
from applier.runtime import failpoints
from applier.runtime.logs import StatusLine, Stopwatch, logger

_LOCAL_BYTES = 64 * 2**20
"""Windows that are likely smaller than this are decoded in the driver: a Spark job with Python workers costs more."""

_UNKNOWN_BYTES = 4096.0
"""Bytes of a message before any was read; from then on those of the last window count."""

_MAX_STRETCH = 64
_NO_LIMIT = 2**40


@dataclass(frozen=True, slots=True)
class Step:
    """Outcome of one step.

    Attributes:
        moved: True if the checkpoint advanced.
        complete: True if everything up to the ends that were asked for has been read.
        status: The status line.
        waiting: Rows whose schema has not come.
        silent: Partitions that never sent a resolved ts.
        error: The bad message that the next step would begin with.
        resolved: Newest resolved ts of each partition that sent one.
        mark: Their minimum over the partitions that count: the watermark; None without one.
    """

    moved: bool
    complete: bool
    status: StatusLine
    waiting: Sequence[Waiting] = ()
    silent: Sequence[TopicPartition] = ()
    error: DecodeError | None = None
    resolved: Mapping[TopicPartition, int] = field(default_factory=dict)
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the next step would apply; nothing is touched yet.

    Attributes:
        survey: What its window holds.
        known: What was known before it.
        bounds: What the source has, up to the ends that were asked for.
        empty: How many offsets of the window hold no message, by partition.
    """

    survey: Survey
    known: Known
    bounds: Mapping[TopicPartition, OffsetRange]
    empty: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Pipeline:
    """Follows one changefeed, step by step.

    Args:
        config: The configuration.
        source: Where the messages are.
        surveyor: Finds out what a window holds.
        replica: The Iceberg tables.
        migration: Applies DDL to them.
        state: Progress, in memory and in the control tables.
        maintenance: Mends the tables between steps.
    """

    config: Config
    source: Source
    surveyor: Surveyor
    replica: Replica
    migration: Migration
    state: State
    maintenance: Maintenance
    _message_bytes: float = field(default=_UNKNOWN_BYTES, init=False)
    _stretch: int = field(default=1, init=False)
    _is_torn: bool = field(default=False, init=False)
    _mended: Counter[str] = field(default_factory=Counter, init=False)
    _told: set[TopicPartition] = field(default_factory=set, init=False)

    def ends(self) -> dict[TopicPartition, int]:
        """Ends of the source now."""
        return {place: span.end for place, span in self.source.bounds().items()}

    def restore(self) -> None:
        """Begin at the checkpoint, with the tables as they are: some may be ahead of it, after a step that failed."""
        self.state.restore()
        self.state.ahead = self.replica.restore(self.state.names, self.state.checkpoint)
        self.state.covered = {} if self.surveyor.ordered else self._covered(self.state.ahead)
        completeness.judge(self.state, self.replica, self.config)
        self._is_torn = False

    def step(self, ends: Mapping[TopicPartition, int] | None = None) -> Step:
        """Read the next window, apply what its watermark allows, and write the checkpoint.

        Args:
            ends: Offsets (exclusive) that the step must not pass; None for the ends of the source.

        Raises:
            TransientError: Something outside did not answer, or does not know a schema yet; the same step may be tried
                again.
            TerminalError: The feed cannot be applied any further; what came before it is.
        """
        with self.replica.as_holder():
            return self._step(ends)

    def _step(self, ends: Mapping[TopicPartition, int] | None) -> Step:
        if self._is_torn:
            self.restore()
        watch = Stopwatch()
        self._maintain(watch)
        found = self.look(ends, watch)
        survey = found.survey
        failpoints.reach("decoded")
        moved = self._has_news(survey)
        if moved:
            self._is_torn = True
            tables = self._apply(survey, watch)
            with watch.stage("checkpoint"):
                self._checkpoint(survey, found.bounds, tables)
            self._is_torn = False
        # A watermark that stands still in a full window wants a longer one, not the same one again.
        self._stretch = 1 if moved or survey.error else min(self._stretch * 2, self._longest)
        if survey.error is not None and not moved and self.surveyor.may_come(survey.error):
            raise TransientError(survey.error.what, survey.error.hint)
        outcome = self._outcome(found, watch, moved=moved)
        if moved:
            self._mended = Counter()
        return outcome

    def look(self, ends: Mapping[TopicPartition, int] | None, watch: Stopwatch) -> Look:
        """Read the next window without applying anything; see `step` for the arguments and the errors."""
        with watch.stage("plan"):
            bounds = capped(self.source.bounds(), ends)
            limit = self.config.source.messages_per_step * self._stretch
            window = next_window(self.state.next_offsets, bounds, limit, self._least())
            several = len({place.topic for place in bounds}) > 1
            known = self._known(capped(self.source.bounds(), ends) if several else bounds)
        survey = self.surveyor.survey(window, known, watch, local=self._is_small(window))
        if self._find_ahead(survey):
            known = replace(known, applied_of=self.state.ahead, covered=self.state.covered)
            survey = self.surveyor.survey(window, known, watch, local=self._is_small(window))
        if window.ranges:
            # After the messages: a topic that took the place of the one that they are to be of may do so at any time.
            self.state.meet(self.source.topic_ids())
        refuse_shared(self.config, survey, self.state.tables, self._described(survey))
        empty = missing(survey.window, survey.findings.read)
        self._tell_empty(survey.window, empty)
        refuse_unreadable(survey, self.state, self.config.changefeed.protocol)
        counts = survey.findings.counts
        if counts.get("messages"):
            self._message_bytes = counts["bytes"] / counts["messages"]
        return Look(survey, known, bounds, empty)

    def _tell_empty(self, window: Window, empty: Mapping[TopicPartition, int]) -> None:
        """Refuse offsets without a message, or tell of them once for each partition."""
        if self.config.source.missing_offsets == "stop":
            refuse_missing(window, empty)
        for place, count in empty.items():
            if place not in self._told:
                start, end = window.ranges[place]
                logger().warning("offsets without a message", partition=str(place), missing=count, start=start, end=end)
        self._told |= empty.keys()

    def _maintain(self, watch: Stopwatch) -> None:
        """Mend tables, unless a step that failed left some beyond the checkpoint: its repetition may need them so."""
        if self.surveyor.ordered and self.state.reached > self.state.resolved_ts:
            return
        with watch.stage("maintain"):
            self._mended.update(self.maintenance.tend(self.state.checkpoint))

    def _find_ahead(self, survey: Survey) -> bool:
        """Take note of tables that a crash left in the catalog, with rows, before any checkpoint knew of them."""
        names = {name for name, _ in survey.findings.parts if name not in self.state.tables} - self.state.ahead.keys()
        if not self.surveyor.ordered:
            found = self._covered(names - self.state.covered.keys())
            self.state.covered |= found
            return bool(found)
        applied = {name: self.replica.applied_ts(name) or 0 for name in names}
        ahead = {name: ts for name, ts in applied.items() if ts > self.state.resolved_ts}
        self.state.ahead |= ahead
        return bool(ahead)

    def _covered(self, names: Iterable[TableName]) -> dict[TableName, Coverage]:
        """In offset order what tables have beyond the checkpoint."""
        found = {name: self.replica.covered(name).beyond(self.state.next_offsets) for name in names}
        return {name: covered for name, covered in found.items() if covered}

    def _least(self) -> dict[TopicPartition, int]:
        """Ends of the window of a step in offset order that failed: a shorter one might leave out a DDL that is done.

        A backfill of single tables may have come so far that no window holds it; it stops before any DDL of theirs.
        """
        ends, state = furthest(self.state.covered.values()), self.state
        messages = sum(max(0, end - state.next_offsets.get(place, 0)) for place, end in ends.items())
        is_long = messages > self.config.source.messages_per_step * _MAX_STRETCH
        return {} if is_long and state.checkpoint.partitions else ends

    def _known(self, later: Mapping[TopicPartition, OffsetRange]) -> Known:
        state = self.state
        return Known(
            resolved=state.resolved,
            ends={place: later[place].end for place in in_use(list(later), self.config.changefeed.partitions)},
            topics=state.topics,
            applied=state.resolved_ts,
            applied_of=state.ahead,
            covered=state.covered,
            passed=state.passed,
            applied_ddl=frozenset(state.applied_ddl),
            versions=state.versions,
            tables=state.tables,
            parked=state.parked,
        )

    def _is_small(self, window: Window) -> bool:
        engine = self.config.source.engine
        return engine != "spark" and window.messages * self._message_bytes <= _LOCAL_BYTES

    def _has_news(self, survey: Survey) -> bool:
        """True if the checkpoint can advance: by a higher watermark, or in a feed without one by any message."""
        if survey.upto is None or not survey.window.ranges:
            return False
        if not self.surveyor.ordered:
            # Rows that wait for their schema are read again: where nothing else came, they wait.
            held = survey.findings.held
            return any(held.get(place, span.end) > span.start for place, span in survey.window.ranges.items())
        # A step that failed may have left tables ahead; a checkpoint below them would not be one cut through all.
        is_late = survey.error is not None or self._stretch >= self._longest
        is_whole = survey.upto >= self.state.reached or (is_late and not self.state.is_without_checkpoint)
        return survey.upto > self.state.resolved_ts and is_whole

    @property
    def _longest(self) -> int:
        """How many times the usual size a window may have.

        Without a checkpoint all that the tables have is read in one window: a part of it would bring tables back that
        were renamed or dropped since. Little is held of it, as the rows that a table has are dropped where they are
        read.
        """
        return _NO_LIMIT if self.surveyor.ordered and self.state.is_without_checkpoint else _MAX_STRETCH

    def _apply(self, survey: Survey, watch: Stopwatch) -> int:
        """Apply DDL in order, each after the rows below it and before the rows above it; then all other rows."""
        upto = cast("int", survey.upto)
        completeness.meet(
            (name for name, _ in survey.findings.parts), survey.ddl, self.state, self.replica, self.config
        )
        self.state.learn(survey.versions, survey.topics)
        self.state.set_aside(survey.bad, self.source)
        doubted = self.replica.doubted = owners(survey.bad)
        self.replica.doubt(self.state.names if doubted is None else doubted)
        for version in self._described(survey):
            completeness.meet([version.name], survey.ddl, self.state, self.replica, self.config)
            self.state.track(version)
            self.replica.ensure(version, self.replica.stamp(self.state.resolved_ts))
        due = dict(survey.findings.parts)
        extent = None if self.surveyor.ordered else Extent(survey.window.ranges, self.state.topic_ids)
        commits = 0
        with watch.stage("apply"):
            parted = self._parted(survey.ddl)
            for place, ddl in enumerate(survey.ddl):
                batches = [
                    Batch(name, due.pop((name, number)), ddl.commit_ts, before_ddl=True, extent=extent)
                    for name in ddl.names
                    for number in _segments(due, name, survey.cuts[name].index(ddl.commit_ts))
                ]
                is_begun = self.migration.is_begun(ddl)
                if not is_begun:
                    commits += self._commit(batches)
                self.migration.apply(ddl)
                if is_begun and self.migration.leaves_rows(ddl):
                    commits += self._commit([batch for batch in batches if parted.get(batch.name, -1) < place])
            rest = sorted(due.items(), key=lambda item: item[0][0])
            commits += self._commit([Batch(name, parts, upto, extent=extent) for (name, _), parts in rest])
        return commits

    def _parted(self, ddl: Sequence[Ddl]) -> dict[TableName, int]:
        """By table, the place of the last DDL that is done already and parts the table from all rows before it.

        Those of before an ALTER TABLE that is done, too, must not follow it then: another table may have the name now.
        """
        if self.surveyor.ordered:
            return {}
        done = [place for place, item in enumerate(ddl) if self.migration.is_begun(item)]
        return {
            name: place for place in done if not self.migration.leaves_rows(ddl[place]) for name in ddl[place].names
        }

    def _commit(self, batches: Sequence[Batch]) -> int:
        for batch in batches:
            if batch.name not in self.state.tables:
                self.state.track(batch.newest)
            elif not self.surveyor.ordered and not 0 < batch.newest_ts <= self.state.changed_at(batch.name):
                # Rows of before a DDL say what the table was: following them would undo it.
                self.migration.follow(batch.newest)
        return len(self.replica.apply(batches, self.state.tables))

    def _described(self, survey: Survey) -> list[TableVersion]:
        return described(survey, self.state.tables) if self.config.changefeed.start == "midstream" else []

    def _checkpoint(self, survey: Survey, bounds: Mapping[TopicPartition, OffsetRange], tables: int) -> None:
        failpoints.reach("applied")
        upto = survey.upto if self.surveyor.ordered and survey.upto is not None else 0
        readings = {}
        for place in bounds:
            next_offset, resolved = self.state.next_offsets.get(place, bounds[place].start), survey.resolved.get(place)
            if place in survey.window.ranges:
                next_offset = survey.findings.held.get(place, survey.window.ranges[place].end)
            if place in survey.findings.held:
                # A shorter window may read only a part of what is held: the rest must not count as read until it is.
                resolved = min(resolved or 0, upto) or None
            readings[place] = Reading(next_offset, resolved)
        next_offsets = {place: reading.next_offset for place, reading in readings.items()}
        counts = {**survey.findings.counts, "tables": tables}
        done = [ddl.barrier.id for ddl in survey.ddl]
        had = {} if self.surveyor.ordered else passed(survey.passages, next_offsets)
        self.state.advance(upto, readings, completeness.cut(self.state, self.replica), counts, done, had)
        if not self.surveyor.ordered:
            # What was held is read again, with rows that were applied beside it.
            is_beyond = survey.findings.held or self.state.covered
            self.state.covered = self._covered(self.state.tables) if is_beyond else {}

    def _outcome(self, found: Look, watch: Stopwatch, *, moved: bool) -> Step:
        survey, known, bounds = found.survey, found.known, found.bounds
        read = self.state.next_offsets | {place: span.end for place, span in survey.window.ranges.items()}
        complete = all(read.get(p, span.start) >= span.end for p, span in bounds.items())
        ordered = self.surveyor.ordered
        return Step(
            moved=moved,
            complete=complete,
            status=self._status(found, watch, moved=moved),
            waiting=survey.waiting,
            silent=silent(survey.resolved, known.ends) if ordered and survey.upto is None else (),
            error=survey.error,
            resolved=survey.resolved if ordered else {},
            mark=survey.upto if ordered else None,
        )

    def _status(self, found: Look, watch: Stopwatch, *, moved: bool) -> StatusLine:
        survey, counts = found.survey, found.survey.findings.counts
        due = self.state.next_offsets
        backlog = sum(max(0, span.end - due.get(place, span.start)) for place, span in found.bounds.items())
        return StatusLine(
            step=self.state.step,
            resolved_ts=self.state.resolved_ts if self.surveyor.ordered else None,
            now_ms=time.time_ns() // 1_000_000,
            messages=counts.get("messages", 0),
            rows=counts.get("rows", 0) if moved else 0,
            waiting=counts.get("left", 0) + sum(row.rows for row in survey.waiting),
            tables=self.state.counts.get("tables", 0) if moved else 0,
            backlog=backlog,
            seconds=watch.seconds,
            notes={key: counts.get(key, 0) for key in ("replayed", "excluded", "zero_dates")}
            | {"missing": sum(found.empty.values()), "dead_letters": len(survey.bad)}
            | (self._mended if moved else {}),
        )


def _segments(due: Mapping[tuple[TableName, int], object], name: TableName, upto: int) -> list[int]:
    """Segments of a table that are due before a DDL: one at the most, as earlier DDL took theirs."""
    return sorted(number for owner, number in due if owner == name and number <= upto)
