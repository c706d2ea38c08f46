"""Brings parked tables back beside the steps of a changefeed, one job after another.

The range of the feed that they miss is applied to copies of them. The tables of a job left the feed at different
places. The job reads the feed once, from the first of these places on, and takes each table in when it comes to the
table's own place.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from applier.changefeed.checkpoint import Checkpoint, Cut, Resuming, has_reached
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.consume.offsets import next_window
from applier.errors import BY_HAND, CheckpointConflict, RangeRefused, TableMismatch, TerminalError
from applier.pipeline.jobs.copies import CopyOutdated, forgetting
from applier.pipeline.jobs.handover import leave_out
from applier.pipeline.jobs.job import JobRun, job, progress
from applier.pipeline.schema_changes.taken import name_since
from applier.pipeline.since import sent_since
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness, history_gap, loads, parking
from applier.runtime import failpoints
from applier.runtime.logs import logger

Outlook: TypeAlias = Literal["more", "wait", "over"]
"""What is left of a job: a piece now, a piece once the changefeed has moved, or nothing."""


class Replay(JobRun):
    """Brings parked tables back."""

    def step(self) -> Outlook:
        """Take in tables whose place has come, apply one window, and show what is up to date.

        Raises:
            TransientError: Something outside does not answer, or a table was written meanwhile.
            TerminalError: The range cannot be read.
        """
        self._give_up_doubled()
        self._leave_out_stopped()
        self._take_in()
        failpoints.reach("resume-taken-in")
        if not self.state.completeness:
            # Without a table the job comes no further: another one begins at the place of those that wait.
            return "over"
        goal = self._goal()
        if self.state.completeness and self._is_before(goal):
            before = self.members
            self._catch_up(goal)
            failpoints.reach("resume-range-read")
            left = set(before.values()) - set(self.members.values())
            # One that was given up is parked for good, and says why.
            for name in sorted(name for name in left if due_at(self.main.state, name) is not None):
                # It would read the range again and again.
                self.handover.let_go(name, f"Table {name} of the export was dropped since")
        self.handover.parked(self.members)
        if self._is_before(self._goal()) or self._waiting():
            return "more"
        return "over" if self.handover.all(self.members) else "wait"

    def refuse_outdated(self) -> None:
        """Let the job begin anew whose copies another process has left, if one is of no use any more.

        Raises:
            CopyOutdated: A copy is gone, or its table was written or replaced since.
        """
        for own, name in self.members.items():
            if own in self.state.tables and self.copies.is_outdated(name, own):
                raise CopyOutdated(f"The copy of table {name} is gone, or the table was written")

    def keep_shown(self) -> None:
        """Keep the tables that an earlier process has shown, without a checkpoint that says so; forget all others."""
        self._leave_out_stopped()
        for own, name in self.members.items():
            if not self.copies.is_shown(name, own):
                leave_out(self.state, own)
        self.handover.parked(self.members)
        if self.state.completeness and self.state.resolved_ts == self.main.state.resolved_ts:
            self.handover.all(self.members)

    def concerned(self, error: TerminalError) -> list[TableName]:
        """The tables that an error gives up, as readers call them; those that wait for their place may come back."""
        members = self.members
        return [name for own, name in members.items() if own in error.tables] or list(members.values())

    def names(self) -> Mapping[tuple[object, ...], TableName]:
        """Those of tables that are to come back."""
        state = self.main.state
        return {at.key: name for name in state.completeness if (at := due_at(state, name)) is not None}

    def _waiting(self) -> dict[TableName, FeedPosition]:
        """Tables whose place the job has not come to yet, by the names that readers know them by."""
        inside = set(self.members.values())
        return {name: at for name, at in due(self.main.state).items() if name not in inside and self._leads_to(at)}

    def _leads_to(self, position: FeedPosition) -> bool:
        """Whether a table left the feed where the job is, or later; without a watermark nothing orders places."""
        if self.main.targets.feed.order.has_watermark:
            return position.ts >= self.state.resolved_ts
        return dict(position.readings) == dict(self.state.checkpoint.partitions)

    def _goal(self) -> int:
        """Commit ts up to which the next windows may go: the changefeed's, or the place of a table to be taken in."""
        places = [position.ts for position in self._waiting().values()]
        return min([self.main.state.resolved_ts, *places])

    def _is_before(self, goal: int) -> bool:
        if self.main.targets.feed.order.has_watermark:
            return self.state.resolved_ts < goal
        own = self.state.next_offsets
        return any(own.get(place, 0) < end for place, end in self.main.state.next_offsets.items())

    # ---- tables come and go

    def _take_in(self) -> None:
        """Take in the tables whose place the job has come to, and keep that before anything is applied to them."""
        coming = {name: at for name, at in self._waiting().items() if at.ts == self.state.resolved_ts}
        passed = dict(self.state.checkpoint.feed.passed)
        for name, position in coming.items():
            try:
                self._begin(name, position)
            except TableMismatch as error:
                is_lost = position.is_loaded or _is_unversioned(self.main.state, position)
                parking.give_up(self.main.state, name, error, is_lost=is_lost)
            else:
                passed[position.name] = position.passed
        if coming:
            self.state.advance(self.state.resolved_ts, {}, Cut(), {}, self.state.ddl.applied, passed)
            self.pipeline.restore()

    def _begin(self, name: TableName, position: FeedPosition) -> None:
        known, own, state, main = self.main.state.completeness[name], position.name, self.state, self.main.state
        if position.version is None:
            self.copies.refuse_held(name)
            state.completeness[own] = Completeness(Reason(Why.NOT_READ), origin=position)
            return
        if _is_unversioned(main, position):
            what = f"The columns that table {name} had are not known any more"
            raise TableMismatch(f"{what}, as control table table_versions was lost.", BY_HAND)
        if position.is_loaded:
            state.loaded[own] = self._take_loaded(name, position)
        else:
            self.copies.make(name, position)
            if name in main.loaded:
                # Rows of a version from before the export come in the columns that the export had.
                state.loaded[own] = main.loaded[name]
        state.versions |= {key: version for key, version in main.versions.items() if key[0] == own}
        version = state.versions[own, position.version]
        state.tables.put(version, position.partitioning)
        state.topics[own] = main.topics.get(name, "")
        state.completeness[own] = replace(known.resumed, origin=position)
        state.ddl.applied |= set(position.ddl)

    def _take_loaded(self, name: TableName, position: FeedPosition) -> int:
        """Copy what an export was loaded into; the TSO of the export.

        Raises:
            TableMismatch: It is not there any more, or another export is being loaded into it; or the table has left
                the name since, and its changes would go to the one that has it now.
        """
        if self.main.targets.maker.rules.changes(name) is not None:
            now = name_since(self.main.state, position.name, position.ts)
            if now.folded != name.folded:
                raise TableMismatch(f"Table {position.name} of the export was renamed to {now} since.", BY_HAND)
        found = loads.find(self.main.targets, position.name)
        if found is None or not found[0].is_complete or found[0].tso != position.version:
            # Rows between the TSO of one export and that of another would be lost.
            what = f"What was loaded of table {position.name} as of TSO {position.version} is gone."
            raise TableMismatch(what, BY_HAND)
        self.copies.take(name, *found)
        loaded, _ = found
        history_gap.pass_by(self.main.targets, name, loaded.tso, loaded.version.renamed(name))
        return loaded.tso

    def _give_up_doubled(self) -> None:
        """Give up tables that are said to have left the feed at one place: for all but one of them that is wrong."""
        places = due(self.main.state)
        counts = Counter(at.key for at in places.values())
        for key in (key for key, count in counts.items() if count > 1):
            names = [name for name, at in places.items() if at.key == key]
            together = " and ".join(map(str, names))
            what = f"Tables {together} cannot all have left the feed at one place, as {places[names[0]].name}."
            for name in names:
                parking.give_up(self.main.state, name, TableMismatch(what, BY_HAND), is_lost=True)

    def _leave_out_stopped(self) -> None:
        """Leave out tables that need not be brought back any more: they were dropped, forgotten, or parked again."""
        members = self.members
        for own in [own for own in self.state.completeness if own not in members]:
            leave_out(self.state, own)

    # ---- the feed

    def _catch_up(self, goal: int) -> None:
        """Apply the next window of the range, or refuse it, by RangeRefused, if the feed does not lead to the goal."""
        state, members = self.state, self.members
        begun = self.begun()
        # Rows that the changefeed holds back are read only where a watermark of the range may follow them: a partition
        # that is read beyond them before the others come as far forgets its watermarks below them.
        step = self.read(goal, self._ends())
        if self.main.targets.feed.order.has_watermark and step.complete and not step.moved and self._is_before(goal):
            step = self.pipeline.step()
        logger().debug("tables are brought back", resolved_ts=state.resolved_ts, goal=goal, tables=len(members))
        if step.complete and not step.moved and self._is_before(goal):
            what = f"The messages from resolved ts {state.resolved_ts} on hold no watermark up to {goal}."
            raise RangeRefused(what, BY_HAND)
        # A DDL may follow the watermark of its own commit ts.
        for own in [own for own, ts in begun.items() if own not in state.tables and state.resolved_ts > ts]:
            what = f"The feed no longer holds the CREATE TABLE of {own} at commit ts {begun[own]}."
            parking.give_up(self.main.state, members[own], RangeRefused(what, BY_HAND), is_lost=True)

    def _ends(self) -> dict[TopicPartition, int]:
        """Offsets (exclusive) up to which the changefeed has applied everything, or where the job is beyond them."""
        own = self.state.next_offsets
        return {place: max(at, own.get(place, 0)) for place, at in self.main.state.next_offsets.items()}


