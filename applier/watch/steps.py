"""The newest steps of a changefeed, from its checkpoints, and a sentence on why its lag is what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.ts import age, unix_ms
from applier.order.feed_order import FeedOrder
from applier.runtime.figures import span
from applier.watch.progress import step_progress
from applier.watch.report import PartitionProgress, StatusReport, StepProgress

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
    return step_progress(step.step, step.written_at, resolved_ts, counts, seconds)


def explained(report: StatusReport, used: Sequence[PartitionProgress] | None = None) -> str | None:
    """Why the lag is what it is, as one sentence; None where that is unknown. `used` are the partitions that count."""
    if report.holder is None or not (report.steps or used):
        return None
    if report.holder.released:
        return "No applier follows the changefeed now, so the lag grows."
    is_late = report.lag_seconds is None or report.lag_seconds > _BEHIND_SECONDS
    late = _holding_back(report.partitions if used is None else used) if is_late else None
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
