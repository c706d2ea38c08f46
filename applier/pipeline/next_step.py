"""Reads what the next step of a changefeed would apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from applier.changefeed.applied_offsets import AppliedOffsets, furthest
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import OffsetRange, Window
from applier.config.settings import Config
from applier.consume.offsets import capped, missing, next_window, refuse_missing
from applier.consume.source import Source
from applier.consume.window_size import LONGEST, NO_LIMIT, WindowSize, WindowTooLargeError
from applier.errors import TerminalError
from applier.pipeline import topics
from applier.pipeline.batches.stager import splits
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.tables.shared_targets import refuse_shared
from applier.runtime.logs import Stopwatch, logger
from applier.runtime.outages import OUTAGES
from applier.runtime.places import Where

if TYPE_CHECKING:
    from applier.pipeline.state import State
    from applier.pipeline.tables.target_tables import TargetTables

PIECE = 16
"""A step of a resume job reads this fraction (one sixteenth) of the messages that a step of the changefeed reads."""


_FEW_MESSAGES = 1_000
"""As many are read again at every look without being felt."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What the next step would apply; nothing is touched yet.

    Attributes:
        scan: What its window holds.
        bounds: What the source has, up to the ends that were asked for.
        empty: How many offsets of the window hold no message, by partition.
    """

    scan: WindowScan
    bounds: Mapping[TopicPartition, OffsetRange]
    empty: Mapping[TopicPartition, int]

    def is_complete(self, next_offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the window ends where the source does, or all before its ends was read earlier."""
        read = {**next_offsets, **{place: span.end for place, span in self.scan.window.ranges.items()}}
        return all(read.get(place, span.start) >= span.end for place, span in self.bounds.items())

    @property
    def is_only_time(self) -> bool:
        """Whether it brings a newer watermark and changes nothing else; few messages may be read again."""
        scan, results = self.scan, self.scan.results
        changes = (scan.ddl, scan.new_versions, scan.bad, scan.parking, scan.waiting, results.parts, results.held)
        return scan.error is None and not any(changes) and scan.window.messages <= _FEW_MESSAGES

    def backlog(self, next_offsets: Mapping[TopicPartition, int]) -> int:
        """How many offsets of the source lie at or above those to read next."""
        return sum(max(0, span.end - next_offsets.get(place, span.start)) for place, span in self.bounds.items())


_SIZES = frozenset({"messages_per_step", "bytes_per_step"})
"""Settings that hold for a window however many processes decode it, where the user has set them."""


