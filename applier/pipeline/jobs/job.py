"""One job: a pipeline of its own over a range of the feed, which writes copies of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from applier.changefeed.checkpoint import Checkpoint, Feed, Lease, Resuming
from applier.changefeed.filter import exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName, TableVersion
from applier.config.settings import MaintenanceSection
from applier.errors import RangeRefused
from applier.pipeline.jobs.copies import Copies
from applier.pipeline.jobs.handover import Handover, Members
from applier.pipeline.jobs.own_ddl import OwnDdl
from applier.pipeline.maintenance import Maintenance
from applier.pipeline.next_step import PIECE
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.schema_changes.decision import past
from applier.pipeline.state import State
from applier.sink.control.control import DeadLetter, SchemaDecision
from applier.sink.control.rows import IgnoredFor
from applier.sink.evolve.row_columns import is_older

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline, Step


@dataclass(frozen=True, slots=True)
class JobLedger:
    """Control tables of a job.

    What it decides about DDL goes to the audit of the changefeed, marked with the job: after a crash it distinguishes
    what this attempt has done from what the changefeed or an earlier attempt did.
    """

    main: State
    job: str
    hold: str = ""

    def confirm(self) -> None:
        """See `Control.confirm`."""
        self.main.control.confirm()

    def save_versions(self, versions: Iterable[TableVersion]) -> None:
        """See `Control.save_versions`."""
        self.main.control.save_versions(versions)

    def decisions(self, since: int = 0) -> list[SchemaDecision]:
        """What this job decided at or above a commit ts, what its tables have of before, and what a user lets pass."""
        resuming = self.main.checkpoint.resuming
        had = resuming.progress.ddl if resuming is not None and resuming.job == self.job else ()
        known = {(item.commit_ts, item.sql) for item in had}
        return [
            item
            for item in self.main.control.decisions(since)
            if item.decision == "to skip" or item.job == self.job or (item.commit_ts, item.sql) in known
        ]

    def record_schema_changes(self, decisions: Sequence[SchemaDecision]) -> None:
        """See `Control.record_schema_changes`; rows that come late of these DDL may come once the tables are back."""
        own = [replace(item, job=self.job) for item in decisions]
        self.main.control.record_schema_changes(own)
        self.main.ddl.note(own)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Keep messages that the changefeed did not meet as bad ones: their tables were left out."""
        known = {(item.topic, item.partition, item.offset) for item in self.letters(every=True)}
        self.main.control.bury([item for item in letters if (item.topic, item.partition, item.offset) not in known])

    def letters(self, *, every: bool = False) -> list[DeadLetter]:
        """See `Control.letters`."""
        return self.main.control.letters(every=every)

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the changefeed's checkpoint again, with this progress in it."""
        self.main.write(lambda last: replace(last, resuming=Resuming(self.job, checkpoint, self.hold)))

    def release(self) -> None:
        """Nothing: the changefeed is released as a whole."""


_WAY_OUT = "begin the range after that, or load the table again, with `applier load -c FILE --tables TABLE`."


@dataclass(slots=True)
class FixedColumns(DdlApplier):
    """Applies DDL, and refuses rows that show other columns."""

    def follow(self, version: TableVersion) -> None:
        """Refuse other columns; rows of an older version of the table show none.

        Raises:
            RangeRefused: The table has other columns from here on.
        """
        before = self.state.tables.get(version.name)
        if before is None or version.keys_only or is_older(version, before):
            return
        if before.columns != version.columns:
            raise RangeRefused(f"Table {version.name} has other columns from here on.", _WAY_OUT, [version.name])


