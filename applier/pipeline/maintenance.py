"""Maintains tables between two steps: units of work that are due, within a budget."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from applier.changefeed.checkpoint import Checkpoint
from applier.config.settings import MaintenanceSection
from applier.errors import CheckpointConflict, TableMismatch, TransientError
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.sink.iceberg.orphans import Neighbours
from applier.sink.upkeep import Counts, Task, Thresholds, Upkeep

Clock = Callable[[], float]
"""Seconds that only grow."""

KEPT_SECONDS = 300.0
"""Wall time whose share may be saved up while nothing is due."""

LOOK_COMMITS = 20
"""Commits to a table between two looks at its manifests and snapshots."""

LOOK_SECONDS = 3600.0
"""Time between two looks at what only time changes."""

ORPHAN_SECONDS = 86_400.0
"""Time between two searches for orphan files, which list all files of a table."""

REST_SECONDS = 600.0
"""Time that a table is left alone after maintenance failed."""


@dataclass(slots=True)
class Budget:
    """A share of wall time. One unit of work may overdraw it; the next then waits until that is made up.

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
        head: Its head at the last look.
        commits: Looks that found another head.
        next_look: When to look at what only time changes; 0 before the first look.
        rests_until: When maintenance may be tried again.
        turn: Number of the unit of work that it had last; the table that waited longest comes first.
    """

    due: set[Task] = field(default_factory=set)
    head: int | None = None
    commits: int = 0
    next_look: float = 0.0
    rests_until: float = 0.0
    turn: int = 0


@dataclass(slots=True)
class Maintenance:
    """Maintains the tables of a changefeed."""

    settings: MaintenanceSection
    targets: TargetTables
    clock: Clock = time.monotonic
    _budget: Budget = field(init=False)
    _memories: dict[tuple[str, ...], _Memory] = field(default_factory=dict, init=False)
    _turns: int = field(default=0, init=False)
    _neighbours: Neighbours = field(init=False)

    def __post_init__(self) -> None:
        self._neighbours = Neighbours(self.targets.catalog, self.clock)
        self._budget = Budget(self.settings.share, self.clock)

    def tend(self, checkpoint: Checkpoint) -> Mapping[str, int]:
        """Do what is due, as far as the budget goes. To be called while all tables are where the checkpoint says.

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
        for upkeep, memory in self._waiting(self._parked(checkpoint)):
            for task in self.settings.tasks:
                if task not in memory.due:
                    continue
                if self.clock() >= end or not self._budget.allows():
                    return +done
                end = min(end, self.clock() + self.settings.pause_seconds)
                self.targets.confirm()
                done.update(self._run(task, upkeep, memory, checkpoint))
        return +done

    def _parked(self, checkpoint: Checkpoint) -> frozenset[tuple[str, ...]]:
        """Tables that are left alone: their files may be those of a copy in which they are brought back, too."""
        states = {name: tracked.completeness for name, tracked in checkpoint.tables.items()}
        return frozenset(self.targets.identifier(name) for name, known in states.items() if known and known.is_parked)

    def _waiting(self, parked: frozenset[tuple[str, ...]]) -> list[tuple[Upkeep, _Memory]]:
        """Tables for which something is due, those first that waited longest."""
        now = self.clock()
        found = []
        for writer in self.targets.writers:
            if writer.head is None or writer.known is None or writer.table.identifier in parked:
                continue
            upkeep = Upkeep(writer, self._limits, self._neighbours)
            memory = self._memories.setdefault(writer.table.identifier, _Memory())
            self._look(upkeep, memory, now)
            if memory.due and now >= memory.rests_until:
                found.append((upkeep, memory))
        return sorted(found, key=lambda item: item[1].turn)

    def _look(self, upkeep: Upkeep, memory: _Memory, now: float) -> None:
        """Find out what is due; it costs nothing while the table stands still."""
        has_moved, is_time, is_first = upkeep.writer.head != memory.head, now >= memory.next_look, memory.head is None
        memory.head = upkeep.writer.head
        memory.commits += has_moved
        if has_moved and "compact" in self.settings.tasks and upkeep.is_worn:
            memory.due.add("compact")
        if (has_moved and memory.commits % LOOK_COMMITS == 0) or is_time:
            if upkeep.has_many_manifests:
                memory.due.add("manifests")
            if upkeep.snapshots > (1 if is_time and not is_first else self._allowance):
                memory.due.add("expire")
        if is_time:
            memory.next_look = now + LOOK_SECONDS
            if self._may_have_orphans(upkeep, is_first=is_first):
                memory.due.add("orphans")

    @property
    def _allowance(self) -> int:
        """Snapshots above the wanted number that wait, so that dropping them pays."""
        return self.settings.snapshots + self.settings.snapshots // 5

    @property
    def _limits(self) -> Thresholds:
        return Thresholds(**self.settings.model_dump(exclude={"tasks", "share", "pause_seconds"}))

    @staticmethod
    def _may_have_orphans(upkeep: Upkeep, *, is_first: bool) -> bool:
        last = upkeep.orphans_removed_at
        # A table that was made elsewhere does not say; a start alone is no reason to list all its files.
        return not is_first if last is None else time.time() - last / 1000 > ORPHAN_SECONDS

    def _run(self, task: Task, upkeep: Upkeep, memory: _Memory, checkpoint: Checkpoint) -> Counts:
        writer, start = upkeep.writer, self.clock()
        name = str(writer.table)
        self._turns += 1
        memory.turn = self._turns
        try:
            counts = _work(task, upkeep, checkpoint)
        except CheckpointConflict:
            raise
        except (TransientError, TableMismatch) as error:
            memory.rests_until = self.clock() + REST_SECONDS
            logger().warning("maintenance put off", table=name, task=task, because=str(error))
            return {}
        finally:
            self._budget.spend(self.clock() - start)
        # A compaction goes on, a unit at a time, until there is nothing left to do.
        if task != "compact" or not any(counts.values()):
            memory.due.discard(task)
        if any(counts.values()):
            logger().info("table maintained", table=name, task=task, seconds=round(self.clock() - start, 3), **counts)
        if writer.table.identifier in self.targets.snapshots:
            self.targets.committed(writer, writer.head)
        return counts


def _work(task: Task, upkeep: Upkeep, checkpoint: Checkpoint) -> Counts:
    match task:
        case "compact":
            return upkeep.compact()
        case "manifests":
            return upkeep.rewrite_manifests()
        case "expire":
            return upkeep.expire(checkpoint.snapshots.get(upkeep.writer.table.identifier))
        case "orphans":
            return upkeep.remove_orphans()
