"""What a running process knows of its changefeed, for those who watch it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress
from typing import cast

from applier import wording
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.errors import ApplierError
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables import kept_tables
from applier.runtime.logs import Guard
from applier.runtime.outages import OUTAGES
from applier.sink.control.control import Control, DeadLetter, SchemaDecision
from applier.sink.control.rows import last_decisions, newest_first
from applier.sink.control.tables import DEAD_LETTERS, SCHEMA_CHANGES
from applier.sink.iceberg.snapshot import Figures
from applier.sink.write.table_writer import TableWriter
from applier.watch.compose import Facts, compose, dropped_table, empty
from applier.watch.history import History
from applier.watch.metrics import Exposition
from applier.watch.progress import TableHead, table_progress
from applier.watch.report import DroppedTable, StepProgress, Trouble, View, iso

STEPS = 20
"""Steps whose stages are shown."""

_READ_SECONDS = 10.0
"""Time between two readings of the control tables; one that would come earlier is made up for. What said that there is
nothing is read at once."""


class Board:
    """Takes what each step did, from the thread of the steps, and shows it to any other.

    A failure in here is logged once and stops nothing: the tables matter, not those who watch them. `found` is what was
    known when the changefeed was taken; None before.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.found: View | None = None
        self.phase = "starting"
        self.history = History()
        self.metrics = Exposition(config, self.view)
        self._state: State | None = None
        self._heads: dict[tuple[str, ...], TableHead] = {}
        self._first: dict[tuple[str, ...], int] = {}
        self._known: frozenset[tuple[str, ...]] = frozenset()
        self._cut: Mapping[tuple[str, ...], int] = {}
        self._kept: Mapping[tuple[str, ...], int] = {}
        self._dropped: Sequence[DroppedTable] | None = None
        self._steps: deque[StepProgress] = deque(maxlen=STEPS)
        self._decisions: Sequence[SchemaDecision] = ()
        self._letters: Sequence[DeadLetter] = ()
        self._read = (-1, -1)
        self._read_at = float("-inf")
        self._guard = Guard("page is not up to date", (ApplierError,))
        self._lock = threading.Lock()

    def begin(self, pipeline: Pipeline) -> None:
        """The changefeed is held, and its checkpoint is read; once more where its configuration was reloaded."""
        self.config, self._state, self.phase = pipeline.config, pipeline.state, "running"
        # What was read of the control tables is of the hold before.
        self._read, self._read_at = (-1, -1), float("-inf")
        with self._guard.block():
            route = self.config.route
            self._known = frozenset(route.identifier(name) for name in pipeline.state.checkpoint.tables)
            self.metrics.begin(pipeline.state, self.config)
            self._look(pipeline)
        with self._guard.block():
            self._dropped = None
            self._find_aside(pipeline)
        with self._guard.block():
            self.found = self.view()

    def take(self, pipeline: Pipeline, step: Step) -> None:
        """A step was made, or one found nothing to do."""
        status, messages = step.status, step.status.messages if step.moved else 0
        with self._guard.block():
            with self._lock:
                self.history.add(status.now_ms / 1000, status.lag_seconds, status.rows, messages, status.backlog)
                if step.moved:
                    seconds = {stage: round(spent, 3) for stage, spent in status.seconds.items()}
                    counts = status.messages, status.rows, status.tables, status.backlog
                    made = StepProgress(status.step, iso(status.now_ms), status.lag_seconds, *counts, seconds)
                    self._steps.appendleft(made)
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
        route, heads = self.config.route, dict(self._heads)
        places = [(name, route.identifier(name)) for name in sorted(last.tables)]
        # Of a table that is not open nothing is known, and the next step says what is wrong with it.
        tables = [(name, table_progress(name, place, heads.get(place, TableHead()), last)) for name, place in places]
        # One whose DROP is not in a checkpoint yet is among the tables.
        listed, kept = {".".join(place) for _, place in places}, self._dropped
        dropped = None if kept is None else [it for it in kept if it.iceberg not in listed]
        facts = Facts(last, tables, decisions, self._letters, steps, dropped, is_out=OUTAGES.current is not None)
        report = compose(self.config, facts, limit, int(now * 1000))
        commits = {".".join(place): self._commits(place, head.figures) for place, head in heads.items() if head.figures}
        return View(report, points, self.phase, OUTAGES.current, now, decisions, commits, is_behind)

    def _commits(self, place: tuple[str, ...], found: Figures) -> int:
        # A table that was made anew counts from its beginning.
        first = self._first.get(place, 0)
        return found.sequence - (first if first <= found.sequence else 0)

    def _look(self, pipeline: Pipeline) -> None:
        """Ask for what has changed, and nothing else: this runs in the thread of the steps."""
        cut, before = pipeline.state.checkpoint.cut.heads, self._cut
        for writer in pipeline.targets.writers:
            place = writer.table.identifier
            head = self._heads[place] = self._head(writer, cut.get(place), is_same=cut.get(place) == before.get(place))
            if head.figures is not None:
                # All that a table has which was made since, this process committed.
                self._first.setdefault(place, head.figures.sequence if place in self._known else 0)
        self._cut = cut
        if self._dropped is not None and pipeline.targets.kept != self._kept:
            self._take_kept(pipeline)
        self._forget_gone(pipeline.state)
        self._read_control(cast("Control", pipeline.state.control))

    def _head(self, writer: TableWriter, cut: int | None, *, is_same: bool) -> TableHead:
        """What a table shows; of one whose head and place in the cut are the same as before, the JVM is not asked."""
        figures, _, has_cut, _ = self._heads.get(writer.table.identifier, TableHead())
        if writer.head != (figures.snapshot_id if figures else None):
            figures, is_same = writer.table.figures, False
        if not is_same:
            has_cut = cut is None or cut == writer.head or writer.table.has_snapshot(cut)
        back = writer.rolled_back
        trouble = (
            None if back is None else Trouble(f"{back.what}.", wording.of_this_changefeed(back.hint, self.config.path))
        )
        return TableHead(figures, writer.known, has_cut, trouble)

    def _find_aside(self, pipeline: Pipeline) -> None:
        """Find the kept tables that gave their names away before: a listing of each namespace, once for a start."""
        targets, places = pipeline.targets, _places(pipeline)
        listings = targets.side_by_side(targets.catalog.list, kept_tables.namespaces(places))
        found = kept_tables.all_aside(chain(*listings), places)
        is_kept = partial(kept_tables.is_kept, targets.catalog, self.config.changefeed.name)
        are_kept = targets.side_by_side(lambda place: is_kept(*place), [*found.items()])
        targets.kept |= dict(compress(found.items(), are_kept))
        self._take_kept(pipeline)

    def _take_kept(self, pipeline: Pipeline) -> None:
        kept, places = dict(pipeline.targets.kept), _places(pipeline)
        named = [(kept_tables.upstream(place, at, places), place, at) for place, at in kept.items()]
        self._dropped = [dropped_table(name, place, at, self.config) for name, place, at in named if name is not None]
        self._kept = kept

    def _forget_gone(self, state: State) -> None:
        """Forget tables that are gone, once they are as many as those that are there."""
        tables = state.checkpoint.tables
        if len(self._heads) <= 2 * len(tables) + 100:
            return
        route = self.config.route
        kept = {route.identifier(name) for name in tables}
        # Made anew, as another thread may be reading the old ones.
        self._heads = {place: head for place, head in self._heads.items() if place in kept}
        self._first = {place: found for place, found in self._first.items() if place in kept}

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


def _places(pipeline: Pipeline) -> dict[tuple[str, ...], TableName]:
    """The identifier of each table that the changefeed has ever had."""
    return {pipeline.targets.identifier(name): name for name in pipeline.state.names}


def _written(control: Control) -> tuple[int, int]:
    return control.written[SCHEMA_CHANGES], control.written[DEAD_LETTERS]
