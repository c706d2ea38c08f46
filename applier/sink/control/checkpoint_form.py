"""The JSON form of checkpoints, as `schemas/checkpoint/v3.json` describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from applier.changefeed.checkpoint import Checkpoint, Holder, Resuming, Tracked
from applier.changefeed.completeness import Cause, Completeness, Wholeness
from applier.changefeed.message import TopicPartition
from applier.changefeed.partitioning import Partitioning
from applier.changefeed.position import AppliedDdl, FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.errors import TerminalError

FORMAT = 3
"""Version of the JSON form. It rises with every new member: a reader drops members that it does not know, and what it
writes next would lack them. Format 1 does not hold the completeness of tables, format 2 not where parked tables left
the others."""

_READ = (1, 2, 3)
"""Formats that this version reads."""


def to_json(checkpoint: Checkpoint) -> str:
    """The text form of a checkpoint."""
    return msgspec.json.encode(_written(checkpoint)).decode()


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


class NameV3(msgspec.Struct, frozen=True):
    """Name of an upstream table, in format 3."""

    database: str
    table: str


class PositionV3(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a table left the others, in format 3: as `position.FeedPosition`."""

    name: NameV3
    ts: Count = 0
    place: Count | None = None
    """Number of the place in `places` of the checkpoint: many tables may have left at once."""
    version: int | None = None
    partitioning: PartitioningV1 | None = None
    passed: tuple[OffsetV2, ...] = ()
    """By partition a commit ts, as `offset`."""


class CompletenessV2(msgspec.Struct, frozen=True, omit_defaults=True):
    """Completeness of a table: as `completeness.Completeness`. `offsets` and `missed_ddl` are of format 2 alone, all
    from `cause` on is new in format 3.
    """

    state: Wholeness
    since: Count = 0
    offsets: tuple[OffsetV2, ...] = ()
    reason: str = ""
    missed_ddl: bool = False
    cause: Cause = ""
    position: PositionV3 | None = None
    lacked: str = ""
    partners: tuple[NameV3, ...] = ()
    is_due: bool = False
    origin: PositionV3 | None = None


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


class PlaceV3(msgspec.Struct, frozen=True):
    """What positions of several tables share, in format 3."""

    partitions: tuple[PartitionV1, ...] = ()
    ddl: tuple[DdlV1, ...] = ()


class ResumingV3(msgspec.Struct, frozen=True):
    """Parked tables that are being brought back, in format 3: as `Resuming`."""

    job: str
    progress: CheckpointV1


class CheckpointV1(msgspec.Struct, frozen=True):
    """A checkpoint; `protocol` is new in format 2, what follows it in format 3."""

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
    places: tuple[PlaceV3, ...] = ()
    resuming: ResumingV3 | None = None
    handled: dict[str, str] = {}


def json_schema() -> bytes:
    """JSON Schema of format 3, as kept in `schemas/checkpoint/v3.json`; older formats are the same with less."""
    described = msgspec.json.schema(CheckpointV1)
    described["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return msgspec.json.format(msgspec.json.encode(described, order="sorted"), indent=2) + b"\n"


class _AnyFormat(msgspec.Struct):
    format: int


def _written(checkpoint: Checkpoint) -> CheckpointV1:
    places: list[PlaceV3] = []
    resuming = checkpoint.resuming
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
        partitions=_written_readings(checkpoint.partitions),
        snapshots=tuple(SnapshotV1(table, head) for table, head in sorted(checkpoint.snapshots.items())),
        counts=dict(checkpoint.counts),
        tables=tuple(_written_table(name, checkpoint.tables[name], places) for name in sorted(checkpoint.tables)),
        ddl=tuple(DdlV1(*ddl) for ddl in checkpoint.ddl),
        topic_ids=dict(checkpoint.topic_ids),
        passed=_written_passed(checkpoint.passed),
        protocol=checkpoint.protocol,
        resuming=None if resuming is None else ResumingV3(resuming.job, _written(resuming.progress)),
        handled=dict(checkpoint.handled),
        places=tuple(places),
    )


