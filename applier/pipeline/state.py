"""Progress of a changefeed: in memory between steps, and in the control tables after each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.checkpoint import STEP, STILL, UNKNOWN, Checkpoint, Cut, RequestOutcome, Resuming, Stop, Tracked
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import DdlId, Reading
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import Lives
from applier.errors import ApplierError, TerminalError
from applier.pipeline.ddl_progress import BY_TIME, DdlProgress
from applier.sink.control.control import Control, DeadLetter, SchemaDecision, unix_ms
from applier.sink.control.table_record import TableRecord
from applier.ways_out import WaysOut

_VERSIONLESS = "its columns are not known any more, as control table table_versions was lost"

_HANDLED = 50
"""Outcomes of requests that the checkpoint keeps: a command waits for its own for minutes at most."""


class ControlTables(Protocol):
    """Where durable state is kept: `Control`, or for parked tables that are brought back a part of the checkpoint."""

    def confirm(self) -> None:
        """Raise CheckpointConflict once another process has the changefeed."""

    def save_versions(self, versions: Iterable[TableVersion]) -> None:
        """Keep table versions."""

    def decisions(self, since: int = 0) -> list[SchemaDecision]:
        """What became of the DDL at or above a commit ts, oldest first."""

    def record_schema_changes(self, decisions: Sequence[SchemaDecision]) -> None:
        """Keep what became of some DDL."""

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Keep messages that were passed over."""

    def letters(self, *, every: bool = False) -> list[DeadLetter]:
        """Messages that were passed over: all, or those not made up for since."""

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Append the next checkpoint."""

    def release(self) -> None:
        """Say that this process has stopped."""


def take_names(lives: Lives, decisions: Iterable[SchemaDecision]) -> None:
    """Let the names of tables follow decided DDL, each once, in their order."""
    for item in dict.fromkeys((item.commit_ts, item.sql, item.table.database) for item in decisions):
        lives.take(*item)


class Unsaid(NamedTuple):
    """What a table says of itself, and what a start made of that; None where it made nothing of it."""

    record: TableRecord
    judged: Completeness | None = None


@dataclass(slots=True)
class State:
    """What the next step starts from; one thread at a time, save for `heartbeat`.

    Attributes:
        control: The control tables; this process holds the changefeed.
        tables: Each upstream table as its DDL left it.
        ahead: Resolved ts of tables that a crash inside a step left ahead of the checkpoint; 0 in offset order.
        covered: In offset order what tables have beyond the checkpoint, by place.
        ddl: DDL that were decided at or above the checkpoint.
        topic_ids: What distinguishes each topic from another of its name, as last asked; the next checkpoint keeps it.
        completeness: Whether each table holds every row of its upstream table.
        loaded: TSO of the export that the rows of a table come from.
        supplied: Tables as the configuration declares them; each counts until the feed first concerns its table.
        lives: The names of all tables, where the protocol does not hold them whole.
        ways: The ways out that messages print.
        found: Tables of the changefeed that the catalog shows where the checkpoints are lost.
        identity: What a table that is not parked is in the catalog, as `Tracked.identity`; "" where that is not known.
        entered: How far the checkpoint would say that partitions are read which it lacks, as the step is their first.
        unsaid: What tables say of themselves that the checkpoint does not list, or whose names are not settled.
        keeps_cut: False for a job that brings tables back in copies: they need not be one cut, as no reader sees them.
    """

    control: ControlTables
    checkpoint: Checkpoint
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)
    topics: dict[TableName, str] = field(default_factory=dict)
    ahead: dict[TableName, int] = field(default_factory=dict)
    covered: dict[TableName, AppliedOffsets] = field(default_factory=dict)
    ddl: DdlProgress = field(default_factory=DdlProgress)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    completeness: dict[TableName, Completeness] = field(default_factory=dict)
    protocol: str = ""
    loaded: dict[TableName, int] = field(default_factory=dict)
    supplied: Tables = field(default_factory=Tables)
    lives: Lives | None = None
    ways: WaysOut = field(default_factory=WaysOut)
    identity: Callable[[TableName], str] = lambda name: ""
    entered: Mapping[TopicPartition, Reading] = field(default_factory=dict)
    unsaid: dict[TableName, Unsaid] = field(default_factory=dict)
    found: Sequence[TableName] = ()
    keeps_cut: bool = True
    _writing: threading.RLock = field(default_factory=threading.RLock)

    @staticmethod
    def load(control: Control, checkpoint: Checkpoint) -> State:
        """State as of a checkpoint that this process has just taken."""
        state = State(control, checkpoint, {(item.name, item.version): item for item in control.load_versions()})
        state.restore()
        return state

    def restore(self) -> None:
        """Return to the checkpoint, after a start or a step that failed on its way; what was decided stays decided."""
        checkpoint = self.checkpoint
        self.ddl.restore(checkpoint.ddl, self.control.decisions(checkpoint.resolved_ts))
        self.tables, self.topics, self.ahead, self.covered, self.completeness = Tables(), {}, {}, {}, {}
        self.loaded = {name: tracked.loaded for name, tracked in checkpoint.tables.items() if tracked.loaded}
        for name, tracked in checkpoint.tables.items():
            version, known = self.versions.get((name, tracked.version)), tracked.completeness
            if version is not None:
                self.tables.put(version.renamed(name), tracked.partitioning)
            elif tracked.version != UNKNOWN and not (known is not None and known.is_parked):
                # Rows may be of any columns, and only their versions would say which.
                origin = None if known is None else known.origin
                known = Completeness(Reason(Why.LOST, _VERSIONLESS), checkpoint.resolved_ts, origin=origin)
            self.topics[name] = tracked.topic
            if known is not None:
                self.completeness[name] = known

    @property
    def is_without_checkpoint(self) -> bool:
        """True if only the tables show where they are: all checkpoints are lost, or the first has not come yet."""
        return self.resolved_ts == 0 and self.reached > 0

    @property
    def names(self) -> list[TableName]:
        """All tables that there may be; those that a step made which failed are not in the checkpoint."""
        versions = (name for name, _ in self.versions)
        return list(dict.fromkeys([*self.tables, *versions, *self.unsettled, *self.completeness, *self.found]))

    @property
    def declared(self) -> Tables:
        """Each table as of the checkpoint, those that the configuration alone declares included."""
        return self.tables.beside(self.supplied)

    @property
    def misnamed(self) -> frozenset[TableName]:
        """Tables whose names may be those of others upstream, or of none."""
        return frozenset(name for name, found in self.completeness.items() if found.is_misnamed)

    @property
    def exported(self) -> dict[TableName, int]:
        """TSO of the export that parked tables get, whether or not anything else shows what they are."""
        places = ((name, found.position) for name, found in self.completeness.items())
        return {
            name: at.version or 0
            for name, at in places
            if at is not None and at.is_loaded and at.ts <= self.resolved_ts
        }

    def left_at(self, name: TableName) -> int:
        """Commit ts at which a parked table left the feed: DDL at or below it do not free its name; 0 if unknown."""
        known = self.completeness.get(name)
        position = known.position if known is not None and known.is_parked else None
        return 0 if position is None or position.is_loaded else position.ts

    @property
    def unsettled(self) -> Mapping[TableName, int]:
        """Names that a step has moved in part, by commit ts; until it is repeated, one may stand for another table."""
        return self.checkpoint.moving.tables if self.checkpoint.moving else {}

    @property
    def resolved_ts(self) -> int:
        """Every table is at this TSO."""
        return self.checkpoint.resolved_ts

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Offset to read next per partition."""
        return self.checkpoint.next_offsets

    @property
    def parked(self) -> frozenset[TableName]:
        """Tables whose rows are not applied."""
        return frozenset(name for name, found in self.completeness.items() if found.is_parked)

    def tracked(self) -> dict[TableName, Tracked]:
        """What each table is, for the checkpoint."""
        found = {
            name: Tracked(version.version, self.topics.get(name, ""), form, known, self.loaded.get(name, 0), identity)
            for name, version in self.tables.items()
            for known, form in [(self.completeness.get(name), self.tables.partitioning(name))]
            for identity in ["" if known is not None and known.is_parked else self.identity(name)]
        }
        # Parked tables without any version, those whose CREATE TABLE is yet to be read, and those that DDL alone show.
        others = ((name, known) for name, known in self.completeness.items() if name not in found)
        lost = {name: known for name, known in others if not known.is_live or known.origin is not None}
        return found | {name: Tracked(UNKNOWN, self.topics.get(name, ""), None, known) for name, known in lost.items()}

    def keep(
        self,
        cut: Cut,
        resuming: Resuming | None,
        handled: Mapping[str, RequestOutcome] | None = None,
    ) -> None:
        """Write a checkpoint between two steps, with the cut, the tables that come back, and outcomes of requests."""
        self.write(
            lambda last: replace(
                last,
                tables=self.tracked(),
                cut=cut,
                resuming=resuming,
                handled=dict([*last.handled.items(), *(handled or {}).items()][-_HANDLED:]),
            )
        )

    def learn(
        self,
        versions: Mapping[tuple[TableName, int], TableVersion],
        topics: Mapping[TableName, str],
        homes: Mapping[TableName, Iterable[str]],
    ) -> None:
        """Keep table versions before rows that need them are applied, and the topics of rows and of DDL.

        A restart may begin after their messages, which no later window holds.
        Raises CheckpointConflict where another process has taken the changefeed.
        """
        self.control.confirm()
        self.control.save_versions(versions.values())
        self.versions |= versions
        self.topics |= topics
        if self.lives is not None:
            self.lives.settle(homes)

    def track(self, version: TableVersion) -> None:
        """Take note of a table as it is now."""
        self.control.save_versions([version])
        self.versions[version.name, version.version] = version
        self.tables.put(version)

    def changed_at(self, name: TableName) -> int:
        """Commit ts of the newest DDL of a table that is known in a feed in offset order; 0 without any."""
        return max([*self.checkpoint.feed.passed.get(name, {}).values(), self.ddl.changed_at(name)])

    def record(self, decisions: Sequence[SchemaDecision]) -> None:
        """Keep what became of a part of a DDL; from here on it is not done again."""
        self.control.record_schema_changes(decisions if self.ddl.held is None else ())
        self.ddl.note(decisions)
        if self.lives is not None:
            take_names(self.lives, decisions)

    @property
    def reached(self) -> int:
        """The highest TSO that such a step has left in a table; a step below it would list tables that are above it."""
        return max([*self.ahead.values(), self.ddl.reached, *self.unsettled.values()])

    def keep_versions(self) -> None:
        """Keep what the tables are, so that a restart knows them."""
        # Text of all of them would take longer than the DDL itself.
        every = ((name, it) for name, it in self.tables.items() if self.ddl.held is None)
        new = {(name, it.version): it for name, it in every if self.versions.get((name, it.version)) is not it}
        self.control.save_versions(new.values())
        self.versions |= new

    def advance(
        self,
        upto: int,
        readings: Mapping[TopicPartition, Reading],
        cut: Cut,
        counts: Mapping[str, int],
        ddl: Iterable[DdlId],
        passed: Mapping[TableName, Mapping[TopicPartition, int]] | None = None,
        *,
        is_read: bool = False,
    ) -> None:
        """Write the checkpoint of a finished step, or without readings one that leaves a failed step to be repeated.

        It `is_read` where checkpoints were lost and the feed is read as far as the tables are since.
        """
        at_upto = self.ddl.at(upto, ddl)
        self.write(
            lambda last: replace(
                last,
                resolved_ts=upto,
                partitions={**last.partitions, **readings},
                feed=replace(
                    last.feed,
                    protocol=self.protocol or last.feed.protocol,
                    topic_ids={**last.feed.topic_ids, **self.topic_ids},
                    passed=last.feed.passed if passed is None else passed,
                    homes=self.lives.homes(self.topics) if self.lives else last.feed.homes,
                ),
                cut=cut,
                tables=self.tracked(),
                ddl=tuple(sorted(at_upto, key=BY_TIME)),
                counts={**counts, STEP: last.step + 1 if readings else last.last_step},
                moving=None if readings else last.moving,
                stopped=None,
                is_lost=last.is_lost and not is_read,
            )
        )
        self.ddl.advance(upto, at_upto)
        self.ahead = {name: ts for name, ts in self.ahead.items() if ts > upto}

    def write(self, following: Callable[[Checkpoint], Checkpoint]) -> None:
        """Append what follows the newest checkpoint; until it is there, nothing has changed. Any thread may."""
        with self._writing:
            found = replace(following(self.checkpoint), step=self.checkpoint.step + 1, written_at=unix_ms())
            self.control.append_checkpoint(found)
            self.checkpoint = found


def keep_end(state: State, error: ApplierError | None = None) -> None:
    """Let the checkpoint say what ended the run; None once a step is done."""
    ddl = error.ddl if isinstance(error, TerminalError) else 0
    stop = None if error is None else Stop(error.what, error.hint, unix_ms(), ddl)
    if stop != state.checkpoint.stopped:
        state.write(lambda last: replace(last, stopped=stop))


def keep_ends_reached(state: State) -> None:
    """Let the checkpoint say that the run came to the ends that it was to come to."""
    state.write(lambda last: replace(last, stopped=Stop("", "", unix_ms())))


def keep_still(state: State) -> None:
    """Let the checkpoint say that no newer watermark comes, though the source answers; the next step ends that."""
    if not state.checkpoint.counts.get(STILL):
        state.write(lambda last: replace(last, counts={**last.counts, STILL: 1}))
