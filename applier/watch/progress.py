"""How far tables and steps are, for the running process and for `status`, and why the lag is what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.fate import Fate
from applier.changefeed.table import TableName
from applier.changefeed.ts import age, unix_ms
from applier.order.feed_order import FeedOrder
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.runtime.figures import span
from applier.sink.commit.stamp import Stamp
from applier.sink.control.table_record import TableRecord
from applier.sink.iceberg.snapshot import Figures
from applier.watch.report import (
    PartitionProgress,
    StatusReport,
    StepProgress,
    TableProgress,
    TableState,
    Trouble,
    iso,
    iso_of,
)

SHOWN = 10
"""Steps that a report has."""

_UNIT = "_ms"
_BEHIND_SECONDS = 10.0
"""Lag, or distance of a partition from the others, from which on it needs a reason."""

_MOST = 0.5
"""Share of the time from which on one stage is the reason."""

_TREND = 3
"""Steps from which on their backlog shows a trend."""

_STAGES = {
    "maintain": "files are rewritten between the steps; [maintenance] sets how often",
    "plan": "the source takes long to say where it ends",
    "read": "the source takes long to deliver messages",
    "decode": "more cores decode faster",
    "apply": "a step made {commits:g} commits of rows on average, one for each table that got some",
    "checkpoint": "the catalog, or its storage, takes long to make one commit",
}


class TableHead(NamedTuple):
    """What the metadata of a table shows.

    Attributes:
        figures: Those of its head; None while it has none.
        stamp: The newest one of the changefeed; None where it has not written the table.
        has_cut: The snapshot that the newest checkpoint lists is kept.
        rolled_back: Why it shows less than it did, and what ends that; None for a table that was not set back.
    """

    figures: Figures | None = None
    stamp: Stamp | None = None
    has_cut: bool = True
    rolled_back: Trouble | None = None


def with_records(last: Checkpoint, stamps: Mapping[TableName, Stamp | None]) -> Checkpoint:
    """A checkpoint with what tables say of themselves since, by their stamps: they lack rows, or have left the feed."""
    tables = dict(last.tables)
    for name, stamp in stamps.items():
        record = None if stamp is None else TableRecord.told_by(stamp.extra)
        is_settled = last.moving is None or name not in last.moving.tables
        if record is not None and (record.name, record.job) == (name, "") and is_settled:
            known, own = tables[name].completeness, record.known
            if known is None or (not known.is_parked and own.is_parked) or (known.is_live and not own.is_live):
                tables[name] = tables[name]._replace(completeness=own)
    return replace(last, tables=tables)


def table_progress(
    name: TableName, identifier: tuple[str, ...], head: TableHead | None, last: Checkpoint
) -> TableProgress:
    """How far a table is by its metadata, whatever is recorded of its rows; None for one that the catalog lacks."""
    cut = last.cut.heads.get(identifier)
    if head is not None and head.stamp and DROPPED_AT in head.stamp.extra and cut is None:
        head = None  # It is another one, which was dropped upstream and is kept.
    if head is None:
        state: TableState = "empty" if cut is None else "missing"
        return TableProgress(str(name), ".".join(identifier), state, cut_snapshot_id=cut)
    stamp = head.stamp.resolved_ts if head.stamp else 0
    state = _state(head, cut, stamp, last.resolved_ts)
    found, back = head.figures, head.rolled_back if state == "rolled back" else None
    return TableProgress(
        table=str(name),
        iceberg=".".join(identifier),
        state=state,
        resolved_ts=stamp or None,
        resolved=iso_of(stamp),
        rows=found.rows if found else 0,
        files=found.files if found else 0,
        committed=iso(found.committed_ms) if found else None,
        snapshot_id=found.snapshot_id if found else None,
        cut_snapshot_id=cut,
        because=back.because if back else None,
        way_out=back.way_out if back else None,
    )


def _state(head: TableHead, cut: int | None, stamp: int, resolved_ts: int) -> TableState:
    if head.stamp and DROPPED_AT in head.stamp.extra:
        return "dropped"
    if head.rolled_back:
        return "rolled back"
    if stamp > resolved_ts > 0:
        return "ahead"
    if cut is None:
        return "empty"
    return "in step" if head.has_cut else "expired"


def moved(checkpoints: Iterable[Checkpoint], order: FeedOrder) -> list[StepProgress]:
    """The newest steps, newest first, from checkpoints in that order without a gap; no more are read than it takes.

    Heartbeats, starts and stops repeat the checkpoint before them: they are left out, and so is the oldest checkpoint,
    which has none before it to compare it with. How long a checkpoint took is in the next one.
    """
    pairs = pairwise(checkpoints)
    steps = list(islice((newer for newer, older in pairs if _place(newer, order) != _place(older, order)), SHOWN))
    return [_progress(step, after, order) for step, after in zip(steps, [None, *steps], strict=False)]


def _place(checkpoint: Checkpoint, order: FeedOrder) -> object:
    # A partition that is new to a topic is in the next checkpoint, whether or not a step moved.
    return checkpoint.resolved_ts if order.has_watermark else checkpoint.partitions


def _progress(step: Checkpoint, after: Checkpoint | None, order: FeedOrder) -> StepProgress:
    counts, resolved_ts = step.counts, order.as_of(step.resolved_ts)
    seconds = {name.removesuffix(_UNIT): value / 1000 for name, value in counts.items() if name.endswith(_UNIT)}
    seconds.pop("checkpoint", None)
    if after is not None and "checkpoint_ms" in after.counts:
        seconds["checkpoint"] = after.counts["checkpoint_ms"] / 1000
    return StepProgress(
        step=step.step,
        at=iso(step.written_at),
        lag_seconds=age(resolved_ts, step.written_at) if resolved_ts else None,
        messages=counts.get("messages", 0),
        rows=counts.get(Fate.APPLIED, 0),
        tables=counts.get("tables", 0),
        backlog=counts.get("backlog"),
        seconds=seconds,
    )


def explained(report: StatusReport, used: Sequence[PartitionProgress]) -> str | None:
    """Why the lag is what it is, as one sentence; None where that is unknown. `used` are the partitions that count."""
    if report.holder is None or not (report.steps or used):
        return None
    if report.holder.released:
        return "No applier follows the changefeed now, so the lag grows."
    is_late = report.lag_seconds is None or report.lag_seconds > _BEHIND_SECONDS
    late = _holding_back(used) if is_late else None
    # No step of late is among the newest checkpoints where a watermark stands still for ten minutes.
    if not report.steps or (late is not None and not report.steps[0].backlog):
        return late
    slow = _slowest(report.steps)
    grown = _grown(report.steps)
    if grown is not None:
        return f"The backlog grows, {grown}: the source sends more than the steps apply{f'; {slow}' if slow else ''}."
    return f"{slow[:1].upper()}{slow[1:]}." if slow else None


def _holding_back(partitions: Sequence[PartitionProgress]) -> str | None:
    """The partition that the others wait for, where one is far behind them."""
    last = min(partitions, key=lambda item: item.resolved_ts or 0, default=None)
    first = max((item.resolved_ts or 0 for item in partitions), default=0)
    if last is None or not first:
        return None
    where = f"Partition {last.topic}/{last.partition} holds the watermark back"
    if last.resolved_ts is None:
        return f"{where}: it has sent no resolved ts."
    behind = age(last.resolved_ts, unix_ms(first))
    return f"{where}: it is {span(behind)} behind the others." if behind > _BEHIND_SECONDS else None


def _grown(steps: Sequence[StepProgress]) -> str | None:
    """From what to what the backlog grew, where it was never lower or higher in between, by more than a step reads."""
    known = [step.backlog for step in steps if step.backlog is not None]
    if len(known) < _TREND:
        return None
    newest, oldest, most = known[0], known[-1], max(step.messages for step in steps)
    is_growing = newest == max(known) and oldest == min(known) and newest - oldest > most
    return f"from {oldest:,} to {newest:,} messages in {len(known)} steps" if is_growing else None


def _slowest(steps: Sequence[StepProgress]) -> str | None:
    """The stage that takes most of the time of the steps, and what that means; None where none takes the most."""
    spent: Counter[str] = Counter()
    for step in steps:
        spent.update(step.seconds)
    total = sum(spent.values())
    if not total:
        return None
    stage, most = spent.most_common(1)[0]
    if most < total * _MOST:
        return None
    commits = round(sum(step.tables for step in steps) / len(steps), 1)
    meaning = _STAGES.get(stage, "").format(commits=commits)
    return f"{stage} takes {most / total:.0%} of the steps' time{f': {meaning}' if meaning else ''}"
