"""Command `run`: follow the changefeed until asked to stop, or once to the ends seen at the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import wall_clock
from applier.config.settings import Config
from applier.errors import DecodeError, WatermarkStalled
from applier.pipeline import topics
from applier.pipeline.build import assembled
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables import completeness
from applier.runtime.logs import StatusLine, logger
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals

__all__ = [
    "Report",
    "behind",
    "follow",
    "held_back",
    "refuse_stall",
    "run",
    "run_once",
    "stall",
    "with_retry",
]

_PARTITIONS_HINT = (
    "if TiCDC uses fewer partitions than the topic has (`partition-num`), say how many in changefeed.partitions."
)
_SET_ASIDE = (
    'To go on without it, until `applier backfill -c FILE --dead-letters`: changefeed.on_bad_message = "dead_letter".'
)

_WATERMARK_HINT = (
    "turn the watermark on in the sink-uri of TiCDC: `enable-tidb-extension=true`, and for Avro "
    '`avro-enable-watermark=true`, too; or set changefeed.order = "offset". Simple and Open always carry one, once '
    "TiCDC writes to this topic."
)

_FAR = "No newer watermark comes within {messages:,} messages, the most that a step may read. The backlog is longer."
_FAR_HINT = "raise source.messages_per_step and source.bytes_per_step: a step may read 64 times as much."

Report = Callable[[StatusLine], None]
"""Called for every step that moved, and of those that wait."""


class Reports(NamedTuple):
    """Who is to know how a run goes.

    Attributes:
        step: Called with the status line of each step.
        start: Called once with the resolved ts of the checkpoint from which the run goes on; None if there is none.
    """

    step: Report
    start: Callable[[int | None], None] = lambda resolved_ts: None


def run(config: Config, *, once: bool, take_over: bool, reports: Reports, accept_remade: bool = False) -> None:
    """Follow the changefeed of a configuration.

    Args:
        config: The configuration.
        once: Stop at the ends of the source as they are at the start.
        take_over: Take the changefeed even if another applier seems to hold it.
        reports: Called at the start, and with the status line of each step.
        accept_remade: Go on with topics that were made anew by now, as the messages are at the offsets that they had.

    Raises:
        TransientError: Something outside did not answer for five minutes.
        TerminalError: The feed cannot be followed any further; what came before it is applied.
    """
    with stop_signals(config.run.stop_seconds) as stop, assembled(config, take_over=take_over) as pipeline:
        reports.start(pipeline.state.resolved_ts or None)
        pipeline.hold_to_checkpoint()
        completeness.keep(pipeline.state, pipeline.targets)
        if accept_remade:
            topics.accept(pipeline.state, with_retry(pipeline.source.topic_ids))
        if once:
            run_once(pipeline, stop, reports.step)
        else:
            follow(pipeline, stop, reports.step)


def run_once(pipeline: Pipeline, stop: threading.Event, report: Report) -> None:
    """Step until the ends that the source has now.

    Raises:
        WatermarkStalled: The ends are reached, but rows wait for their schema or partitions never sent a resolved ts;
            or the longest window brings no newer watermark.
    """
    ends = with_retry(pipeline.ends)
    while not stop.is_set():
        step = with_retry(lambda: pipeline.step(ends))
        if step.moved or step.waiting:
            report(step.status)
        if step.error is not None and not step.moved:
            raise refusal(step.error, step)
        if step.resuming:
            continue
        if step.complete and not step.moved:
            refuse_stall(step)
            return
        refuse_far(step)


def follow(
    pipeline: Pipeline, stop: threading.Event, report: Report, clock: Callable[[], float] = time.monotonic
) -> None:
    """Step until asked to stop; sleep when nothing is new.

    Args:
        pipeline: The pipeline.
        stop: Set from elsewhere.
        report: Called with the status line of each step.
        clock: Monotonic seconds.

    Raises:
        WatermarkStalled: There are messages, but in `run.stall_seconds` no partition has ever sent a resolved ts.
    """
    settings = pipeline.config.run
    progress = clock()
    warned = False
    while not stop.is_set():
        step = with_retry(pipeline.step)
        now = clock()
        if step.error is not None and not step.moved:
            raise refusal(step.error, step)
        if step.moved:
            report(step.status)
            progress, warned = now, False
            continue
        if step.resuming:
            continue
        if not step.resolved and not step.status.messages:
            # A topic without a message says nothing about watermarks.
            progress = now
        if now - progress > settings.stall_seconds and not warned and stall(step):
            if step.silent and not step.resolved:
                refuse_stall(step)
            report(step.status)
            logger().warning("watermark stands still", reason=stall(step))
            warned = True
        if step.complete or step.is_longest:
            stop.wait(settings.interval_seconds)


def refusal(error: DecodeError, step: Step) -> DecodeError:
    """The error of a message that ends a run, with the way past it; before the first watermark, with those to one."""
    is_early = step.silent and not step.resolved
    way_out = f"No watermark came before it: if the feed carries none, {_WATERMARK_HINT}" if is_early else _SET_ASIDE
    return type(error)(error.what, f"{error.hint} {way_out}".lstrip())


def stall(step: Step) -> str:
    """Why the watermark does not move, in one sentence; "" if nothing holds it back."""
    return held_back(step.waiting, step.silent) or behind(step.resolved, step.mark)


def held_back(waiting: Sequence[Waiting], silent: Sequence[TopicPartition]) -> str:
    """What holds a watermark back, in one sentence: rows without a schema, or partitions without a resolved ts."""
    if waiting:
        rows = "; ".join(
            f"{row.rows} of table {row.name} from {row.partition}, first at commit ts {row.commit_ts} "
            f"({wall_clock(row.commit_ts).isoformat(timespec='seconds')}), schema version {row.version}"
            for row in waiting[:10]
        )
        return f"Rows wait for a schema that has not come: {rows}."
    if silent:
        names = ", ".join(str(place) for place in silent[:10])
        return f"No watermark has ever come from {names}."
    return ""


def behind(resolved: Mapping[TopicPartition, int], mark: int | None) -> str:
    """Which partitions have stopped sending resolved ts, in one sentence; "" for a feed without any."""
    if mark is None or not resolved:
        return ""
    newest = max(resolved.values())
    if newest <= mark:
        return f"No partition has sent a watermark above {_moment(newest)}: TiCDC is paused, or does not reach Kafka."
    late = sorted(place for place, ts in resolved.items() if ts == mark)
    names = ", ".join(str(place) for place in late[:10])
    return f"The watermark is held at {_moment(mark)} by {names}; others have come to {_moment(newest)}."


def _moment(tso: int) -> str:
    return f"{tso} ({wall_clock(tso).isoformat(timespec='seconds')})"


def refuse_stall(step: Step) -> None:
    """Raise WatermarkStalled if rows or partitions are waited for."""
    reason = stall(step)
    if step.waiting:
        hint = (
            "TiCDC sends a BOOTSTRAP message every 120 seconds or 10000 rows of a table "
            "(`send-bootstrap-interval-in-sec`); run again when it has, nothing is lost."
        )
        raise WatermarkStalled(reason, hint)
    if step.silent:
        raise WatermarkStalled(reason, _PARTITIONS_HINT if step.resolved else _WATERMARK_HINT)


def refuse_far(step: Step) -> None:
    """Raise WatermarkStalled if the next watermark is further away than a step may read: no other step gets there."""
    if step.is_longest and not step.moved:
        refuse_stall(step)
        raise WatermarkStalled(_FAR.format(messages=step.status.messages), _FAR_HINT)
