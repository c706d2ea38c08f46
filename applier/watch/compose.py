"""Composes the report on a changefeed from its checkpoint, its tables, and its control tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from applier import wording
from applier.changefeed.checkpoint import STILL, Checkpoint, Stop, caught_up
from applier.changefeed.completeness import Completeness, Reason, Why, furthest_back, incomplete
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.ts import age
from applier.config.settings import Config
from applier.order.feed_order import ORDERS
from applier.runtime.figures import counted, span
from applier.sink.control.rows import DeadLetter, SchemaDecision
from applier.sink.iceberg.snapshot import Figures
from applier.watch.progress import explained
from applier.watch.report import (
    LACKING,
    DdlReport,
    DroppedTable,
    HolderReport,
    LetterReport,
    Pace,
    PartitionProgress,
    StatusReport,
    StepProgress,
    TableProgress,
    TableState,
    Trouble,
    iso,
    iso_of,
    judged,
    spark_name,
)
from applier.ways_out import WaysOut

_SHOWN = 10
_RECORDED = "it is recorded that the next run passes it without its effect"
_GONE = "Table {} is not in the catalog, though the checkpoint lists it."


@dataclass(frozen=True, slots=True)
class Facts:
    """What a report is composed of: the newest checkpoint, and how far each table is by its own metadata.

    Attributes:
        decisions: What became of each DDL, in order of commit ts.
        letters: Dead letters that are not made up for, newest first.
        steps: The newest steps, newest first.
        dropped: Tables that were dropped upstream and are kept; None where that is not known.
        is_out: Something outside does not answer now.
    """

    checkpoint: Checkpoint
    tables: Sequence[tuple[TableName, TableProgress]]
    decisions: Sequence[SchemaDecision] = ()
    letters: Sequence[DeadLetter] = ()
    steps: Sequence[StepProgress] = ()
    dropped: Sequence[DroppedTable] | None = None
    is_out: bool = False


def empty(config: Config, max_lag_seconds: float, now_ms: int) -> StatusReport:
    """The report on a changefeed that has no checkpoint."""
    report = StatusReport(config.changefeed.name, max_lag_seconds, iso(now_ms))
    return replace(report, stale=tuple(judged(report, wording.begin(config.path))))


def compose(
    config: Config,
    facts: Facts,
    max_lag_seconds: float,
    now_ms: int,
    loaded: Callable[[TableName], float | None] = lambda name: None,
    *,
    is_strict: bool = False,
) -> StatusReport:
    """The report on a changefeed at a time in Unix milliseconds; its tables are stale from `max_lag_seconds` on.

    `loaded` finds the share of its export that is in a table which is being loaded; None where that is not known. With
    `is_strict`, tables of a greater age are stale, whatever explains it.
    """
    facts = replace(facts, checkpoint=_without_skipped(facts))
    last, order = facts.checkpoint, ORDERS[config.changefeed.order]
    resolved_ts = order.as_of(last.resolved_ts) or None
    silent = (now_ms - last.written_at) / 1000
    lag = age(resolved_ts, now_ms) if resolved_ts else None if order.has_watermark else round(max(0.0, silent), 3)
    admits = config.filter.admits
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
        step=last.last_step,
        holder=_holder(last, silent),
        counts=dict(last.counts),
        steps=tuple(facts.steps),
        tables=tables,
        dropped=None
        if facts.dropped is None
        else tuple(sorted(facts.dropped, key=lambda it: (it.table, it.dropped_ts))),
        partitions=tuple(
            PartitionProgress(*place, reading.next_offset, reading.resolved_ts, iso_of(reading.resolved_ts))
            for place, reading in sorted(last.partitions.items())
        ),
        schema_changes=tuple(ddl_report(item, since) for item in reversed(facts.decisions[-_SHOWN:])),
        schema_change_count=len(facts.decisions),
        dead_letters=tuple(_letter(item) for item in facts.letters[:_SHOWN]),
        dead_letter_count=len(facts.letters),
        cut=tuple(_cut(config.catalog.name, in_cut(last, tables))),
        cut_at=iso(last.cut.at) if last.cut.at else None,
        notes=tuple(_notes(facts, tables, silent, config)),
    )
    is_gone = last.lease.released or silent > config.run.lease_seconds
    used = [item for item in report.partitions if item.partition < (config.changefeed.partitions or math.inf)]
    silent_places = [item for item in used if order.has_watermark and item.resolved_ts is None]
    is_late = lag is None or lag > max_lag_seconds
    if is_late and silent_places:
        # They hold the watermark of all tables back.
        places = [TopicPartition(item.topic, item.partition) for item in silent_places]
        held_back = Trouble(wording.silent(places), wording.way_past_silent(config.path))
        report = replace(report, notes=(held_back, *report.notes))
    if not (is_strict and is_late):
        report = replace(report, pace=_pace(report, last, config, is_held=is_gone or bool(silent_places)))
    still = _still(last, config, is_held=is_gone or facts.is_out)
    report = replace(report, stale=tuple(_stale(report, facts, config, is_gone=is_gone, still=still)))
    notes = (*_paced(report, last, config), *([still] if still and not is_late else []), *report.notes)
    why = None if still or report.pace in ("complete", "ended") else explained(report, used)
    return replace(report, notes=notes, explanation=why)


def _to_skip(facts: Facts) -> set[int]:
    """The DDL that a person lets `run` pass, which has not come to them yet, by commit ts."""
    return {item.commit_ts for item in facts.decisions if item.decision == "to skip"}


def _without_skipped(facts: Facts) -> Checkpoint:
    """The checkpoint, where a table that waits for such a DDL alone is on its way back."""
    last, passed = facts.checkpoint, _to_skip(facts)
    found = {name: item for name, item in last.tables.items() if item.completeness and passed}
    for name, item in found.items():
        known = cast("Completeness", item.completeness)
        if known.reason.ddl in passed:
            reason = Reason(known.why, f"{known.reason.detail}; {_RECORDED}")
            found[name] = item._replace(completeness=replace(known, reason=reason, is_due=True))
    return replace(last, tables={**last.tables, **found})


def _stale(
    report: StatusReport, facts: Facts, config: Config, *, is_gone: bool, still: Trouble | None
) -> Iterator[Trouble]:
    """Why the tables are stale: what holds the changefeed up, how far it is behind, and what tables lack."""
    last = facts.checkpoint
    pending = [item for item in facts.decisions if _holds_up(item, last, is_gone=is_gone)]
    held = [_held_up(item, config) for item in pending]
    if last.stopped and last.stopped.because and last.stopped.ddl not in {item.commit_ts for item in pending}:
        is_passed = last.stopped.ddl in _to_skip(facts)
        held.append(_to_pass(last.stopped.ddl, config, is_gone=is_gone) if is_passed else _ended(last.stopped, config))
    yield from held
    behind = list(judged(report, wording.start(config.path) if is_gone and not held else ""))
    yield from [still] if still and behind else behind
    needy = [table for table in report.tables if not table.is_on_purpose]
    yield from lacking(needy, _lacking(needy, last), config.ways_out)


def _pace(report: StatusReport, last: Checkpoint, config: Config, *, is_held: bool) -> Pace:
    """Why a lag is none that needs a hand; `is_held` where no applier runs, or something holds the watermark back."""
    backlog = last.counts.get("backlog")
    is_read = config.source.is_bounded and backlog == 0
    if last.is_through or is_read:
        return "" if report.lag_seconds is None else "complete" if is_read else "ended"
    is_late = report.lag_seconds is None or report.lag_seconds > report.max_lag_seconds
    if is_held or not is_late or report.holder is None:
        return ""
    held = datetime.fromisoformat(report.now) - datetime.fromisoformat(report.holder.since)
    is_new = held.total_seconds() <= report.max_lag_seconds
    if report.lag_seconds is None:
        return "catching up" if is_new else ""
    lags = [step.lag_seconds for step in report.steps if step.lag_seconds is not None]
    gains = is_new if len(lags) < 2 else lags[0] < lags[-1]
    return "catching up" if backlog and gains else ""


def _paced(report: StatusReport, last: Checkpoint, config: Config) -> Iterator[Trouble]:
    if report.verdict == "catching up":
        behind = "" if report.lag_seconds is None else span(report.lag_seconds)
        backlog = last.counts.get("backlog")
        yield Trouble(wording.catching_up(behind, "" if backlog is None else counted(backlog, "message")), is_open=True)
    if report.pace == "ended" and last.stopped:
        yield Trouble(wording.nothing_runs(iso(last.stopped.at), config.path))
    elif report.pace == "complete" and config.source.archive is not None:
        yield Trouble(wording.read_to_its_end(config.source.archive))


def _still(last: Checkpoint, config: Config, *, is_held: bool) -> Trouble | None:
    """That the feed as a whole stands still; None where it does not, and where nothing shows it."""
    if is_held or not last.resolved_ts or not last.counts.get(STILL) or config.source.is_bounded:
        return None
    return Trouble(wording.stands_still(last.resolved_ts), wording.WAY_TO_A_LIVING_FEED, is_open=True)


def lacking(
    tables: Sequence[TableProgress], known: Mapping[TableName, Completeness], ways: WaysOut
) -> Iterator[Trouble]:
    """Why tables need a hand; those that lack rows for one reason, and have one way out, in one sentence.

    `known` is what is recorded of those that lack rows.
    """
    for names, state in wording.alike(known.items()):
        yield Trouble(
            wording.sentence_of_all(names, state),
            ways.of(names, state),
            str(names[0]) if len(names) == 1 else "",
        )
    others = {*map(str, known)}
    for found in tables:
        if found.because and found.table not in others:
            yield Trouble(found.because, found.way_out or "", found.table)


def _holds_up(item: SchemaDecision, last: Checkpoint, *, is_gone: bool) -> bool:
    """Whether the changefeed stopped at a DDL: it was refused, and the checkpoint has not come past it."""
    reached = max([last.resolved_ts, *(it.commit_ts for it in last.ddl)])
    is_beyond = item.commit_ts > last.resolved_ts and item.commit_ts >= reached
    done = {(it.sql, it.commit_ts) for it in last.ddl}
    if item.decision != "refused" or not is_beyond or (item.sql, item.commit_ts) in done:
        return False
    # A process that lives may be about to park the table of what it has just refused, and to go on.
    return is_gone or item.decided_at.timestamp() * 1000 < last.lease.holder.since


def _held_up(item: SchemaDecision, config: Config) -> Trouble:
    of = f" of {item.subject}" if item.subject else ""
    what = f"A DDL{of} holds changefeed {config.changefeed.name} up: {item.because.rstrip('.')}."
    return Trouble(what, wording.way_past_ddl(item.commit_ts, config.path), brief=f"a DDL{of} holds the changefeed up")


def _to_pass(commit_ts: int, config: Config, *, is_gone: bool) -> Trouble:
    what = f"The DDL of commit ts {commit_ts} ended the last run of changefeed {config.changefeed.name}; {_RECORDED}."
    return Trouble(what, wording.start(config.path) if is_gone else "")


def _ended(stop: Stop, config: Config) -> Trouble:
    what = f"The last run of changefeed {config.changefeed.name} ended at {iso(stop.at)}: {stop.because}"
    way_out = wording.of_this_changefeed(stop.hint, config.path) if stop.hint else wording.start(config.path)
    return Trouble(what, way_out, brief="an error ended the last run")


def _holder(last: Checkpoint, silent: float) -> HolderReport:
    holder = last.lease.holder
    return HolderReport(
        name=str(holder),
        host=holder.host,
        pid=holder.pid,
        epoch=last.lease.epoch,
        since=iso(holder.since),
        seen=iso(last.written_at),
        silent_seconds=round(max(0.0, silent), 3),
        released=last.lease.released,
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
        place = spark_name(config.route.identifier(name))
        return replace(
            progress,
            because=_GONE.format(progress.iceberg),
            way_out=wording.register_again(name, config.catalog.name, place, config.path),
        )
    recorded = last.tables[name].completeness
    known = _known(recorded, replace(progress, is_wanted=is_wanted), last)
    if known.is_live or progress.state == "dropped":
        return progress
    return replace(
        progress,
        state=cast("TableState", known.shown),
        cut_snapshot_id=None,
        because=wording.sentence(name, known),
        way_out=config.ways_out.of([name], known),
        is_wanted=is_wanted,
        since=known.since or None,
        is_on_purpose=known.why is Why.BY_HAND and not known.is_due,
        caught_up=loaded(name) if known.shown == "loading" else caught_up(known, last),
    )


def _lacking(tables: Sequence[TableProgress], last: Checkpoint) -> dict[TableName, Completeness]:
    bad = {table.table: table for table in tables if table.state in LACKING}
    found = {name: tracked.completeness for name, tracked in last.tables.items() if str(name) in bad}
    return {name: _known(known, bad[str(name)], last) for name, known in found.items() if known is not None}


def _known(recorded: Completeness | None, found: TableProgress, last: Checkpoint) -> Completeness:
    if recorded and not found.is_wanted and not recorded.is_parked:
        # `tables.include` has changed since the newest step.
        return Completeness(Reason(Why.LEFT_OUT), since=last.resolved_ts)
    return recorded or incomplete(Why.UNRECORDED)


def _aged(found: TableProgress, lag: float | None, now_ms: int) -> TableProgress:
    """With the age of what the table shows: that of the cut, or of the place at which it was parked."""
    if found.committed is not None:
        silent = now_ms / 1000 - datetime.fromisoformat(found.committed).timestamp()
        found = replace(found, commit_age_seconds=round(max(0.0, silent), 3))
    if found.since is not None:
        return replace(found, lag_seconds=age(found.since, now_ms))
    return replace(found, lag_seconds=lag if found.state in ("in step", "ahead", "expired") else None)


def in_cut(last: Checkpoint, tables: Sequence[TableProgress]) -> dict[tuple[str, ...], int]:
    """Snapshots of the tables that show every row."""
    lacking = {table.iceberg for table in tables if table.state in LACKING}
    return {identifier: head for identifier, head in last.cut.heads.items() if ".".join(identifier) not in lacking}


def dropped_table(
    name: TableName, identifier: tuple[str, ...], dropped_ts: int, config: Config, figures: Figures | None = None
) -> DroppedTable:
    """A table that was dropped upstream and is kept, with the figures of its head, where they are known."""
    way_out = config.ways_out.of_dropped(
        *(spark_name(it) for it in ([config.catalog.name], identifier[:-1], identifier[-1:]))
    )
    size = (figures.rows, figures.files) if figures else (None, None)
    return DroppedTable(str(name), ".".join(identifier), dropped_ts, iso_of(dropped_ts), way_out, *size)


def _cut(catalog: str, snapshots: Mapping[tuple[str, ...], int]) -> Iterator[str]:
    for identifier, snapshot_id in sorted(snapshots.items()):
        yield f"SELECT * FROM {spark_name([catalog, *identifier])} VERSION AS OF {snapshot_id};"  # noqa: S608 - printed, never run


def _notes(facts: Facts, tables: Sequence[TableProgress], silent: float, config: Config) -> Iterator[Trouble]:
    last = facts.checkpoint
    if lost := max((item.commit_ts for item in facts.decisions if item.decision == "lost"), default=0):
        yield Trouble(wording.lost_decisions(lost))
    holder = last.lease.holder
    if not last.lease.released and silent > config.run.lease_seconds:
        what = f"{holder} holds the changefeed, but has been silent for {silent:.0f} s: the next applier takes it."
        yield Trouble(what)
    ahead = [table.iceberg for table in tables if table.state == "ahead" and table.snapshot_id == table.cut_snapshot_id]
    if names := ", ".join(ahead):
        yield Trouble(f"The cut shows more than the resolved ts of {names}, until a step has caught up with them.")
    if names := ", ".join(table.iceberg for table in tables if table.state == "expired"):
        yield Trouble(f"The snapshots of the cut have expired in {names}: the heads show the same rows, or newer.")
    parked = [table for table in tables if table.is_on_purpose]
    yield from lacking(parked, _lacking(parked, last), config.ways_out)
    if behind := last.counts.get("maintenance_behind", 0):
        yield Trouble(wording.maintenance_behind(behind))
    if facts.letters:
        yield Trouble(f"{counted(len(facts.letters), 'message was', 'messages were')} set aside as dead letters.")


def ddl_report(item: SchemaDecision, since: int) -> DdlReport:
    """What became of one DDL, where `since` is the commit ts up to which every table is."""
    place, decided = (item.commit_ts, iso_of(item.commit_ts) or "", item.subject), item.decided_at
    said = item.kind, item.word(since), item.because, item.sql
    return DdlReport(*place, *said, decided.isoformat(timespec="milliseconds"))


def _letter(item: DeadLetter) -> LetterReport:
    buried = item.buried_at.isoformat(timespec="milliseconds")
    return LetterReport(item.topic, item.partition, item.offset, item.error, item.step, buried)
