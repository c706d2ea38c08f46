"""Composes the report on a changefeed from its checkpoint, its tables, and its control tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from applier.changefeed.checkpoint import Checkpoint, Stop, caught_up
from applier.changefeed.completeness import LEFT_OUT, UNRECORDED, Completeness, furthest_back
from applier.changefeed.filter import TableFilter, option
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.order.feed_order import ORDERS
from applier.runtime.figures import counted
from applier.sink.control.rows import DeadLetter, SchemaDecision
from applier.watch.report import (
    LACKING,
    DdlReport,
    HolderReport,
    LetterReport,
    PartitionProgress,
    StatusReport,
    StepProgress,
    TableProgress,
    TableState,
    age,
    iso,
    iso_of,
    judged,
    several,
    spark_name,
)
from applier.watch.steps import explained

_SHOWN = 10
_GONE = "Table {} is not in the catalog, though the checkpoint lists it."
_START = "run `applier run -c {config}`, which looks at what made the table and records it."


@dataclass(frozen=True, slots=True)
class Facts:
    """What a report is composed of.

    Attributes:
        checkpoint: The newest one.
        tables: How far each table is by its own metadata.
        decisions: What became of each DDL, in order of commit ts.
        letters: Dead letters that are not made up for, newest first.
        steps: The newest steps, newest first.
    """

    checkpoint: Checkpoint
    tables: Sequence[tuple[TableName, TableProgress]]
    decisions: Sequence[SchemaDecision] = ()
    letters: Sequence[DeadLetter] = ()
    steps: Sequence[StepProgress] = ()


def empty(config: Config, max_lag_seconds: float, now_ms: int) -> StatusReport:
    """The report on a changefeed that has no checkpoint."""
    report = StatusReport(config.changefeed.name, max_lag_seconds, iso(now_ms))
    return replace(report, stale=tuple(judged(report, _start(config))))


def compose(
    config: Config,
    facts: Facts,
    max_lag_seconds: float,
    now_ms: int,
    loaded: Callable[[TableName], float | None] = lambda name: None,
) -> StatusReport:
    """The report on a changefeed.

    Args:
        config: Its configuration.
        facts: What is known of it.
        max_lag_seconds: Age from which on its tables are stale.
        now_ms: The time, in Unix milliseconds.
        loaded: Share of its export that is in a table which is being loaded; None where nothing shows it.
    """
    last, order = facts.checkpoint, ORDERS[config.changefeed.order]
    resolved_ts = order.as_of(last.resolved_ts) or None
    silent = (now_ms - last.written_at) / 1000
    lag = age(resolved_ts, now_ms) if resolved_ts else None if order.has_watermark else round(max(0.0, silent), 3)
    admits = TableFilter(config.tables.include).admits
    since = furthest_back(
        last.resolved_ts, [table.completeness for table in last.tables.values() if table.completeness]
    )
    tables = tuple(
        _aged(_judged(name, found, last, config, is_wanted=admits(name), loaded=loaded), lag, now_ms)
        for name, found in facts.tables
    )
    report = replace(
        empty(config, max_lag_seconds, now_ms),
        resolved_ts=resolved_ts,
        resolved=iso_of(resolved_ts),
        lag_seconds=lag,
        step=last.step,
        holder=_holder(last, silent),
        counts=dict(last.counts),
        steps=tuple(facts.steps),
        tables=tables,
        partitions=tuple(
            PartitionProgress(*place, reading.next_offset, reading.resolved_ts, iso_of(reading.resolved_ts))
            for place, reading in sorted(last.partitions.items())
        ),
        schema_changes=tuple(_ddl(item, since) for item in reversed(facts.decisions[-_SHOWN:])),
        schema_change_count=len(facts.decisions),
        dead_letters=tuple(_letter(item) for item in facts.letters[:_SHOWN]),
        dead_letter_count=len(facts.letters),
        cut=tuple(_cut(config.catalog.name, _in_cut(last, tables))),
        notes=tuple(_notes(tables, silent, config, last, letters=len(facts.letters))),
    )
    is_gone = last.released or silent > config.run.lease_seconds
    pending = [item for item in facts.decisions if _holds_up(item, last, is_gone=is_gone)]
    held = [_held_up(item, config) for item in pending]
    if last.stopped and not any(item.because in last.stopped.because for item in pending):
        held.append(_ended(last.stopped, config))
    used = [item for item in report.partitions if item.partition < (config.changefeed.partitions or math.inf)]
    stale = judged(report, _start(config) if is_gone and not held else "", held)
    silent_places = [item for item in used if order.has_watermark and item.resolved_ts is None]
    if lag is None or lag > max_lag_seconds:
        report = replace(report, notes=(*_silent(silent_places, config), *report.notes))
    return replace(report, stale=tuple(stale), explanation=explained(report, used))


def _silent(partitions: Sequence[PartitionProgress], config: Config) -> Iterator[str]:
    """What holds the watermark of all tables back: partitions that never sent one."""
    if partitions:
        names = several([f"{item.topic}/{item.partition}" for item in partitions])
        yield (
            f"No watermark has ever come from {names}, so no table advances. Hint: if TiCDC does not use so many "
            "partitions (`partition-num`), set changefeed.partitions to the number that it uses, and start "
            f"`applier run -c {config.path}` again; if it is to use them all, pause and resume the changefeed in TiCDC."
        )


def _holds_up(item: SchemaDecision, last: Checkpoint, *, is_gone: bool) -> bool:
    """Whether the changefeed stopped at a DDL: it was refused, and the checkpoint has not come past it."""
    reached = max([last.resolved_ts, *(it.commit_ts for it in last.ddl)])
    is_beyond = item.commit_ts > last.resolved_ts and item.commit_ts >= reached
    done = {(it.sql, it.commit_ts) for it in last.ddl}
    if item.decision != "refused" or not is_beyond or (item.sql, item.commit_ts) in done:
        return False
    # A process that lives may be about to park the table of what it has just refused, and to go on.
    return is_gone or item.decided_at.timestamp() * 1000 < last.holder.since


def _held_up(item: SchemaDecision, config: Config) -> str:
    of = f" of {item.subject}" if item.subject else ""
    what = f"A DDL{of} holds changefeed {config.changefeed.name} up: {item.because.rstrip('.')}."
    return f"{what} Hint: {way_past(item, config)}"


def _ended(stop: Stop, config: Config) -> str:
    what = f"The last run of changefeed {config.changefeed.name} ended at {iso(stop.at)}: {stop.because}"
    return (what if " Hint: " in what else f"{what} Hint: {_start(config)}").replace(" -c FILE", f" -c {config.path}")


def way_past(item: SchemaDecision, config: Config) -> str:
    """How the changefeed goes on that stopped at a refused DDL."""
    skip = f"applier ddl skip {item.commit_ts} -c {config.path} --why TEXT"
    return f"run `{skip}` to pass it without its effect, or mend what the reason names; then {_start(config)}"


def _start(config: Config) -> str:
    return f"start `applier run -c {config.path}`."


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


def _judged(
    name: TableName,
    progress: TableProgress,
    last: Checkpoint,
    config: Config,
    *,
    is_wanted: bool,
    loaded: Callable[[TableName], float | None],
) -> TableProgress:
    """A table that lacks rows is not in the cut, whatever its snapshots say."""
    if progress.state == "missing":
        return replace(progress, because=_GONE.format(progress.iceberg), way_out=_again(name, config.path))
    recorded = last.tables[name].completeness
    known = recorded or Completeness("incomplete", reason=UNRECORDED)
    if recorded and not is_wanted and not recorded.is_parked:
        known = Completeness("parked", since=last.resolved_ts, reason=LEFT_OUT, cause="include")
    if known.is_live or progress.state == "dropped":
        return progress
    return replace(
        progress,
        state=cast("TableState", known.word),
        cut_snapshot_id=None,
        because=known.sentence(name),
        way_out=known.way_out(name, config.path) if recorded else _START.format(config=config.path),
        is_wanted=is_wanted,
        since=known.since or None,
        caught_up=loaded(name) if known.word == "loading" else caught_up(known, last),
    )


def _again(name: TableName, config: str) -> str:
    resume = f"`applier resume -c {config} --tables {option([name])}`"
    return (
        "register it again from its last metadata file (system.register_table) and start "
        f"`applier run -c {config}`; if that parks it, {resume} builds it anew from its CREATE TABLE."
    )


def _aged(found: TableProgress, lag: float | None, now_ms: int) -> TableProgress:
    """With the age of what the table shows: that of the cut, or of the place at which it was parked."""
    if found.committed is not None:
        silent = now_ms / 1000 - datetime.fromisoformat(found.committed).timestamp()
        found = replace(found, commit_age_seconds=round(max(0.0, silent), 3))
    if found.since is not None:
        return replace(found, lag_seconds=age(found.since, now_ms))
    return replace(found, lag_seconds=lag if found.state in ("in step", "ahead", "expired") else None)


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
        yield f"{counted(letters, 'message was', 'messages were')} set aside as dead letters."


def _ddl(item: SchemaDecision, since: int) -> DdlReport:
    place = item.commit_ts, iso_of(item.commit_ts) or "", item.subject
    return DdlReport(*place, item.kind, item.word(since), item.because, item.sql, _instant(item.decided_at))


def _letter(item: DeadLetter) -> LetterReport:
    return LetterReport(item.topic, item.partition, item.offset, item.error, item.step, _instant(item.buried_at))


def _instant(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds")