@dataclass(slots=True)
class StepReader:
    """Reads the window of the next step; applies nothing."""

    config: Config
    source: Source
    scanner: WindowScanner
    targets: TargetTables
    state: State
    _size: WindowSize = field(init=False)
    _reported: set[TopicPartition] = field(default_factory=set, init=False)
    _where: Where = field(default=Where.HERE, init=False)

    def __post_init__(self) -> None:
        self._size = WindowSize(self.config.source.messages_per_step, self.config.source.bytes_per_step)

    @property
    def is_longest(self) -> bool:
        """Whether the window has the most messages that one may have."""
        return self._size.is_longest(self._longest)

    def look(self, ends: Mapping[TopicPartition, int] | None, stopwatch: Stopwatch) -> NextStep:
        """Read the next window without applying anything; see `step` for the arguments and the errors."""
        with stopwatch.stage("plan"):
            bounds = capped(self.source.bounds(), ends)
            if _SIZES.isdisjoint(self.config.source.model_fields_set):
                self._size.shares = self.scanner.runner.shares
            window = self._next_window(bounds)
            several = len({place.topic for place in bounds}) > 1
            later = capped(self.source.bounds(), ends) if several else bounds
            if self.state.lives is not None:
                self.state.lives.meet(self.state.tables)
            used = in_use(later, self.config.changefeed.partitions)
        window, scan = self._scan(window, bounds, used, stopwatch)
        if self._find_ahead(scan):
            # What the tables have was not known.
            window, scan = self._scan(window, bounds, used, stopwatch)
        if window.ranges:
            # After the messages: a topic that took the place of the one that they are to be of may do so at any time.
            topics.meet(self.state, self.source.topic_ids())
        refuse_shared(self.config, scan, self.state.tables, self.described(scan))
        empty = missing(scan.window, scan.results.read)
        self._report_empty(scan.window, empty)
        refuse_unreadable(scan, self.state, self.config.changefeed.protocol)
        self._size.learn(scan.results.counts.get("bytes", 0), scan.results.counts.get("messages", 0))
        OUTAGES.worked("source", "registry")
        return NextStep(scan, bounds, empty)

    def show(self, silent: Sequence[TopicPartition], found: NextStep) -> None:
        """Let the checkpoint name partitions that were added to a topic and hold the watermark back, for `status`."""
        known = self.state.checkpoint.partitions
        new = [place for place in silent if place not in known and place in found.bounds]
        # Before the first watermark a checkpoint without partitions shows that nothing was read.
        if new and known and self.state.keeps_cut:
            added = {place: Reading(found.bounds[place].start, None) for place in new}
            self.state.write(lambda last: replace(last, partitions={**last.partitions, **added}))

    def _next_window(self, bounds: Mapping[TopicPartition, OffsetRange], most: int = NO_LIMIT) -> Window:
        moving = self.state.checkpoint.moving
        if moving is not None and not self.targets.feed.order.has_watermark:
            # The names have moved: what else came of their rows since would be taken for rows that the tables have.
            at = {place: self.state.next_offsets.get(place, span.start) for place, span in bounds.items()}
            bounds = capped(bounds, {**at, **moving.ends})
        size, whole = self._size, self.scanner.unsplit
        size.is_by_share = bool(whole) or most < NO_LIMIT
        limit = min(size.messages, most)
        return next_window(self.state.next_offsets, bounds, limit, self._least(), whole, size.share)

    def _scan(
        self,
        window: Window,
        bounds: Mapping[TopicPartition, OffsetRange],
        used: Mapping[TopicPartition, int],
        stopwatch: Stopwatch,
    ) -> tuple[Window, WindowScan]:
        """Scan a window, or a shorter one where its messages have more bytes than a step may read."""
        most_bytes = self._size.most_bytes
        while True:
            where = self._place(window, bounds, is_whole=most_bytes == NO_LIMIT)
            limits = self._size.limits(most_bytes)
            if where is Where.TASKS:
                limits = replace(limits, splits=splits(self.targets, self.state.tables))
            try:
                return window, self.scanner.scan(window, self.state, used, stopwatch, where=where, limits=limits)
            except WindowTooLargeError as found:
                self._size.learn(found.size, found.messages)
            shorter = self._next_window(bounds, window.messages // 2)
            if shorter.messages >= window.messages:
                # It cannot be shorter: a step that failed left tables as far as its end, or it is a message each.
                most_bytes = NO_LIMIT
            window = shorter

    def _place(self, window: Window, bounds: Mapping[TopicPartition, OffsetRange], *, is_whole: bool) -> Where:
        """Where a window is decoded; one that had too many bytes and cannot be shorter is not read at once."""
        behind = sum(max(0, bounds[place].end - span.end) for place, span in window.ranges.items() if place in bounds)
        most = 0 if is_whole else self.config.source.bytes_per_step
        choice = self.scanner.runner.placement(window, self._size.bytes_of(window), most, behind)
        if window.messages and choice.where is not self._where:
            logger().info("window placed", messages=window.messages, where=str(choice.where), because=choice.because)
            self._where = choice.where
        return choice.where

    def _report_empty(self, window: Window, empty: Mapping[TopicPartition, int]) -> None:
        """Refuse offsets without a message, or log them once for each partition."""
        if self.config.source.missing_offsets == "stop":
            refuse_missing(window, empty)
        for place, count in empty.items():
            if place not in self._reported:
                start, end = window.ranges[place]
                logger().warning("offsets without a message", partition=str(place), missing=count, start=start, end=end)
        self._reported |= empty.keys()

    def _find_ahead(self, scan: WindowScan) -> bool:
        """Take note of tables that a crash left in the catalog, with rows, before any checkpoint knew of them."""
        names = {name for name, _ in scan.results.parts if name not in self.state.tables} - self.state.ahead.keys()
        if not self.targets.feed.order.has_watermark:
            found = self.covered(names - self.state.covered.keys())
            self.state.covered |= found
            return bool(found)
        applied = {name: self.targets.applied_ts(name) or 0 for name in names}
        ahead = {name: ts for name, ts in applied.items() if ts > self.state.resolved_ts}
        self.state.ahead |= ahead
        return bool(ahead)

    def covered(self, names: Iterable[TableName]) -> dict[TableName, AppliedOffsets]:
        """What tables have beyond the checkpoint, by place; nothing where a resolved ts shows it."""
        if self.targets.feed.order.has_watermark:
            return {}
        found = {name: self.targets.covered(name).beyond(self.state.next_offsets) for name in names}
        return {name: covered for name, covered in found.items() if covered}

    def _least(self) -> dict[TopicPartition, int]:
        """Ends of the window of a step in offset order that failed: a shorter one might leave out a DDL that is done.

        A backfill of single tables may have come so far that no window holds it; it stops before any DDL of theirs.
        """
        state, moving = self.state, self.state.checkpoint.moving
        if moving is not None:
            return dict(moving.ends)
        ends = furthest(state.covered.values())
        messages = sum(max(0, end - state.next_offsets.get(place, 0)) for place, end in ends.items())
        is_long = messages > self.config.source.messages_per_step * self._longest
        return {} if is_long and state.checkpoint.partitions else ends

    def has_news(self, scan: WindowScan) -> bool:
        """True if the checkpoint can advance: by a higher watermark, or in a feed without one by any message."""
        # All messages may be read where a DDL ended the window below the watermark, or retires a topic that held it.
        if scan.upto is None:
            return False
        if not self.targets.feed.order.has_watermark:
            # Rows that wait for their schema are read again: where nothing else came, they wait.
            held = scan.results.held
            return any(held.get(place, span.end) > span.start for place, span in scan.window.ranges.items())
        moving = self.state.checkpoint.moving
        if moving is not None and scan.upto < max(moving.tables.values(), default=0):
            return False
        # A step that failed may have left tables ahead; a checkpoint below them would not be one cut through all.
        is_late = scan.error is not None or self.is_longest
        is_cut = scan.upto >= self.state.reached or (is_late and not self.state.is_without_checkpoint)
        # A DDL that ends the window may follow the watermark of its commit ts: no later window would pass it.
        is_behind_mark = scan.ceiling == self.state.resolved_ts and bool(scan.ddl)
        is_newer = scan.upto > self.state.resolved_ts or is_behind_mark
        return is_newer and (is_cut or not self.state.keeps_cut)

    @property
    def _longest(self) -> int:
        """How many times the usual size a window may have.

        Without a checkpoint all that the tables have is read in one window: a part of it would bring tables back that
        were renamed or dropped since. Little is held of it, as the rows that a table has are dropped where they are
        read. What the changefeed reads in one window, a job beside it with its smaller ones may have to read in one,
        too.
        """
        if self.targets.feed.order.has_watermark and self.state.is_without_checkpoint:
            return NO_LIMIT
        return LONGEST * (1 if self.state.keeps_cut else PIECE)

    def adapt(self, found: NextStep, *, moved: bool) -> None:
        """A watermark that stands still in a full window wants a longer one, not the same one again.

        Where there is no more to read, a longer one has nothing more, and the limits of a step hold for what comes.
        """
        upto = self.targets.feed.order.as_of(found.scan.upto)
        is_below_tables = upto is not None and upto > self.state.resolved_ts
        if moved or found.scan.error is not None:
            self._size.adapt(self._longest, is_enough=True)
        elif is_below_tables or not found.is_complete(self.state.next_offsets):
            self._size.adapt(self._longest, is_enough=False)

    def described(self, scan: WindowScan) -> list[TableVersion]:
        """The tables that a feed begun midstream only describes: no CREATE TABLE of them comes.

        A version is the TSO of the DDL that made it: a DDL of this window or a later one brings its table. One that an
        earlier window brought is that of a table which has left its name since. Versions that rows describe are no TSO:
        the rows of each segment bring theirs.
        """
        if scan.upto is None or self.config.changefeed.start != "midstream" or self.scanner.rows_describe:
            return []
        made = [ddl.barrier.change.after for ddl in scan.ddl]
        known = self.state.declared
        below = {name: cuts[0] - 1 for name, cuts in scan.job.marks.cuts.items()}
        found = [version for key, version in scan.versions.items() if key in scan.new_versions and version not in made]
        return [
            version
            for version in found
            if version.version <= below.get(version.name, scan.upto) and version.name not in known
        ]


def in_use(bounds: Mapping[TopicPartition, OffsetRange], limit: int | None) -> dict[TopicPartition, int]:
    """Ends of the partitions whose resolved ts count: TiCDC never writes beyond `limit`, its `partition-num`."""
    return {place: span.end for place, span in bounds.items() if limit is None or place.partition < limit}


def refuse_unreadable(scan: WindowScan, state: State, protocol: str) -> None:
    """Refuse a first window of nothing but bad messages: set aside, they would hide that the protocol is wrong.

    Later windows may hold a bad message alone, so they pass.

    Raises:
        TerminalError: With the first of them.
    """
    messages = scan.results.counts.get("messages", 0)
    is_first = not state.versions and not state.checkpoint.resolved and not state.checkpoint.tables
    if not is_first or not scan.bad or len(scan.bad) < messages:
        return
    first = min(scan.bad, key=lambda item: (item.partition, item.offset))
    what = (
        f"None of the {messages} messages that were read is one of protocol {protocol}. The first: {first.error.what}"
    )
    raise TerminalError(
        what,
        "check changefeed.protocol; if the messages really are damaged, start after them with "
        "`applier backfill -c FILE --from OFFSETS`.",
    )