def _read(written: CheckpointV1) -> Checkpoint:
    resuming = written.resuming
    return Checkpoint(
        epoch=written.epoch,
        step=written.step,
        resolved_ts=written.resolved_ts,
        written_at=written.written_at,
        holder=written.holder,
        released=written.released,
        unfenced=written.unfenced,
        fenced=written.fenced,
        partitions=_read_readings(written.partitions),
        snapshots={item.table: item.snapshot_id for item in written.snapshots},
        tables={TableName(item.database, item.table): _read_table(item, written.places) for item in written.tables},
        ddl=tuple(AppliedDdl(item.sql, item.table, item.commit_ts) for item in written.ddl),
        topic_ids=written.topic_ids,
        passed=_read_passed(written.passed),
        protocol=written.protocol,
        counts=written.counts,
        resuming=None if resuming is None else Resuming(resuming.job, _read(resuming.progress)),
        handled=written.handled,
    )


def _written_readings(readings: Mapping[TopicPartition, Reading]) -> tuple[PartitionV1, ...]:
    return tuple(PartitionV1(*partition, *reading) for partition, reading in sorted(readings.items()))


def _read_readings(written: Iterable[PartitionV1]) -> dict[TopicPartition, Reading]:
    return {TopicPartition(item.topic, item.partition): Reading(item.next_offset, item.resolved_ts) for item in written}


def _written_table(name: TableName, tracked: Tracked, places: list[PlaceV3]) -> TableV1:
    known = tracked.completeness
    whole = None
    if known is not None:
        whole = CompletenessV2(
            state=known.state,
            since=known.since,
            reason=known.reason,
            cause=known.cause,
            position=None if known.position is None else _written_position(known.position, places),
            lacked=known.lacked,
            partners=tuple(NameV3(*partner) for partner in known.partners),
            is_due=known.is_due,
            origin=None if known.origin is None else _written_position(known.origin, places),
        )
    return TableV1(*name, tracked.version, tracked.topic, _written_partitioning(tracked.partitioning), whole)


def _written_position(position: FeedPosition, places: list[PlaceV3]) -> PositionV3:
    at = None
    if position.readings or position.ddl:
        place = PlaceV3(_written_readings(position.readings), tuple(DdlV1(*ddl) for ddl in position.ddl))
        if place not in places:
            places.append(place)
        at = places.index(place)
    passed = tuple(OffsetV2(*partition, ts) for partition, ts in sorted(position.passed.items()))
    form = _written_partitioning(position.partitioning)
    return PositionV3(NameV3(*position.name), position.ts, at, position.version, form, passed)


def _read_table(written: TableV1, places: Sequence[PlaceV3]) -> Tracked:
    return Tracked(
        written.version,
        written.topic,
        _read_partitioning(written.partitioning),
        _read_completeness(written, places),
    )


def _read_completeness(table: TableV1, places: Sequence[PlaceV3]) -> Completeness | None:
    written = table.completeness
    if written is None:
        return None
    found = written.position
    return Completeness(
        state=written.state,
        since=written.since,
        reason=written.reason,
        cause=written.cause or ("include" if written.state == "parked" else ""),
        position=_former_position(table, written) if found is None else _read_position(found, places),
        lacked=written.lacked,
        partners=tuple(TableName(item.database, item.table) for item in written.partners),
        is_due=written.is_due,
        origin=None if written.origin is None else _read_position(written.origin, places),
    )


def _read_position(written: PositionV3, places: Sequence[PlaceV3]) -> FeedPosition:
    place = PlaceV3() if written.place is None else places[written.place]
    return FeedPosition(
        name=TableName(written.name.database, written.name.table),
        ts=written.ts,
        ddl=tuple(AppliedDdl(item.sql, item.table, item.commit_ts) for item in place.ddl),
        readings=_read_readings(place.partitions),
        version=written.version,
        partitioning=_read_partitioning(written.partitioning),
        passed={TopicPartition(item.topic, item.partition): item.offset for item in written.passed},
    )


def _former_position(table: TableV1, written: CompletenessV2) -> FeedPosition | None:
    """Where a table of format 2 was parked; None if it missed a DDL, as its columns of that time are not known."""
    if written.state != "parked" or written.cause or written.missed_ddl or not (written.since or written.offsets):
        return None
    readings = {TopicPartition(item.topic, item.partition): Reading(item.offset) for item in written.offsets}
    form = _read_partitioning(table.partitioning)
    name = TableName(table.database, table.table)
    return FeedPosition(name, written.since, readings=readings, version=table.version, partitioning=form)


def _written_partitioning(partitioning: Partitioning | None) -> PartitioningV1 | None:
    return None if partitioning is None else msgspec.convert(partitioning, PartitioningV1, from_attributes=True)


def _read_partitioning(written: PartitioningV1 | None) -> Partitioning | None:
    return None if written is None else msgspec.convert(written, Partitioning, from_attributes=True)


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
