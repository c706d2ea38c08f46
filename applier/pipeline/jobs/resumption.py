"""Brings parked tables back beside the steps of a changefeed, one job after another."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.changefeed.checkpoint import Resuming
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.errors import CheckpointConflict, TerminalError
from applier.pipeline.jobs.copies import Copies, CopyOutdated
from applier.pipeline.jobs.job import job
from applier.pipeline.jobs.replay import Replay, due, first
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness, parking
from applier.pipeline.tables.loads import LoadTables
from applier.runtime import failpoints
from applier.runtime.logs import logger

SHARE = 0.15
"""Share of wall time that a job may take while the changefeed has changes of its own to apply."""


@dataclass(slots=True)
class Resumption:
    """Brings back the tables of a changefeed that are due."""

    main: Pipeline
    clock: Callable[[], float] = time.monotonic
    _replay: Replay | None = field(default=None, init=False)
    _is_tidy: bool = field(default=False, init=False)
    _rests_until: float = field(default=0.0, init=False)

    def advance(self, *, is_busy: bool) -> bool:
        """Do a piece of the job under way, or begin one; in favour of a busy changefeed only as its share allows.

        Returns:
            Whether there is more to do.

        Raises:
            TransientError: Something outside does not answer.
            CheckpointConflict: Another applier has the changefeed.
        """
        if not self._is_due():
            self._tidy_up()
            return False
        if is_busy and self.clock() < self._rests_until:
            return True
        start = self.clock()
        try:
            return self._advance()
        except CopyOutdated as error:
            logger().info("tables are brought back anew", because=error.what)
            self._end()
            return True
        except BaseException:
            # Tables may be half taken in, or half handed over: the next piece begins where the checkpoint has the job.
            self._replay = None
            raise
        finally:
            # A piece at a time: saved up, they would hold the changefeed's own changes back for seconds.
            self._rests_until = self.clock() + (self.clock() - start) * (1 / SHARE - 1)

    def _tidy_up(self) -> None:
        """Forget the copies, and what exports were loaded into, of a job whose process died before it could."""
        if self._is_tidy:
            return
        targets, states = self.main.targets, self.main.state.completeness
        exports = [(name, known.position) for name, known in states.items() if known.needs_export]
        # A table that was renamed while it was parked still needs what was loaded under its former name.
        needed = {each for name, place in exports for each in (name, name if place is None else place.name)}
        self._forget_copies(targets.confirm, LoadTables(targets.catalog, targets.feed.name).others(needed))
        self._is_tidy = True

    def _forget_copies(self, end: Callable[[], None], more: Sequence[tuple[str, ...]] = ()) -> None:
        copies = Copies(self.main.targets, "")
        there = [*copies.there(), *more]
        end()
        copies.discard(there)

    def _is_due(self) -> bool:
        return bool(due(self.main.state)) or self.main.state.checkpoint.resuming is not None

    def _advance(self) -> bool:
        replay = self._replay or self._begun()
        if replay is None:
            return self._is_due()
        try:
            outlook = replay.step()
        except CheckpointConflict:
            raise
        except TerminalError as error:
            for name in replay.concerned(error) or due(self.main.state):
                parking.give_up(self.main.state, name, error)
            # The others begin again, without these.
            outlook = "over"
        if outlook == "over":
            self._end()
        return outlook == "more" or (outlook == "over" and self._is_due())

    def _begun(self) -> Replay | None:
        """The job that the checkpoint names, or a new one; None if there is none to begin."""
        resuming = self.main.state.checkpoint.resuming
        if resuming is not None and resuming.hold:
            # A backfill shows its copies as of the place at which the changefeed was.
            self._end()
            resuming = None
        if resuming is not None and resuming.progress.epoch <= self.main.state.checkpoint.fenced:
            # Copies are not fenced: a process that lost the changefeed may write them yet.
            job(Replay, self.main, resuming).keep_shown()
            resuming = None
        if resuming is not None:
            self._replay = job(Replay, self.main, resuming)
            self._replay.refuse_outdated()
        elif (resuming := self._new()) is not None:
            self._replay = job(Replay, self.main, resuming)
        return self._replay

    def _new(self) -> Resuming | None:
        places = due(self.main.state)
        if not places:
            self._end()
            return None
        number = uuid.uuid4().hex[:8]
        copies = Copies(self.main.targets, number)
        there = copies.there()
        try:
            resuming = Resuming(number, first(self.main, places))
        except TerminalError as error:
            self._refuse(places, error)
            return None
        self._keep(resuming)
        logger().info("tables resume", tables=len(places), since=resuming.progress.resolved_ts, job=number)
        copies.discard(there)
        failpoints.reach("resume-begun")
        return resuming

    def _refuse(self, places: dict[TableName, FeedPosition], error: TerminalError) -> None:
        """Leave the table parked that is furthest back: the range of the others may be there."""
        name = min(places, key=lambda name: places[name].ts)
        parking.give_up(self.main.state, name, error, is_lost=True)
        self._keep(None)

    def _end(self) -> None:
        """Forget the job; tables that it did not finish are as they were."""
        self._replay = None
        if self.main.state.checkpoint.resuming is not None:
            self._forget_copies(lambda: self._keep(None))

    def _keep(self, resuming: Resuming | None) -> None:
        state = self.main.state
        state.keep(completeness.kept(state, self.main.targets), resuming)
