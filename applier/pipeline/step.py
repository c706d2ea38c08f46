"""One step, from a checkpoint to the next. The only file that composes all stages."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from applier.changefeed.fate import Fate
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.consume.source import Source
from applier.errors import DecodeError, TransientError
from applier.order.feed_order import passed
from applier.pipeline.apply_window import WindowApplier
from applier.pipeline.maintenance import Maintenance
from applier.pipeline.next_step import NextStep, StepReader
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.since import since
from applier.pipeline.state import State
from applier.pipeline.tables import completeness, table_records
from applier.pipeline.tables.rerouted import settled
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.runtime.logs import StatusLine, Stopwatch, milliseconds
from applier.sink.iceberg.catalog import holds

_NOTED = (Fate.HAD, Fate.LEFT_OUT, Fate.DOUBTED)
"""Fates that the status line counts beside the rows that are applied and those that wait."""


@dataclass(frozen=True, slots=True)
class Step:
    """Outcome of one step.

    Attributes:
        moved: True if the checkpoint advanced.
        complete: True if everything up to the ends that were asked for has been read.
        waiting: Rows whose schema has not come.
        silent: Partitions that never sent a resolved ts.
        error: The bad message that the next step would begin with.
        resolved: Newest resolved ts of each partition that sent one.
        mark: Their minimum over the partitions that count: the watermark; None without one.
        is_longest: True if no step may read a longer window.
        resuming: True if parked tables are being brought back between the steps.
        commits: The table of each commit, and the seconds that it took.
    """

    moved: bool
    complete: bool
    status: StatusLine
    waiting: Sequence[Waiting] = ()
    silent: Sequence[TopicPartition] = ()
    error: DecodeError | None = None
    resolved: Mapping[TopicPartition, int] = field(default_factory=dict)
    mark: int | None = None
    is_longest: bool = False
    resuming: bool = False
    commits: Sequence[tuple[TableName, float]] = ()


@dataclass(slots=True)
class Pipeline:
    """Follows one changefeed, step by step.

    Attributes:
        watermark_seconds: Seconds from one checkpoint to the next where a step brings nothing but a newer watermark.
        stopwatch: Times of the stages of the newest step, also of one that failed.
    """

    config: Config
    source: Source
    scanner: WindowScanner
    targets: TargetTables
    ddl_handler: DdlApplier
    state: State
    maintenance: Maintenance
    watermark_seconds: float = field(default=0.0, init=False)
    stopwatch: Stopwatch = field(default_factory=Stopwatch, init=False)
    _moved_at: float = field(default=float("-inf"), init=False)
    _reader: StepReader = field(init=False)
    _is_torn: bool = field(default=False, init=False)
    _is_started: bool = field(default=False, init=False)
    _mended: Counter[str] = field(default_factory=Counter, init=False)
    _applier: WindowApplier = field(init=False)
    _last_checkpoint: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reader = StepReader(self.config, self.source, self.scanner, self.targets, self.state)
        places = self.scanner.runner.places
        self._applier = WindowApplier(self.config, self.source, self.targets, self.ddl_handler, self.state, places)

    def since(self, ts: int) -> dict[TopicPartition, Reading]:
        """Where each partition is read from, so that nothing above a commit ts is missed; see `since.since`."""
        return since(self.source, ts, None if self.config.source.is_bounded else self.scanner.decoder())

    def ends(self) -> dict[TopicPartition, int]:
        """Ends of the source now."""
        return {place: span.end for place, span in self.source.bounds().items()}

    def restore(self) -> None:
        """Begin at the checkpoint, with the tables as they are: some may be ahead of it, after a step that failed."""
        with self.changing_memory():
            self.state.restore()
            targets, holding = self.targets, partial(holds, self.targets.catalog)
            last = settled(self.state.checkpoint, targets.identifier, holding)
            self.state.ahead = targets.restore(self.state.names, last)
            self.state.covered = self._reader.covered(self.state.ahead)
            table_records.recall(self.state, self.targets)
            if self.state.keeps_cut:
                moved_names.refuse_left_out(self.state, self.config.filter)
                completeness.judge(self.state, self.targets, self.config, is_start=not self._is_started)
                table_records.remember(self.state)
                if self.targets.listed.is_strict:
                    self.hold_to_checkpoint()
        self._is_started = True

    @contextmanager
    def changing_memory(self) -> Iterator[None]:
        """What fails inside the block leaves a half of it in memory: the next step begins at the checkpoint."""
        self._is_torn = True
        yield
        self._is_torn = False

    def recall(self) -> None:
        """Begin at the checkpoint if what is in memory may be a half."""
        if self._is_torn:
            self.restore()

    def use_scanner(self, scanner: WindowScanner) -> None:
        """Scan the next windows in another way."""
        self.scanner = self._reader.scanner = scanner

    def hold_to_checkpoint(self) -> None:
        """From here on take no table that others dropped, replaced or rolled back for what the checkpoint lists.

        Raises:
            TableMismatch: There is such a table, and the configuration says to stop.
        """
        self.targets.listed.is_strict = True
        self._applier.hold_to_checkpoint([name for name in self.state.tables if name not in self.state.unsettled])

    def step(self, ends: Mapping[TopicPartition, int] | None = None) -> Step:
        """Read the next window, apply what its watermark allows, and write the checkpoint.

        Args:
            ends: Offsets (exclusive) that the step must not pass; None for the ends of the source.

        Raises:
            TransientError: Something outside did not answer, or does not know a schema yet; the same step may be tried
                again.
            TerminalError: The feed cannot be applied any further; what came before it is.
        """
        with self.targets.as_holder():
            return self._step(ends)

    def _step(self, ends: Mapping[TopicPartition, int] | None) -> Step:
        stopwatch = self.stopwatch = Stopwatch()
        self.recall()
        self._applier.not_found.count, self._applier.commits = 0, []
        self._maintain(stopwatch)
        found = self.look(ends, stopwatch)
        scan = found.scan
        failpoints.reach("decoded")
        has_news = self._reader.has_news(scan)
        moved = has_news and not (found.is_only_time and time.monotonic() - self._moved_at < self.watermark_seconds)
        if moved:
            with self.changing_memory():
                known = self.state.checkpoint.partitions
                self.state.entered = {at: Reading(span.start) for at, span in found.bounds.items() if at not in known}
                tables = self._applier.apply(scan, self._reader.described(scan), stopwatch)
                with stopwatch.stage("checkpoint"):
                    self._checkpoint(found, tables, stopwatch)
            self._moved_at = time.monotonic()
            self._last_checkpoint = {"checkpoint": stopwatch.seconds["checkpoint"]}
        is_longest = self._reader.is_longest
        self._reader.adapt(found, moved=has_news)
        if scan.error is not None and not moved and self.scanner.may_come(scan.error):
            raise TransientError(scan.error.what, scan.error.hint)
        outcome = self._outcome(found, stopwatch, moved=moved, is_longest=is_longest)
        self._reader.show(outcome.silent, found)
        self._mended = Counter() if moved else self._mended
        return outcome

    def look(self, ends: Mapping[TopicPartition, int] | None, stopwatch: Stopwatch) -> NextStep:
        """Read the next window without applying anything; see `step` for the arguments and the errors."""
        return self._reader.look(ends, stopwatch)

    def _maintain(self, stopwatch: Stopwatch) -> None:
        """Mend tables, unless a step that failed left some beyond the checkpoint: its repetition may need them so."""
        if self._may_maintain:
            with stopwatch.stage("maintain"):
                self._mended.update(self.maintenance.tend(self.state.checkpoint))

    def finish_maintenance(self, stop: threading.Event) -> None:
        """Behind the last step: mend what is due, and wait for what is under way, until asked to stop.

        The newest checkpoint, which no later step replaces, says how many tables are behind after that.
        """
        if self._may_maintain:
            self.maintenance.finish(self.state.checkpoint, stop)
            behind = {"maintenance_behind": len(self.maintenance.behind)}
            if self.state.checkpoint.counts.get("maintenance_behind", 0) != behind["maintenance_behind"]:
                self.state.write(lambda last: replace(last, counts={**last.counts, **behind}))

    @property
    def _may_maintain(self) -> bool:
        is_ahead = self.targets.feed.order.has_watermark and self.state.reached > self.state.resolved_ts
        return not is_ahead and self.state.checkpoint.moving is None

    def _checkpoint(self, found: NextStep, tables: int, stopwatch: Stopwatch) -> None:
        failpoints.reach("applied")
        scan, bounds = found.scan, found.bounds
        upto = self.targets.feed.order.as_of(scan.upto) or 0
        readings = {}
        for place in bounds:
            next_offset, resolved = self.state.next_offsets.get(place, bounds[place].start), scan.resolved.get(place)
            if place in scan.window.ranges:
                next_offset = scan.results.held.get(place, scan.window.ranges[place].end)
            if place in scan.results.held:
                # A shorter window may read only a part of what is held: the rest must not count as read until it is.
                resolved = min(resolved or 0, upto) or None
            readings[place] = Reading(next_offset, resolved)
        next_offsets = {place: reading.next_offset for place, reading in readings.items()}
        # How long this checkpoint takes shows once it is written: it has the figure of the one before.
        spent = milliseconds({**stopwatch.seconds, **self._last_checkpoint})
        figures = replace(scan.results, fates=self._applier.fates).counts
        behind = {"maintenance_behind": worn} if (worn := len(self.maintenance.behind)) else {}
        counts = {**figures, **behind, "tables": tables, "backlog": found.backlog(next_offsets), **spent}
        is_read = self._is_read(upto, is_end=found.is_complete(next_offsets) and not scan.results.held)
        table_records.settle(self.state, self.targets, is_read=is_read)
        done = [ddl.barrier.change.id for ddl in scan.ddl]
        had = passed(scan.job.order.passages, next_offsets)
        cut = completeness.kept(self.state, self.targets, upto)
        self.state.advance(upto, readings, cut, counts, done, had, is_read=is_read)
        # What was held is read again, with rows that were applied beside it.
        is_beyond = scan.results.held or self.state.covered
        self.state.covered = self._reader.covered(self.state.tables) if is_beyond else {}

    def _is_read(self, upto: int, *, is_end: bool) -> bool:
        """Whether the feed is read as far as tables were when all checkpoints were lost; False where none were.

        In offset order a table without rows does not say how far that is: the end of the feed is beyond it.
        """
        return (
            self.state.checkpoint.is_lost
            and not self.state.covered
            and all(ts <= upto for ts in self.state.ahead.values())
            and (is_end or self.targets.feed.order.has_watermark)
        )

    def _outcome(self, found: NextStep, stopwatch: Stopwatch, *, moved: bool, is_longest: bool) -> Step:
        scan, order = found.scan, self.targets.feed.order
        return Step(
            moved=moved,
            complete=found.is_complete(self.state.next_offsets),
            status=self._status(found, stopwatch, moved=moved),
            waiting=scan.waiting,
            silent=scan.silent,
            error=scan.error,
            resolved=scan.resolved if order.has_watermark else {},
            mark=order.as_of(scan.upto),
            is_longest=is_longest,
            commits=self._applier.commits,
        )

    def _status(self, found: NextStep, stopwatch: Stopwatch, *, moved: bool) -> StatusLine:
        scan, results = found.scan, found.scan.results
        counts = replace(results, fates=self._applier.fates).counts if moved else results.counts
        return StatusLine(
            step=self.state.checkpoint.last_step,
            resolved_ts=self.targets.feed.order.as_of(self.state.resolved_ts),
            now_ms=time.time_ns() // 1_000_000,
            messages=counts.get("messages", 0),
            rows=counts.get(Fate.APPLIED, 0) if moved else 0,
            waiting=results.held_rows + sum(row.rows for row in scan.waiting),
            tables=self.state.checkpoint.counts.get("tables", 0) if moved else 0,
            backlog=found.backlog(self.state.next_offsets),
            seconds=stopwatch.seconds,
            notes={key: counts.get(key, 0) for key in (*_NOTED, "zero_dates")}
            | {
                "parked": len(self.state.parked),
                "missing": sum(found.empty.values()),
                "dead_letters": len(scan.bad),
                "not_found": self._applier.not_found.count,
                "maintenance_behind": len(self.maintenance.behind),
            }
            | (self._mended if moved else {}),
        )
