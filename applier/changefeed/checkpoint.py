"""Checkpoints: how far a changefeed is applied, where reading goes on, and who holds it; and their JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from applier.changefeed.completeness import Completeness, Wholeness
from applier.changefeed.message import TopicPartition
from applier.changefeed.partitioning import Partitioning
from applier.changefeed.table import TableName
from applier.errors import TerminalError

FORMAT = 2
"""Version of the JSON form. It rises with every new member: a reader drops members that it does not know, and what it
writes next would lack them. Format 1 does not hold the completeness of tables."""

_READ = (1, 2)
"""Formats that this version reads."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a changefeed.

    Attributes:
        token: Made anew for each process; distinguishes the own checkpoints from others'.
        host: Its host name.
        machine: Machine id of the operating system; "" where there is none.
        boot_id: Id of the kernel's boot; "" where the system has none.
        pid_namespace: The namespace that `pid` is of, as containers have their own; "" where unknown.
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


class Reading(NamedTuple):
    """How far one partition is read.

    Attributes:
        next_offset: The offset to read next: the lowest of anything that is not applied yet.
        resolved_ts: Newest resolved ts that the partition has sent; None before its first.
    """

    next_offset: int
    resolved_ts: int | None = None


class Tracked(NamedTuple):
    """What a table is at the checkpoint.

    Attributes:
        version: Number of its `TableVersion`.
        topic: Topic that brought it; "" where unknown. A topic none of whose tables is left gets no more watermarks.
        partitioning: How it is partitioned; None where it is not, or where no statement shows it. A later DROP
            PARTITION names the partition alone, and the statement that gave its bounds is not read again after a
            restart.
        completeness: Whether it holds every row; None in a checkpoint of format 1, which does not hold it.
    """

    version: int
    topic: str = ""
    partitioning: Partitioning | None = None
    completeness: Completeness | None = None


class AppliedDdl(NamedTuple):
    """A DDL that was applied at exactly the checkpoint's resolved ts, of which others may still follow.

    In a feed in offset order it is one of the latest, as it may come again.
    """

    sql: str
    table: str
    commit_ts: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a changefeed after one step. A restart needs nothing else but the stamps of the tables.

    Attributes:
        epoch: Number of the hold: each process that takes the changefeed gets the next one.
        step: Counts the checkpoints of the changefeed; never repeats.
        resolved_ts: Every table is at this TSO; 0 where nothing is applied yet, or the feed carries no watermark.
        written_at: Unix time in milliseconds at which it was written: the holder's sign of life.
        holder: Who wrote it.
        released: The holder has stopped, and anybody may take over at once.
        unfenced: Highest epoch whose process may still be alive, while some table may still take a commit of it; 0
            once every table refuses them.
        fenced: Highest epoch that all tables were made to refuse; one that turns up with its stamp was made since.
        partitions: How far each partition is read.
        snapshots: Head of each table at `resolved_ts`, by its Iceberg identifier: the cut over all tables.
        tables: Each upstream table as its DDL up to `resolved_ts` left it.
        ddl: DDL of exactly `resolved_ts` that are applied.
        passed: In a feed in offset order, by table and partition the commit ts of the newest DDL of the table that was
            read there: its rows at or below it came before.
        topic_ids: What distinguishes each topic from another of its name; {} where the source does not show it.
        counts: Figures of the step, for people; nothing depends on them.
        protocol: Protocol of the messages that were read; "" in format 1, which does not hold it.
    """

    epoch: int
    step: int
    resolved_ts: int
    written_at: int
    holder: Holder
    released: bool = False
    unfenced: int = 0
    fenced: int = 0
    partitions: Mapping[TopicPartition, Reading] = field(default_factory=dict)
    snapshots: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    tables: Mapping[TableName, Tracked] = field(default_factory=dict)
    ddl: tuple[AppliedDdl, ...] = ()
    passed: Mapping[TableName, Mapping[TopicPartition, int]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    protocol: str = ""

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

    def to_json(self) -> str:
        """Text form, as `schemas/checkpoint/v2.json` describes it."""
        return msgspec.json.encode(_written(self)).decode()

    @staticmethod
    def from_json(text: str | bytes) -> Checkpoint:
        """Read what `to_json` wrote.

        Raises:
            TerminalError: It is no checkpoint, or one of a newer format.
        """
        try:
            version = msgspec.json.decode(text, type=_AnyFormat).format
            if version not in _READ:
                what = f"The checkpoint has format {version}, but this applier reads formats 1 to {FORMAT}."
                raise TerminalError(what, "Start the version of applier that wrote it, or a newer one.")
            return _read(msgspec.json.decode(text, type=CheckpointV1))
        except msgspec.MsgspecError as error:
            what = f"The newest checkpoint is damaged: {error}."
            way_out = "Drop the control table checkpoints and replay: the tables know by their stamps what they have."
            raise TerminalError(what, way_out) from error


Count = Annotated[int, msgspec.Meta(ge=0)]


class PartitionV1(msgspec.Struct, frozen=True):
    """One partition, in format 1."""

    topic: str
    partition: Count
    next_offset: Count
    resolved_ts: Count | None = None


class SnapshotV1(msgspec.Struct, frozen=True):
    """Head of one table, in format 1; `table` holds the parts of its identifier."""

    table: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    snapshot_id: int


class PieceV1(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition of an upstream table, in format 1: as `ddl.Partition`."""

    name: str
    bound: tuple[str, ...] = ()
    values: tuple[tuple[str | None, ...], ...] = ()


