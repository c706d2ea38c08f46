"""Command `status`: how far a changefeed is, who holds it, and the queries that read all its tables as of one moment.

It reads the control tables and the metadata of the tables through PyIceberg; no Spark, no row of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import cast

from applier.changefeed.checkpoint import Checkpoint, caught_up
from applier.changefeed.completeness import LEFT_OUT, UNRECORDED, Completeness
from applier.changefeed.filter import TableFilter
from applier.changefeed.route import Route
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import Lake, LakeTable, open_lake
from applier.commands.control_reader import ControlView
from applier.commands.status.report import (
    LACKING,
    DdlReport,
    HolderReport,
    LetterReport,
    PartitionProgress,
    StatusReport,
    TableProgress,
    TableState,
    age,
    iso,
    iso_of,
    judged,
)
from applier.commands.status.rollback import rollback, spark_name
from applier.config.settings import Config
from applier.order.feed_order import ORDERS
from applier.pipeline.tables.loads import Load, place_of
from applier.sink.commit.stamp import RESOLVED_TS
from applier.sink.control.rows import DeadLetter, SchemaDecision
from applier.sink.control.tables import CHECKPOINTS

MAX_LAG_SECONDS = 300.0
"""Lag from which on tables are stale: as long as `applier run` bears an outage."""

_SHOWN = 10
_THREADS = 8
_START = "run `applier run`, which looks at what made the table and records it."


def status(config: Config, *, max_lag_seconds: float = MAX_LAG_SECONDS, now_ms: int) -> StatusReport:
    """Find out how far a changefeed is; its tables are stale from a lag of `max_lag_seconds` on.

    Raises:
        ConfigError: The catalog cannot be read without Spark.
        TransientError: The catalog or its storage does not answer.
        TerminalError: The newest checkpoint cannot be read.
    """
    empty = StatusReport(config.changefeed.name, max_lag_seconds, iso(now_ms))
    with open_lake(config.catalog) as lake:
        view = ControlView(lake, config.changefeed.name)
        checkpoint = view.checkpoint()
        report = empty if checkpoint is None else _found(empty, config, lake, view, checkpoint, now_ms)
        if checkpoint is None and (epoch := view.lost_epoch()):
            lost = f"The control table {'.'.join(view.name(CHECKPOINTS))} is lost: other tables know epoch {epoch}."
            report = replace(report, notes=(lost,))
    return replace(report, stale=tuple(judged(report)))


def _found(
    empty: StatusReport, config: Config, lake: Lake, view: ControlView, last: Checkpoint, now_ms: int
) -> StatusReport:
    order = ORDERS[config.changefeed.order]
    resolved_ts = order.as_of(last.resolved_ts) or None
    tables = _tables(lake, last, config)
    decisions, letters = view.decisions(), view.letters()
    silent = (now_ms - last.written_at) / 1000
    lag = None if resolved_ts is None else age(resolved_ts, now_ms)
    return replace(
        empty,
        resolved_ts=resolved_ts,
        resolved=iso_of(resolved_ts),
        lag_seconds=lag if order.has_watermark else max(0.0, silent),
        step=last.step,
        holder=_holder(last, silent),
        counts=dict(last.counts),
        tables=tables,
        partitions=tuple(
            PartitionProgress(*place, reading.next_offset, reading.resolved_ts, iso_of(reading.resolved_ts))
            for place, reading in sorted(last.partitions.items())
        ),
        schema_changes=tuple(_ddl(item) for item in reversed(decisions[-_SHOWN:])),
        schema_change_count=len(decisions),
        dead_letters=tuple(_letter(item) for item in letters[:_SHOWN]),
        dead_letter_count=len(letters),
        cut=tuple(_cut(config.catalog.name, _in_cut(last, tables))),
        notes=tuple(_notes(tables, silent, config, last, letters=len(letters))),
    )


def _holder(last: Checkpoint, silent: float) -> HolderReport:
    holder = last.holder
    return HolderReport(
        name=str(holder),
        host=holder.host,
        pid=holder.pid,
        epoch=last.epoch,
        since=iso(holder.since),
        seen=iso(last.written_at),
        silent_seconds=round(max(0.0, silent), 3),
        released=last.released,
    )


def _tables(lake: Lake, last: Checkpoint, config: Config) -> tuple[TableProgress, ...]:
    names, route = sorted(last.tables), Route(config.tables.route)
    admits = TableFilter(config.tables.include).admits
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda name: lake.table(route.identifier(name)), names))
    pairs = zip(names, found, strict=True)
    shown = [(name, _progress(name, route.identifier(name), table, last, config)) for name, table in pairs]
    judged = [(name, _judged(name, progress, last, config, is_wanted=admits(name))) for name, progress in shown]
    return tuple(_loading(lake, name, found, config) if found.state == "loading" else found for name, found in judged)


def _loading(lake: Lake, name: TableName, found: TableProgress, config: Config) -> TableProgress:
    """With the share of the export that is loaded aside."""
    table = lake.table(place_of(config.changefeed.name, name))
    load = None if table is None else Load.told_by(table.properties)
    return found if load is None else replace(found, caught_up=round(load.share, 3))


def _progress(
    name: TableName, identifier: tuple[str, ...], table: LakeTable | None, last: Checkpoint, config: Config
) -> TableProgress:
    """How far a table is by its metadata; a table that was rolled back shows less than the cut."""
    cut = last.snapshots.get(identifier)
    iceberg = ".".join(identifier)
    if table is None:
        return TableProgress(str(name), iceberg, "empty" if cut is None else "missing", cut_snapshot_id=cut)
    text = table.properties.get(RESOLVED_TS, "")
    stamp = int(text) if text.isdecimal() else None
    progress = TableProgress(
        table=str(name),
        iceberg=iceberg,
        state=_state(table, cut, stamp, last.resolved_ts),
        resolved_ts=stamp or None,
        resolved=iso_of(stamp),
        rows=max(0, table.rows - table.dead_rows),
        snapshot_id=table.snapshot_id,
        cut_snapshot_id=cut,
    )
    found = rollback(name, table, cut, config)
    if found is None or progress.state == "dropped":
        return progress
    return replace(progress, state="rolled back", because=found.because, way_out=found.way_out)


def _judged(
    name: TableName, progress: TableProgress, last: Checkpoint, config: Config, *, is_wanted: bool
) -> TableProgress:
    """A table that lacks rows is not in the cut, whatever its snapshots say."""
    recorded = last.tables[name].completeness
    known = recorded or Completeness("incomplete", reason=UNRECORDED)
    if recorded and not is_wanted and not recorded.is_parked:
        known = Completeness("parked", since=last.resolved_ts, reason=LEFT_OUT, cause="include")
    if known.is_live or progress.state in ("missing", "dropped"):
        return progress
    return replace(
        progress,
        state=cast("TableState", known.word),
        cut_snapshot_id=None,
        because=known.sentence(name),
        way_out=known.way_out(name, config.path) if recorded else _START,
        is_wanted=is_wanted,
        since=known.since or None,
        caught_up=caught_up(known, last),
    )


def _state(table: LakeTable, cut: int | None, stamp: int | None, resolved_ts: int) -> TableState:
    if "applier.dropped-at" in table.properties:
        return "dropped"
    if stamp is not None and stamp > resolved_ts > 0:
        return "ahead"
    if cut is None:
        return "empty"
    return "in step" if cut in table.snapshots else "expired"


def _in_cut(last: Checkpoint, tables: Sequence[TableProgress]) -> dict[tuple[str, ...], int]:
    """Snapshots of the tables that show every row, also where an older version listed others."""
    lacking = {table.iceberg for table in tables if table.state in LACKING}
    return {identifier: head for identifier, head in last.snapshots.items() if ".".join(identifier) not in lacking}


def _cut(catalog: str, snapshots: Mapping[tuple[str, ...], int]) -> Iterator[str]:
    for identifier, snapshot_id in sorted(snapshots.items()):
        yield f"SELECT * FROM {spark_name([catalog, *identifier])} VERSION AS OF {snapshot_id};"  # noqa: S608 - printed, never run


def _notes(
    tables: Sequence[TableProgress], silent: float, config: Config, last: Checkpoint, *, letters: int
) -> Iterator[str]:
    if not last.released and silent > config.run.lease_seconds:
        yield f"{last.holder} holds the changefeed, but has been silent for {silent:.0f} s: the next applier takes it."
    ahead = [table.iceberg for table in tables if table.state == "ahead" and table.snapshot_id == table.cut_snapshot_id]
    if ahead:
        yield f"The cut shows more than the resolved ts of {', '.join(ahead)}, until a step has caught up with them."
    expired = [table.iceberg for table in tables if table.state == "expired"]
    if expired:
        yield f"The snapshots of the cut have expired in {', '.join(expired)}: the heads show the same rows, or newer."
    if letters:
        yield f"{letters} message{'s were' if letters > 1 else ' was'} set aside as dead letters."


def _ddl(item: SchemaDecision) -> DdlReport:
    place = item.commit_ts, iso_of(item.commit_ts) or "", str(item.table)
    return DdlReport(*place, item.kind, item.decision, item.reason, item.sql, _instant(item.decided_at))


def _letter(item: DeadLetter) -> LetterReport:
    return LetterReport(item.topic, item.partition, item.offset, item.error, item.step, _instant(item.buried_at))


def _instant(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds")
