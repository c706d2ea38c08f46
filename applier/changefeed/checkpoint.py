"""Checkpoints: how far a changefeed is applied, where reading goes on, and who holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import msgspec

from applier.changefeed.completeness import Completeness
from applier.changefeed.message import Count, TopicPartition
from applier.changefeed.position import DdlId, FeedPosition, Reading
from applier.changefeed.table import Partitioning, TableName


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a changefeed.

    Attributes:
        token: Made anew for each process; distinguishes the own checkpoints from others'.
        host: Its host name.
        machine: The operating system's id of the machine; "" if it has none.
        boot_id: Id of the kernel's boot; "" where the system has none.
        pid_namespace: The namespace of `pid`, as containers have their own; "" where unknown.
        pid: Its process id.
        process_start: Clock ticks between boot and its start: distinguishes it from a later process with the
            same id; 0 where unknown.
        since: Unix time in milliseconds at which it took the changefeed.
    """

    token: str
    host: str
    machine: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    process_start: int = 0
    since: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a changefeed, and which processes that had it before are kept out.

    Attributes:
        epoch: Its number: each process that takes the changefeed gets the next one.
        holder: Who has it.
        released: The holder has stopped, and any process may acquire the lease immediately.
        unfenced: Highest epoch whose process may still be alive, while some table may still take a commit of it; 0
            once every table refuses them.
        fenced: Highest epoch that all tables refuse; a table that turns up with its stamp was made later.
    """

    epoch: Annotated[int, msgspec.Meta(ge=1)]
    holder: Holder
    released: bool = False
    unfenced: Count = 0
    fenced: Count = 0

    def next(self, holder: Holder, *, is_over: bool) -> Lease:
        """The lease of the next holder; where this one is not over, its process may be alive and is to be fenced."""
        return Lease(self.epoch + 1, holder, unfenced=self.unfenced if is_over else self.epoch, fenced=self.fenced)


@dataclass(frozen=True, slots=True)
class Feed:
    """What was learnt of the feed by reading it: messages that come later do not say it again.

    Attributes:
        protocol: Protocol of the messages that were read; "" before the first.
        topic_ids: What distinguishes each topic from another of its name; {} where the source does not show it.
        passed: In a feed in offset order, by table and partition the commit ts of the newest DDL of the table that was
            read there: its rows at or below it came before.
        homes: Topics of tables that may share their Avro name with others; only DDL have shown these topics.
    """

    protocol: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    passed: Mapping[TableName, Mapping[TopicPartition, Count]] = field(default_factory=dict)
    homes: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """What shows all tables at the resolved ts of a checkpoint.

    Attributes:
        heads: Head of each table, by its Iceberg identifier.
        at: Unix milliseconds as of which each table shows its head, or a later snapshot of the same rows: no snapshot
            of these heads is younger, and each that changes rows after the checkpoint is. 0 where not known.
    """

    heads: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    at: Count = 0


class Tracked(NamedTuple):
    """What a table is at the checkpoint.

    Attributes:
        version: Number of its `TableVersion`; -1 for a parked table whose columns are not known.
        topic: Topic that brought it; "" where unknown. A topic none of whose tables is left gets no more watermarks.
        partitioning: How it is partitioned; None where it is not, or where no statement shows it. A later DROP
            PARTITION names the partition alone, and the statement that gave its bounds is not read again after a
            restart.
        completeness: Whether it holds every row; None where nothing is known of it.
        loaded: TSO of the export that its rows come from: the table has everything at or below it; 0 for none.
        identity: `Table.identity` of its Iceberg table; "" where it is not known, and for parked tables, whose position
            has it.
    """

    version: int
    topic: str = ""
    partitioning: Partitioning | None = None
    completeness: Completeness | None = None
    loaded: Count = 0
    identity: str = ""


STILL = "still"
STEP = "step"
"""Names of figures, see `Checkpoint`."""

UNKNOWN = -1
"""Number of a version that is not known."""


class Resuming(NamedTuple):
    """A job: rows and DDL are applied to copies of tables, beside the others.

    Attributes:
        job: Names this attempt. What an earlier one has made counts for nothing.
        progress: How far these tables are; its tables are those under way, by the names that they have there.
        hold: The backfill that shows the copies at its end, or keeps them for a look: its branch, and a hash of what
            was asked for. "" for parked tables that are brought back.
    """

    job: str
    progress: Checkpoint
    hold: str = ""


class Moving(NamedTuple):
    """Names that a step was about to free or give to other tables. The step may have failed.

    Until that step is repeated, the catalog does not show whose a name is. In offset order a step that changes
    partitions keeps it as well, for the messages that it read.

    Attributes:
        tables: The commit ts of the DDL that concerns each name.
        ends: Offsets (exclusive) up to which the step read: a shorter window might leave such a DDL out.
    """

    tables: Mapping[TableName, Count]
    ends: Mapping[TopicPartition, Count]


class Stop(NamedTuple):
    """What ended the last run.

    Attributes:
        because: Its sentence; "" for a run with `--once` that came to its ends.
        hint: What to do about it; "" for none.
        at: Unix time in milliseconds.
        ddl: Commit ts of the DDL that was refused; 0 where it was something else.
    """

    because: str
    hint: str
    at: Count
    ddl: Count = 0


Done = Literal["parked", "resumes", "loading", "catching up", "forgotten", "reloaded", "refused", "withdrawn"]


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of a request.

    Attributes:
        done: What was done; `refused`: nothing was.
        tables: The tables with which it was done.
        left: The tables with which it was not.
        notes: A sentence each, why: of tables that were left as they were, of a request that was refused, on the
            Iceberg tables that stay, or on what differs in the configuration.
    """

    done: Done
    tables: tuple[TableName, ...] = ()
    left: tuple[TableName, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether nothing was done."""
        return self.done == "refused"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a changefeed after one step. A restart needs nothing else but the stamps of the tables.

    Attributes:
        lease: Who holds the changefeed, and so wrote it.
        step: Counts the checkpoints of the changefeed; never repeats.
        resolved_ts: Every table is at this TSO; 0 where nothing is applied yet, or the feed carries no watermark.
        written_at: Unix time in milliseconds at which it was written: the holder's sign of life.
        partitions: How far each partition is read.
        feed: What else is known of the feed.
        cut: What shows all tables at `resolved_ts`.
        tables: Each upstream table as its DDL up to `resolved_ts` left it.
        ddl: DDL of exactly `resolved_ts` that are applied, as others may still follow; in a feed in offset order the
            latest ones, as they may come again.
        counts: Figures of the step, for people; nothing depends on them. `STILL` is 1 where no newer watermark has come
            for `run.stall_seconds` after it, while the source answered.
        resuming: The job under way; None without one.
        handled: Requests of commands that were carried out, by their id; the latest ones.
        moving: Names that the step after this checkpoint was about to free or give away; None without such a step.
        stopped: What ended the last run; None once a step is done, and where a user ended it.
        is_lost: All checkpoints before it are lost, and the feed is not read yet as far as the tables are.
        control_rows: Rows that the other control tables have which only grow: one with fewer was set back.
    """

    lease: Lease
    step: Count
    resolved_ts: Count
    written_at: Count
    partitions: Mapping[TopicPartition, Reading] = field(default_factory=dict)
    feed: Feed = field(default_factory=Feed)
    cut: Cut = field(default_factory=Cut)
    tables: Mapping[TableName, Tracked] = field(default_factory=dict)
    ddl: tuple[DdlId, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    resuming: Resuming | None = None
    handled: Mapping[str, RequestOutcome] = field(default_factory=dict)
    moving: Moving | None = None
    stopped: Stop | None = None
    is_lost: bool = False
    control_rows: Mapping[str, Count] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """Number of the newest step: starts, stops and heartbeats since have checkpoints of their own."""
        return self.counts.get(STEP, self.step)

    @property
    def is_through(self) -> bool:
        """Whether nothing runs since a run with `--once` came to its ends."""
        return self.lease.released and self.stopped is not None and not self.stopped.because

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The offset to read next in each partition."""
        return {partition: reading.next_offset for partition, reading in self.partitions.items()}

    @property
    def resolved(self) -> dict[TopicPartition, int]:
        """Newest resolved ts of each partition that has sent one."""
        return {
            partition: reading.resolved_ts
            for partition, reading in self.partitions.items()
            if reading.resolved_ts is not None
        }


def has_reached(last: Checkpoint, position: FeedPosition) -> bool:
    """Whether a changefeed is at a place in the feed, or beyond it: a table that was loaded may be ahead."""
    own = last.next_offsets
    return position.ts <= last.resolved_ts and all(
        reading.next_offset <= own.get(place, 0) for place, reading in position.readings.items()
    )


def caught_up(known: Completeness, last: Checkpoint) -> float | None:
    """Share of the missed range that a resuming table has applied; None for others, and in offset order."""
    job = last.resuming
    if job is None or job.hold or known.position is None or not known.is_due or not last.resolved_ts:
        return None
    begin, reached = known.position.ts, job.progress.resolved_ts
    return round(max(0.0, min(1.0, (reached - begin) / max(1, last.resolved_ts - begin))), 3)