def due_at(state: State, name: TableName) -> FeedPosition | None:
    """The place of a table that is to come back; None for any other."""
    known = state.completeness.get(name)
    return known.position if known is not None and known.is_parked and known.is_due else None


def due(state: State) -> dict[TableName, FeedPosition]:
    """The tables that are to come back and whose places the changefeed has reached, with these places."""
    return {
        name: known.position
        for name, known in state.completeness.items()
        if known.is_parked
        and known.is_due
        and known.position is not None
        and has_reached(state.checkpoint, known.position)
    }


def first(main: Pipeline, due: Mapping[TableName, FeedPosition]) -> Checkpoint:
    """Where a job begins: at the first of the places at which its tables left the feed.

    Raises:
        SourceLost: The source does not have the range any more.
    """
    begin = min(due.values(), key=lambda position: position.ts)
    readings, bounds = dict(begin.readings), main.source.bounds()
    if not readings and begin.version is not None:
        readings = main.since(begin.ts)
    elif not readings:
        readings = {place: Reading(at) for place, at in sent_since(main.source, begin.ts).items()}
    next_window({place: reading.next_offset for place, reading in readings.items()}, bounds, 1)
    return progress(main.state.checkpoint, begin.ts, readings)


def _is_unversioned(main: State, position: FeedPosition) -> bool:
    """Whether the version is lost in which a table left the feed: nothing shows how to read its first rows."""
    return position.version is not None and (position.name, position.version) not in main.versions


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
        """Do a piece of the job under way, or begin one; returns whether there is more to do.

        Where the changefeed is busy, only as its share allows.

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
        with forgetting(targets, loads.others(targets, needed)):
            targets.confirm()
        self._is_tidy = True

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
        if resuming is not None and resuming.progress.lease.epoch <= self.main.state.checkpoint.lease.fenced:
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
        state, targets, places = self.main.state, self.main.targets, due(self.main.state)
        if not places:
            self._end()
            return None
        try:
            resuming = Resuming(uuid.uuid4().hex[:8], first(self.main, places))
        except TerminalError as error:
            # The one that is furthest back stays parked: the range of the others may be there.
            parking.give_up(state, min(places, key=lambda name: places[name].ts), error, is_lost=True)
            completeness.write(state, targets, None)
            return None
        with forgetting(targets):
            completeness.write(state, targets, resuming)
            since = resuming.progress.resolved_ts
            logger().info("tables resume", tables=len(places), since=since, job=resuming.job)
        failpoints.reach("resume-begun")
        return resuming

    def _end(self) -> None:
        """Forget the job; tables that it did not finish are as they were."""
        self._replay = None
        if self.main.state.checkpoint.resuming is not None:
            with forgetting(self.main.targets):
                completeness.write(self.main.state, self.main.targets, None)