@dataclass(slots=True)
class JobRun:
    """Applies a range to copies.

    Attributes:
        is_held: A backfill shows the copies, or keeps them.
    """

    main: Pipeline
    pipeline: Pipeline
    copies: Copies
    handover: Handover
    is_held: ClassVar[bool] = False

    @property
    def state(self) -> State:
        """How far the tables of the job are."""
        return self.pipeline.state

    def names(self) -> Mapping[tuple[object, ...], TableName]:
        """The names that readers use now, by the keys of the places at which tables began."""
        raise NotImplementedError

    @property
    def members(self) -> Members:
        """The tables of the job."""
        names = self.names()
        return {own: names[at.key] for own, at in self.origins().items() if at.key in names}

    def read(self, goal: int, ends: Mapping[TopicPartition, int]) -> Step:
        """Apply the next window of the range to the copies: rows up to `goal`, and offsets up to `ends` (exclusive)."""
        state, begun, members = self.state, self.begun(), self.members
        for own in begun:
            self.copies.expect(members[own], own)
        names, order = frozenset(state.tables), self.main.targets.feed.order
        again = {own: at.ts for own, at in self.origins().items() if own in names and at.version is not None}
        scanner = self.pipeline.scanner
        template = replace(scanner.template, include=exactly(sorted(names)) or ("!*.*",))
        ceiling = goal if order.has_watermark else self.main.scanner.ceiling
        ddl = OwnDdl(names, begun, order, again if self.is_held else {})
        self.pipeline.use_scanner(replace(scanner, template=template, ceiling=ceiling, chosen=ddl, taken=self._taken))
        return self.pipeline.step(ends)

    def origins(self) -> dict[TableName, FeedPosition]:
        """Where each table of the job began."""
        return {own: known.origin for own, known in self.state.completeness.items() if known.origin is not None}

    def begun(self) -> dict[TableName, int]:
        """Tables whose CREATE TABLE is yet to come, and its commit ts."""
        return {own: origin.ts + 1 for own, origin in self.origins().items() if own not in self.state.tables}

    def _taken(self, commit_ts: int) -> list[str]:
        """Statements of a commit ts in the order in which the changefeed took them, which knew all of their tables."""
        found = [item for item in self.main.state.control.decisions(commit_ts) if item.commit_ts == commit_ts]
        done = [item for item in found if item.decision not in ("refused", "to skip")]
        own = [item for item in done if item.job is None]
        is_known = any(item.ignored_for is not IgnoredFor.LEFT_OUT for item in own)
        return list(dict.fromkeys(item.sql for item in own)) if is_known else []


_Run = TypeVar("_Run", bound=JobRun)


def progress(last: Checkpoint, ts: int, readings: Mapping[TopicPartition, Reading]) -> Checkpoint:
    """Where a job begins, without a table; `last` is the checkpoint of its changefeed."""
    feed = Feed(last.feed.protocol, last.feed.topic_ids)
    lease = Lease(last.lease.epoch, last.lease.holder)
    return Checkpoint(lease, 0, ts, last.written_at, readings, feed)


def job(kind: Callable[[Pipeline, Pipeline, Copies, Handover], _Run], main: Pipeline, resuming: Resuming) -> _Run:
    """A job as the checkpoint has it."""
    copies = Copies(main.targets, resuming.job)
    names = set(resuming.progress.tables)
    versions = {key: version for key, version in main.state.versions.items() if key[0] in names}
    ledger, is_held = JobLedger(main.state, resuming.job, resuming.hold), bool(resuming.hold)
    protocol = main.state.protocol
    state = State(ledger, resuming.progress, versions, protocol=protocol, keeps_cut=False)
    copies.targets.records.known = lambda name: state.completeness.get(name)  # noqa: PLW0108 A restart begins with others.
    state.lives = main.state.lives and main.state.lives.again()
    state.ways = main.state.ways
    source, on_error = main.config.source, "stop" if is_held else "park"
    piece = {} if is_held else {"messages_per_step": -(-source.messages_per_step // PIECE)}
    changes = {
        "tables": copies.settings,
        "changefeed": main.config.changefeed.model_copy(update={"start": "beginning", "on_table_error": on_error}),
        "source": source.model_copy(update=piece),
    }
    config, targets = main.config.model_copy(update=changes), copies.targets
    applier = FixedColumns if is_held else DdlApplier
    parks = not is_held and main.config.changefeed.on_bad_message == "stop"
    pipeline = replace(
        main,
        config=config,
        scanner=replace(main.scanner, parks=parks, keep_bad=main.scanner.keep_bad if is_held else True),
        targets=targets,
        ddl_handler=applier(
            targets, state, config.ddl, past(main.state.control.decisions()), main.ddl_handler.upstream
        ),
        state=state,
        maintenance=Maintenance(MaintenanceSection(tasks=()), targets),
    )
    pipeline.restore()
    run = kind(main, pipeline, copies, Handover(main, state, copies))
    targets.beside = lambda own: main.targets.identifier(run.members.get(own, own))
    return run
