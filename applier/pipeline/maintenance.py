"""Maintains tables beside the steps: units of work that are due, whose commits take their turn between two steps."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.config.settings import MaintenanceSection
from applier.errors import ApplierError, CheckpointConflict
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.runtime.threads import Asking
from applier.sink.iceberg.orphans import Neighbours
from applier.sink.upkeep import Counts, Task, Thresholds, Upkeep
from applier.sink.write.merge import Merge
from applier.sink.write.table_writer import TableWriter

Clock = Callable[[], float]
"""Seconds that only grow."""

KEPT_SECONDS = 300.0
"""Wall time whose share may be saved up while nothing is due."""

LOOK_COMMITS = 20
"""Commits to a table between two looks at its manifests, and at the snapshots that others made."""

LOOK_SECONDS = 3600.0
"""Time between two looks at what only time changes."""

ORPHAN_SECONDS = 86_400.0
"""Time between two searches for orphan files, which list all files of a table."""

REST_SECONDS = 600.0
"""Time that a table is left alone after maintenance failed."""

UNITS = 3
"""Units of work at a time. Each mostly waits for storage; a compaction holds its rows in memory."""

HANGING_SECONDS = 3600.0
"""Time after which a unit of work counts as hanging: it gives its place to others, and its table waits for it."""

_POLL_SECONDS = 0.2

DUE_SNAPSHOTS = 1.1
"""Share of the snapshots to keep from which on the others expire: dropping several at once pays."""

OVERDUE = 1.1
"""Share of what makes a unit of work due from which on the budget does not hold it up."""

BEHIND = 1.2
"""Share of its limits from which on the maintenance of a table is behind."""


@dataclass(slots=True)
class Budget:
    """A share of wall time. Units of work may overdraw it; the next then waits until that is made up.

    Args:
        share: Seconds of work a second.
    """

    share: float
    clock: Clock
    _left: float = field(default=0.0, init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._at = self.clock()

    def allows(self) -> bool:
        """Whether a unit of work may begin."""
        now = self.clock()
        self._left = min(self._left + (now - self._at) * self.share, KEPT_SECONDS * self.share)
        self._at = now
        return self._left > 0

    def spend(self, seconds: float) -> None:
        """Take note of work that was done."""
        self._left -= seconds


@dataclass(slots=True)
class _Memory:
    """What is remembered of one table.

    Attributes:
        due: What is to be done, with the share of its limit that it has reached.
        head: Its head at the last look.
        commits: Looks that found another head.
        snapshots: Those that it keeps, at least: as last read, and one for each head since.
        first_day: That of `Upkeep` at the last look.
        next_look: When to look at what only time changes; 0 before the first look.
        rests_until: When maintenance may be tried again.
        turns: Number of the unit of work that it had last, by task; the table that waited longest comes first.
        takes_turn: Its compaction waits until no step is under way.
        is_behind: The log says that its maintenance is behind.
    """

    due: dict[Task, float] = field(default_factory=dict)
    head: int | None = None
    commits: int = 0
    snapshots: int = 0
    first_day: int = 0
    next_look: float = 0.0
    rests_until: float = 0.0
    turns: dict[Task, int] = field(default_factory=dict)
    takes_turn: bool = False
    is_behind: bool = False

    def look(self, upkeep: Upkeep, settings: MaintenanceSection, now: float) -> None:
        """Find out what is due; it costs nothing while the table stands still."""
        has_moved, is_time, is_first = upkeep.writer.head != self.head, now >= self.next_look, self.head is None
        self.head = upkeep.writer.head
        self.commits += has_moved
        if has_moved and "compact" in settings.tasks and (worn := upkeep.worn) >= 1:
            self.due["compact"] = worn
        if upkeep.first_day > self.first_day:
            self.first_day, self.due["changes"] = upkeep.first_day, 1.0
        is_turn = (has_moved and self.commits % LOOK_COMMITS == 0) or is_time
        if is_turn and upkeep.has_many_manifests:
            self.due["manifests"] = 1.0
        self.snapshots += has_moved
        most = 1 if is_time and not is_first else DUE_SNAPSHOTS * settings.snapshots
        if is_turn or (has_moved and self.snapshots > most):
            self.snapshots = upkeep.snapshots
            if self.snapshots > most:
                self.due["expire"] = self.snapshots / settings.snapshots
        if is_time:
            self.next_look = now + LOOK_SECONDS
            if _may_have_orphans(upkeep, is_first=is_first):
                self.due["orphans"] = 1.0


@dataclass(slots=True)
class _Unit:
    """A unit of work on a table, which runs beside the steps since some time of the clock."""

    task: Task
    identifier: tuple[str, ...]
    work: Asking
    start: float
    hangs: bool = False

    def look(self, now: float) -> None:
        """Say it once if it hangs."""
        if not self.hangs and now - self.start > HANGING_SECONDS:
            self.hangs = True
            logger().warning("maintenance hangs", table=".".join(self.identifier), task=self.task)


@dataclass(slots=True)
class Maintenance:
    """Maintains the tables of a changefeed.

    What reads and writes many files runs in threads of its own, with writers of its own, whose commits are fenced like
    all others: files are merged, snapshots expire, orphans go. Merged files are committed between two steps, with the
    rows that died since; so are what Iceberg's action rewrites, and manifests.

    Args:
        begin: Starts a unit of work.

    Attributes:
        behind: Tables beyond their limits, with the share of the limit, as of the last look.
    """

    settings: MaintenanceSection
    targets: TargetTables
    clock: Clock = time.monotonic
    begin: Callable[[Asking], None] = Asking.start
    behind: dict[tuple[str, ...], float] = field(default_factory=dict, init=False)
    _budget: Budget = field(init=False)
    _memories: dict[tuple[str, ...], _Memory] = field(default_factory=dict, init=False)
    _turns: int = field(default=0, init=False)
    _neighbours: Neighbours = field(init=False)
    _units: list[_Unit] = field(default_factory=list, init=False)
    _limits: Thresholds = field(init=False)

    def __post_init__(self) -> None:
        self._limits = Thresholds(**self.settings.model_dump(exclude={"tasks", "share", "pause_seconds"}))
        self._neighbours = Neighbours(self.targets.catalog, self.clock)
        self._budget = Budget(self.settings.share, self.clock)

    def tend(self, checkpoint: Checkpoint) -> Mapping[str, int]:
        """Commit what was prepared, and begin what is due, as far as the budget goes.

        To be called while all tables are where the checkpoint says.

        Args:
            checkpoint: The newest one. Of each table the snapshot that it names stays, and all that came later.

        Returns:
            What was done, by the names of `Counts`.

        Raises:
            CheckpointConflict: Another applier holds the changefeed, or one of its tables.
        """
        done: Counter[str] = Counter()
        if not self.settings.tasks:
            return done
        # What was saved up must not keep the changes that are coming in from being seen. The first unit begins however
        # long the look at the tables took: else many of them would never be mended.
        end = math.inf
        parked = self._parked(checkpoint)
        for counts in self._taken_in(parked):
            done.update(counts)
            end = self.clock() + self.settings.pause_seconds
        for upkeep, memory in self._waiting(parked, _days_kept(self.targets, checkpoint.tables)):
            # What waited longest comes first, or a task that is always due would keep the others waiting.
            for task in sorted(self.settings.tasks, key=lambda task: memory.turns.get(task, 0)):
                if task not in memory.due or (memory.due[task] < OVERDUE and not self._budget.allows()):
                    continue
                is_beside = task in ("expire", "orphans") or (task == "compact" and not memory.takes_turn)
                if is_beside:
                    if len(self._running()) < UNITS:
                        self._begin(task, upkeep, memory, checkpoint)
                    break
                if self.clock() >= end:
                    break
                end = min(end, self.clock() + self.settings.pause_seconds)
                done.update(self._run(task, upkeep, memory))
        return +done

    def finish(self, checkpoint: Checkpoint, stop: threading.Event) -> None:
        """As `tend`, until nothing is under way or due, or asked to stop: no later step would commit it."""
        self.tend(checkpoint)
        while (running := self._running()) and not stop.is_set():
            running[0].work.join(_POLL_SECONDS)
            if any(not unit.work.is_alive() for unit in self._units):
                self.tend(checkpoint)

    def _running(self) -> list[_Unit]:
        """Units of work that are under way and come to an end, as far as that can be said."""
        for unit in self._units:
            unit.look(self.clock())
        return [unit for unit in self._units if not unit.hangs]

    def _parked(self, checkpoint: Checkpoint) -> frozenset[tuple[str, ...]]:
        """Tables that are left alone: their files may be those of a copy in which they are brought back, too."""
        states = {name: tracked.completeness for name, tracked in checkpoint.tables.items()}
        parked = [name for name, known in states.items() if known and known.is_parked]
        changes = [own for name in parked if (own := self.targets.maker.rules.changes(name)) is not None]
        return frozenset(self.targets.identifier(name) for name in (*parked, *changes))

    def _writers(self, parked: frozenset[tuple[str, ...]]) -> dict[tuple[str, ...], TableWriter]:
        found = {writer.table.identifier: writer for writer in self.targets.writers}
        return {
            identifier: writer
            for identifier, writer in found.items()
            if writer.head is not None and writer.known is not None and identifier not in parked
        }

    def _waiting(
        self, parked: frozenset[tuple[str, ...]], days: Mapping[tuple[str, ...], int]
    ) -> list[tuple[Upkeep, _Memory]]:
        """Tables for which something is due and nothing under way, those first that waited longest."""
        now, found = self.clock(), []
        under_way = {unit.identifier for unit in self._units}
        self.behind.clear()
        for identifier, writer in self._writers(parked).items():
            upkeep = Upkeep(writer, self._limits, self._neighbours, days=days.get(identifier))
            memory = self._memories.setdefault(identifier, _Memory())
            memory.look(upkeep, self.settings, now)
            self._say_behind(identifier, memory)
            if memory.due and now >= memory.rests_until and identifier not in under_way:
                found.append((upkeep, memory))
        return sorted(found, key=lambda item: max(item[1].turns.values(), default=0))

    def _say_behind(self, identifier: tuple[str, ...], memory: _Memory) -> None:
        most = max((memory.due[task] for task in self.settings.tasks if task in memory.due), default=0.0)
        if most > BEHIND:
            self.behind[identifier] = most
        if (most > BEHIND) != memory.is_behind:
            memory.is_behind = most > BEHIND
            say = logger().warning if memory.is_behind else logger().info
            event = "maintenance behind" if memory.is_behind else "maintenance caught up"
            say(event, table=".".join(identifier), of_limit=round(most, 2), due=sorted(memory.due))

    def _begin(self, task: Task, upkeep: Upkeep, memory: _Memory, checkpoint: Checkpoint) -> None:
        """Begin a unit of work beside the steps."""
        self.targets.confirm()
        identifier, uuid = upkeep.writer.table.identifier, upkeep.writer.table.uuid
        # A checkpoint to come may be the first that names a snapshot of the table: this one, or a later one.
        cut = checkpoint.cut.heads.get(identifier, upkeep.writer.head)
        known = upkeep.dead_positions if task == "compact" else {}

        def work() -> Merge | Counts | None:
            table = self.targets.catalog.load(identifier)
            if table is None or table.uuid != uuid:
                return {}
            writer = TableWriter(table, self.targets.feed.name, self.targets.feed.epoch)
            if writer.head is None or writer.known is None:
                return {}
            beside = replace(upkeep, writer=writer)
            match task:
                case "compact":
                    return beside.merge(known)
                case "expire":
                    return beside.expire(cut)
                case _:
                    return beside.remove_orphans()

        self._turns += 1
        memory.turns[task] = self._turns
        unit = _Unit(task, identifier, Asking(f"maintenance of {'.'.join(identifier)}", [(task, work)]), self.clock())
        self._units.append(unit)
        self.begin(unit.work)

    def _taken_in(self, parked: frozenset[tuple[str, ...]]) -> Iterator[Counts]:
        """What units of work did that have ended; merged files are committed, those of several tables at a time."""
        ended = [unit for unit in self._units if not unit.work.is_alive()]
        if not ended:
            return
        self._units = [unit for unit in self._units if unit not in ended]
        self.targets.confirm()
        writers = self._writers(parked)

        def take(unit: _Unit) -> Counts:
            writer = writers.get(unit.identifier)
            if unit.work.error is not None:
                raise unit.work.error
            if writer is None:
                return {}
            [(_, result)] = unit.work.answers
            if isinstance(result, Merge):
                return Upkeep(writer, self._limits).take_in(result)
            if result:
                writer.look()
            return result or {}

        outcomes = self.targets.side_by_side(lambda unit: self._outcome(unit, take), ended)
        for unit, counts in zip(ended, outcomes, strict=True):
            memory = self._memories[unit.identifier]
            memory.takes_turn = _takes_turn(unit, counts)
            # A unit that hung has worked for next to nothing of that time.
            self._budget.spend(0.0 if unit.hangs else self.clock() - unit.start)
            if not memory.takes_turn:
                self._settle(unit.task, unit.identifier, memory, counts, unit.start)
            if unit.identifier in writers:
                self._follow(writers[unit.identifier])
            yield counts or {}

    def _outcome(self, unit: _Unit, take: Callable[[_Unit], Counts]) -> Counts | None:
        """What a unit of work did; None if it failed so that it may be tried again, when the table has rested."""
        try:
            return take(unit)
        except CheckpointConflict:
            raise
        except ApplierError as error:
            self._put_off(unit.task, unit.identifier, error)
            return None

    def _run(self, task: Task, upkeep: Upkeep, memory: _Memory) -> Counts:
        """Do a unit of work while no step is under way."""
        writer, start = upkeep.writer, self.clock()
        self._turns += 1
        memory.turns[task] = self._turns
        self.targets.confirm()
        counts, memory.takes_turn = None, False
        try:
            counts = _unit_of(task, upkeep)()
        except CheckpointConflict:
            raise
        except ApplierError as error:
            self._put_off(task, writer.table.identifier, error)
        finally:
            self._budget.spend(self.clock() - start)
        self._settle(task, writer.table.identifier, memory, counts, start)
        self._follow(writer)
        return counts or {}

    def _put_off(self, task: Task, identifier: tuple[str, ...], error: ApplierError) -> None:
        self._memories[identifier].rests_until = self.clock() + REST_SECONDS
        logger().warning("maintenance put off", table=".".join(identifier), task=task, because=str(error))

    def _settle(
        self, task: Task, identifier: tuple[str, ...], memory: _Memory, counts: Counts | None, start: float
    ) -> None:
        if counts is None:
            return
        has_done = any(counts.values())
        # A compaction goes on, a unit at a time, until there is nothing left to do.
        if task == "compact" and has_done:
            memory.due[task] = 1.0
        else:
            memory.due.pop(task, None)
        if has_done:
            seconds = round(self.clock() - start, 3)
            logger().info("table maintained", table=".".join(identifier), task=task, seconds=seconds, **counts)

    def _follow(self, writer: TableWriter) -> None:
        if writer.table.identifier in self.targets.snapshots:
            self.targets.follow(writer)


def _days_kept(targets: TargetTables, names: Iterable[TableName]) -> dict[tuple[str, ...], int]:
    """For how many days the changes of tables are kept, by where these are; without those that are kept for good."""
    rules = targets.maker.rules
    found = ((rules.shape_of(name).history_days, rules.changes(name)) for name in names if rules.shapes)
    return {targets.identifier(own): days for days, own in found if days is not None and own is not None}


def _unit_of(task: Task, upkeep: Upkeep) -> Callable[[], Counts]:
    """What is done while no step is under way."""
    in_turn = {"changes": upkeep.drop_days, "compact": upkeep.compact, "manifests": upkeep.rewrite_manifests}
    return in_turn[task]


def _takes_turn(unit: _Unit, counts: Counts | None) -> bool:
    """Whether a compaction is left to Iceberg's action, or its merge did not fit the table any more."""
    results = [result for _, result in unit.work.answers]
    return unit.task == "compact" and (results == [None] or (counts == {} and any(merge.parts for merge in results)))


def _may_have_orphans(upkeep: Upkeep, *, is_first: bool) -> bool:
    last = upkeep.orphans_removed_at
    # A table that was made elsewhere does not say; a start alone is no reason to list all its files.
    return not is_first if last is None else time.time() - last / 1000 > ORPHAN_SECONDS
