"""What a running process knows of its changefeed, for those who watch it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import cast

from applier.changefeed.route import Route
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.errors import ApplierError
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import StatusLine, logger
from applier.runtime.outages import OUTAGES
from applier.sink.control.control import Control, DeadLetter, SchemaDecision
from applier.sink.control.rows import last_decisions, newest_first
from applier.sink.control.tables import DEAD_LETTERS, SCHEMA_CHANGES
from applier.sink.iceberg.snapshot import Figures
from applier.watch.compose import Facts, compose, empty
from applier.watch.history import History
from applier.watch.prometheus.exposition import Exposition
from applier.watch.report import StepProgress, TableProgress, TableState, iso, iso_of
from applier.watch.view import View

STEPS = 20
"""Steps whose stages are shown."""

_READ_SECONDS = 10.0
"""Time between two readings of the control tables; one that would come earlier is made up for. What said that there is
nothing is read at once."""


@dataclass(slots=True)
class Board:
    """Takes what each step did, from the thread of the steps, and shows it to any other.

    A failure in here is logged once and stops nothing: the tables matter, not those who watch them.

    Args:
        config: The configuration.

    Attributes:
        found: What was known when the changefeed was taken; None before.
    """

    config: Config
    found: View | None = field(default=None, init=False)
    phase: str = field(default="starting", init=False)
    history: History = field(default_factory=History, init=False)
    metrics: Exposition = field(init=False)
    _state: State | None = field(default=None, init=False)
    _figures: dict[tuple[str, ...], Figures] = field(default_factory=dict, init=False)
    _first: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    _known: frozenset[tuple[str, ...]] = field(default_factory=frozenset, init=False)
    _stamps: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    _steps: deque[StepProgress] = field(default_factory=lambda: deque(maxlen=STEPS), init=False)
    _decisions: Sequence[SchemaDecision] = field(default=(), init=False)
    _letters: Sequence[DeadLetter] = field(default=(), init=False)
    _read: tuple[int, int] = field(default=(-1, -1), init=False)
    _read_at: float = field(default=float("-inf"), init=False)
    _is_broken: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.metrics = Exposition(self.config, self.view)

    def begin(self, pipeline: Pipeline) -> None:
        """The changefeed is held, and its checkpoint is read."""
        self._state, self.phase = pipeline.state, "running"
        with self._guarded():
            route = Route(self.config.tables.route)
            self._known = frozenset(route.identifier(name) for name in pipeline.state.checkpoint.tables)
            self.metrics.begin(pipeline.state)
            self._look(pipeline)
            self.found = self.view()

    def take(self, pipeline: Pipeline, step: Step) -> None:
        """A step was made, or one found nothing to do."""
        status, messages = step.status, step.status.messages if step.moved else 0
        with self._guarded():
            with self._lock:
                self.history.add(status.now_ms / 1000, status.lag_seconds, status.rows, messages, status.backlog)
                if step.moved:
                    self._steps.appendleft(_progress_of(status))
            self.metrics.take(pipeline.state, step)
            self._look(pipeline)

    def end(self, pipeline: Pipeline) -> None:
        """The run ends: read what its last step recorded, also one that failed."""
        self.phase, self._read_at = "stopping", float("-inf")
        with suppress(Exception):
            # What ended the run counts, not that this could not be read.
            self._read_control(cast("Control", pipeline.state.control))

    def view(self) -> View:
        """What is known now; any thread may ask."""
        now, limit, state = time.time(), self.config.http.max_lag_seconds, self._state
        with self._lock:
            points, steps = [*self.history.points], [*self._steps]
        if state is None:
            report = empty(self.config, limit, int(now * 1000))
            return View(report, points, self.phase, OUTAGES.current, now)
        # First, so that what is read meanwhile is shown as unread and not the other way round.
        is_behind = _written(cast("Control", state.control)) != self._read
        last, decisions = state.checkpoint, self._decisions
        route = Route(self.config.tables.route)
        tables = [(name, self._progress(name, route.identifier(name), last.snapshots)) for name in sorted(last.tables)]
        facts = Facts(last, tables, decisions, self._letters, steps)
        report = compose(self.config, facts, limit, int(now * 1000))
        commits = {".".join(place): self._commits(place, found) for place, found in dict(self._figures).items()}
        return View(report, points, self.phase, OUTAGES.current, now, decisions, commits, is_behind)

    def _commits(self, place: tuple[str, ...], found: Figures) -> int:
        # A table that was made anew counts from its beginning.
        first = self._first.get(place, 0)
        return found.sequence - (first if first <= found.sequence else 0)

    def _progress(
        self, name: TableName, identifier: tuple[str, ...], cut: Mapping[tuple[str, ...], int]
    ) -> TableProgress:
        found, stamp = self._figures.get(identifier), self._stamps.get(identifier, 0)
        state: TableState = "in step" if identifier in cut else "empty"
        progress = TableProgress(
            str(name),
            ".".join(identifier),
            state,
            resolved_ts=stamp or None,
            resolved=iso_of(stamp),
            cut_snapshot_id=cut.get(identifier),
        )
        if found is None:
            return progress
        return replace(
            progress,
            rows=found.rows,
            files=found.files,
            committed=iso(found.committed_ms),
            snapshot_id=found.snapshot_id,
        )

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, no step may end for it
            if not self._is_broken:
                said = str(error) if isinstance(error, ApplierError) else type(error).__name__
                logger().warning("page is not up to date", error=said)
            self._is_broken = True
        else:
            self._is_broken = False

    def _look(self, pipeline: Pipeline) -> None:
        """Ask for what has changed, and nothing else: this runs in the thread of the steps."""
        for writer in pipeline.targets.writers:
            identifier, known = writer.table.identifier, self._figures.get(writer.table.identifier)
            if writer.head is None:
                self._figures.pop(identifier, None)
            elif known is None or known.snapshot_id != writer.head:
                found = cast("Figures", writer.table.figures)
                # All that a table has which was made since, this process committed.
                self._first.setdefault(identifier, found.sequence if identifier in self._known else 0)
                self._figures[identifier] = found
            self._stamps[identifier] = writer.known.resolved_ts if writer.known else 0
        self._forget_gone(pipeline.state)
        self._read_control(cast("Control", pipeline.state.control))

    def _forget_gone(self, state: State) -> None:
        """Forget tables that are gone, once they are as many as those that are there."""
        tables = state.checkpoint.tables
        if len(self._stamps) <= 2 * len(tables) + 100:
            return
        route = Route(self.config.tables.route)
        kept = {route.identifier(name) for name in tables}
        # Made anew, as another thread may be reading the old ones.
        self._figures = {place: found for place, found in self._figures.items() if place in kept}
        self._first = {place: found for place, found in self._first.items() if place in kept}
        self._stamps = {place: found for place, found in self._stamps.items() if place in kept}

    def _read_control(self, control: Control) -> None:
        written, now = _written(control), time.monotonic()
        is_due = now - self._read_at >= _READ_SECONDS
        if written[0] != self._read[0] and (is_due or not self._decisions):
            decisions = control.decisions()
            self._decisions = last_decisions(decisions)
            self.metrics.decide(decisions, self._decisions)
            self._read, self._read_at = (written[0], self._read[1]), now
        if written[1] != self._read[1] and (is_due or not self._letters):
            self._letters = newest_first(control.letters(whole=False))
            self._read, self._read_at = (self._read[0], written[1]), now


def _written(control: Control) -> tuple[int, int]:
    return control.written[SCHEMA_CHANGES], control.written[DEAD_LETTERS]


def _progress_of(status: StatusLine) -> StepProgress:
    lag = status.lag_seconds
    figures = status.messages, status.rows, status.tables, status.backlog
    seconds = {stage: round(spent, 3) for stage, spent in status.seconds.items()}
    return StepProgress(status.step, iso(status.now_ms), None if lag is None else round(lag, 3), *figures, seconds)