class PartitioningV1(msgspec.Struct, frozen=True):
    """How an upstream table is partitioned, in format 1: as `ddl.Partitioning`."""

    method: str
    expression: str
    partitions: tuple[PieceV1, ...] = ()


class OffsetV2(msgspec.Struct, frozen=True):
    """An offset of a partition, in format 2."""

    topic: str
    partition: Count
    offset: Count


class CompletenessV2(msgspec.Struct, frozen=True, omit_defaults=True):
    """Completeness of a table, in format 2: as `completeness.Completeness`."""

    state: Wholeness
    since: Count = 0
    offsets: tuple[OffsetV2, ...] = ()
    reason: str = ""
    missed_ddl: bool = False


class TableV1(msgspec.Struct, frozen=True, omit_defaults=True):
    """One upstream table; `completeness` is new in format 2."""

    database: str
    table: str
    version: int
    topic: str = ""
    partitioning: PartitioningV1 | None = None
    completeness: CompletenessV2 | None = None


class DdlV1(msgspec.Struct, frozen=True):
    """One applied DDL, in format 1."""

    sql: str
    table: str
    commit_ts: Count = 0


class PassedV1(msgspec.Struct, frozen=True):
    """Partitions of a topic that have had a DDL of a table, in format 1."""

    database: str
    table: str
    topic: str
    commit_ts: Count
    partitions: tuple[Count, ...]


class CheckpointV1(msgspec.Struct, frozen=True):
    """A checkpoint, in formats 1 and 2."""

    format: Annotated[int, msgspec.Meta(ge=_READ[0], le=FORMAT)]
    epoch: Annotated[int, msgspec.Meta(ge=1)]
    step: Count
    resolved_ts: Count
    written_at: Count
    holder: Holder
    released: bool
    partitions: tuple[PartitionV1, ...]
    snapshots: tuple[SnapshotV1, ...]
    counts: dict[str, int]
    tables: tuple[TableV1, ...] = ()
    ddl: tuple[DdlV1, ...] = ()
    unfenced: Count = 0
    fenced: Count = 0
    topic_ids: dict[str, str] = {}
    passed: tuple[PassedV1, ...] = ()
    protocol: str = ""


def json_schema() -> bytes:
    """JSON Schema of format 2, as kept in `schemas/checkpoint/v2.json`; format 1 is the same without `completeness`."""
    described = msgspec.json.schema(CheckpointV1)
    described["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return msgspec.json.format(msgspec.json.encode(described, order="sorted"), indent=2) + b"\n"


class _AnyFormat(msgspec.Struct):
    format: int


def _written(checkpoint: Checkpoint) -> CheckpointV1:
    return CheckpointV1(
        format=FORMAT,
        epoch=checkpoint.epoch,
        step=checkpoint.step,
        resolved_ts=checkpoint.resolved_ts,
        written_at=checkpoint.written_at,
        holder=checkpoint.holder,
        released=checkpoint.released,
        unfenced=checkpoint.unfenced,
        fenced=checkpoint.fenced,
        partitions=tuple(
            PartitionV1(*partition, *reading) for partition, reading in sorted(checkpoint.partitions.items())
        ),
        snapshots=tuple(SnapshotV1(table, head) for table, head in sorted(checkpoint.snapshots.items())),
        counts=dict(checkpoint.counts),
        tables=tuple(_written_table(name, checkpoint.tables[name]) for name in sorted(checkpoint.tables)),
        ddl=tuple(DdlV1(*ddl) for ddl in checkpoint.ddl),
        topic_ids=dict(checkpoint.topic_ids),
        passed=_written_passed(checkpoint.passed),
        protocol=checkpoint.protocol,
    )


def _read(written: CheckpointV1) -> Checkpoint:
    return Checkpoint(
        epoch=written.epoch,
        step=written.step,
        resolved_ts=written.resolved_ts,
        written_at=written.written_at,
        holder=written.holder,
        released=written.released,
        unfenced=written.unfenced,
        fenced=written.fenced,
        partitions={
            TopicPartition(item.topic, item.partition): Reading(item.next_offset, item.resolved_ts)
            for item in written.partitions
        },
        snapshots={item.table: item.snapshot_id for item in written.snapshots},
        tables={TableName(item.database, item.table): _read_table(item) for item in written.tables},
        ddl=tuple(AppliedDdl(item.sql, item.table, item.commit_ts) for item in written.ddl),
        topic_ids=written.topic_ids,
        passed=_read_passed(written.passed),
        protocol=written.protocol,
        counts=written.counts,
    )


def _written_table(name: TableName, tracked: Tracked) -> TableV1:
    partitioning = tracked.partitioning
    form = None if partitioning is None else msgspec.convert(partitioning, PartitioningV1, from_attributes=True)
    known = tracked.completeness
    offsets = () if known is None else tuple(OffsetV2(*place, at) for place, at in sorted(known.offsets.items()))
    whole = None if known is None else CompletenessV2(known.state, known.since, offsets, known.reason, known.missed_ddl)
    return TableV1(*name, tracked.version, tracked.topic, form, whole)


def _read_table(written: TableV1) -> Tracked:
    form = written.partitioning
    partitioning = None if form is None else msgspec.convert(form, Partitioning, from_attributes=True)
    return Tracked(written.version, written.topic, partitioning, _read_completeness(written.completeness))


def _read_completeness(written: CompletenessV2 | None) -> Completeness | None:
    if written is None:
        return None
    offsets = {TopicPartition(item.topic, item.partition): item.offset for item in written.offsets}
    return Completeness(written.state, written.since, offsets, written.reason, written.missed_ddl)


def _written_passed(passed: Mapping[TableName, Mapping[TopicPartition, int]]) -> tuple[PassedV1, ...]:
    """Most partitions of a table have the same DDL: one entry for them all."""
    found: dict[tuple[str, str, str, int], list[int]] = {}
    for name, places in sorted(passed.items()):
        for place, commit_ts in sorted(places.items()):
            found.setdefault((*name, place.topic, commit_ts), []).append(place.partition)
    return tuple(PassedV1(*key, tuple(partitions)) for key, partitions in found.items())


def _read_passed(written: Iterable[PassedV1]) -> dict[TableName, dict[TopicPartition, int]]:
    found: dict[TableName, dict[TopicPartition, int]] = {}
    for item in written:
        places = found.setdefault(TableName(item.database, item.table), {})
        places |= {TopicPartition(item.topic, partition): item.commit_ts for partition in item.partitions}
    return found
