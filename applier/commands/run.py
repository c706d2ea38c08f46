"""Command `run`: follow the changefeed until asked to stop, or once to the ends seen at the start."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from applier import wording
from applier.changefeed.ts import wall_clock
from applier.commands.follower import Driver, Follower, refusal
from applier.commands.reload import read_again
from applier.config.settings import Config
from applier.errors import TerminalError
from applier.pipeline import topics
from applier.pipeline.build import assembled
from applier.pipeline.load.begin import refuse_unloaded
from applier.pipeline.stall import is_still, refuse_stall, stall, way_out
from applier.pipeline.state import State, keep_end, keep_ends_reached, keep_still
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables import completeness, layouts
from applier.runtime import terminal
from applier.runtime.jvm.spark_session import collect_garbage
from applier.runtime.logs import Report, announce, logger
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import STOPPING, stop_signals
from applier.sink.write.key_cache import LARGE

FIRST_PAUSE = 0.1
"""Seconds between the first two looks that find nothing; the pause doubles from one to the next."""

_EARLY = 0.9
"""Part of the freshness budget after which a step begins. Watermarks often come as regularly as steps would: each step
then meets the next one when it comes, and not as old as the two clocks happen to lie apart."""

REST_SECONDS = 60.0
"""A run rests from so long after its last row on. It takes several collections of the JVM to give memory back: too many
for each short pause."""


class Reports(NamedTuple):
    """Functions that take what a run has to tell.

    Attributes:
        step: Takes the status line of each step that moved, and of those that wait.
        start: Takes the pipeline, once the changefeed is held.
        every_step: Takes every step, also those that found nothing.
        attempt: Makes an attempt at a step, by the function that it is given.
        end: Takes the pipeline when the run ends, while the changefeed is still held.
    """

    step: Report
    start: Callable[[Pipeline], None] = lambda pipeline: None
    every_step: Callable[[Pipeline, Step], None] = lambda pipeline, step: None
    attempt: Callable[[Pipeline, Callable[[], Step]], Step] = lambda pipeline, make: make()
    end: Callable[[Pipeline], None] = lambda pipeline: None


def run(config: Config, *, once: bool, take_over: bool, reports: Reports, accept_remade: bool = False) -> None:
    """Follow the changefeed of a configuration; with `once` up to the ends that the source has at the start.

    `accept_remade` goes on with topics that were made anew, if their messages are at the same offsets. A configuration
    that is reloaded is taken up as by a start, in the same Spark. The changefeed is released before that: a start that
    is refused must not hold it.

    Raises:
        TransientError: Something outside did not answer for five minutes.
        TerminalError: The feed cannot be followed any further; what came before it is applied.
    """
    with stop_signals(config.run.stop_seconds) as stop, ExitStack() as spark:

        def held(config: Config, *, take_over: bool = False) -> AbstractContextManager[Pipeline]:
            return assembled(config, take_over=take_over, is_run=True, spark=spark)

        found = _followed(held(config, take_over=take_over), stop, reports, once=once, accept_remade=accept_remade)
        while found is not None:
            STOPPING.seconds = found.run.stop_seconds
            found = _followed(held(found), stop, reports)


def _followed(
    held: AbstractContextManager[Pipeline],
    stop: threading.Event,
    reports: Reports,
    *,
    once: bool = False,
    accept_remade: bool = False,
) -> Config | None:
    """Follow a changefeed while it is held; returns the configuration with which to begin anew, if there is one."""
    with held as pipeline, _ending(pipeline, reports):
        config = pipeline.config
        reports.start(pipeline)
        refuse_unloaded(pipeline)
        pipeline.hold_to_checkpoint()
        completeness.keep(pipeline.state, pipeline.targets)
        completeness.warn(pipeline.state)
        with terminal.waiting("comparing the layout of the tables with the configuration"):
            with_retry(lambda: layouts.bring(pipeline.state, pipeline.targets, config.tables))
        if accept_remade:
            topics.accept(pipeline.state, with_retry(pipeline.source.topic_ids))
        pipeline.source.show_offsets(pipeline.state.checkpoint.next_offsets)
        if once:
            run_once(Follower(pipeline), stop, reports)
            return None
        pipeline.watermark_seconds = watermark_seconds(config)
        return follow(Follower(pipeline, read_again), stop, reports)


@contextmanager
def _ending(pipeline: Pipeline, reports: Reports) -> Iterator[None]:
    try:
        yield
    except TerminalError:
        # The last step recorded why. After an outage or within a stop, nothing outside may answer any more.
        reports.end(pipeline)
        raise
    reports.end(pipeline)


def run_once(follower: Follower, stop: threading.Event, reports: Reports) -> None:
    """Step until the ends that the source has now; raises what `Driver.drive` does."""
    pipeline = follower.pipeline
    with terminal.waiting("asking the source where it ends"):
        ends = with_retry(pipeline.ends)
    moved = Counter[str]()

    def made() -> Step:
        step = _made(pipeline, reports, lambda: follower.turn(ends))
        moved.update(steps=int(step.moved), rows=step.status.rows)
        return step

    if Driver(stop, reports.step).drive(made):
        with terminal.waiting("maintaining the tables"):
            with_retry(lambda: pipeline.finish_maintenance(stop))
        with_retry(lambda: keep_ends_reached(pipeline.state))
        live = sum(known.is_live for known in pipeline.state.completeness.values())
        others = len(pipeline.state.completeness) - live
        until = pipeline.targets.feed.order.as_of(pipeline.state.resolved_ts) or None
        logger().info("ends reached", resolved_ts=until, tables=live, not_live=others, **moved)


def _made(pipeline: Pipeline, reports: Reports, turn: Callable[[], Step]) -> Step:
    step = with_retry(lambda: reports.attempt(pipeline, turn))
    reports.every_step(pipeline, step)
    note_over(pipeline, step)
    if step.moved:
        pipeline.source.show_offsets(pipeline.state.checkpoint.next_offsets)
    return step


def note_over(pipeline: Pipeline, step: Step) -> None:
    """What ended the last run is over once a step needs nothing more; one that waits may end it again."""
    if step.complete and not (step.error or step.waiting or step.silent):
        with_retry(lambda: keep_end(pipeline.state))


def watermark_seconds(config: Config) -> float:
    """Seconds that a watermark alone may wait for its checkpoint: nothing may count as stalled or stale for it."""
    return min(config.run.watermark_seconds, config.run.stall_seconds / 2, config.http.max_lag_seconds / 2)


def follow(
    follower: Follower, stop: threading.Event, reports: Reports, clock: Callable[[], float] = time.monotonic
) -> Config | None:
    """Step until asked to stop; sleep when nothing is new. The clock gives monotonic seconds.

    Returns:
        The configuration that was reloaded and is to be followed from here on; None after a stop request.

    Raises:
        WatermarkStalled: There are messages, but in `run.stall_seconds` no partition has ever sent a resolved ts.
    """
    pipeline = follower.pipeline
    settings = pipeline.config.run
    progress = clock()
    warned = False
    idle: tuple[object, ...] = ()
    pace, rest = Pace(settings.freshness_seconds, settings.interval_seconds), Rest(progress)
    while not stop.is_set():
        step = _made(pipeline, reports, follower.turn)
        now = clock()
        if step.error is not None and not step.moved:
            raise refusal(step.error, step)
        if follower.requests.reloaded is not None and not stop.is_set():
            return follower.requests.reloaded
        if rest.begins(step, now):
            LARGE.clear()
            give_back()
        if step.moved:
            reports.step(step.status)
            progress, warned = now, False
            stop.wait(pace.after(step))
            continue
        if step.resuming:
            continue
        if not step.resolved and not step.status.messages:
            # A topic without a message says nothing about watermarks.
            progress = now
        if now - progress > settings.stall_seconds and not warned and _is_stalled(step, pipeline.config):
            _tell(step, pipeline.state, reports)
            warned = True
        if (step.complete or step.is_longest) and not stop.is_set():
            idle = _say_idle(step, idle, pipeline.config.source.archive)
            stop.wait(pace.after(step))
    return None


def _is_stalled(step: Step, config: Config) -> bool:
    """Whether something holds the watermark back; an archive that is read to its end only has no more."""
    return bool(stall(step)) and not (config.source.is_bounded and is_still(step))


def _tell(step: Step, state: State, reports: Reports) -> None:
    if step.silent and not step.resolved:
        refuse_stall(step)
    reports.step(step.status)
    hint = way_out(step)
    logger().warning("watermark stands still", reason=f"{stall(step)} Hint: {hint}" if hint else stall(step))
    if is_still(step):
        with_retry(lambda: keep_still(state))


@dataclass(slots=True)
class Pace:
    """How long a run waits after a step: a commit of many rows costs little more than one of a few.

    `freshness` is the seconds from the begin of a step to that of the next at most, where no backlog is left, and
    `interval` the longest pause where nothing is new.
    """

    freshness: float
    interval: float
    _pause: float = field(default=FIRST_PAUSE, init=False)

    def after(self, step: Step) -> float:
        """Seconds to wait after a step; a backlog is never waited for."""
        if step.moved:
            # The next watermark may come at any moment, and a look that finds none costs little.
            self._pause = FIRST_PAUSE
            took = sum(step.status.seconds.values())
            return 0.0 if step.resuming or not step.complete else max(0.0, _EARLY * self.freshness - took)
        pause = min(self._pause, self.interval)
        self._pause *= 2
        return pause


@dataclass(slots=True)
class Rest:
    """When a run begins to rest, once after each time of work; its last work was at the monotonic seconds `since`."""

    since: float
    _is_resting: bool = field(default=False, init=False)

    def begins(self, step: Step, now: float) -> bool:
        """Whether the rest begins with this step; `now` is in monotonic seconds."""
        if step.status.rows or step.resuming or not step.complete:
            self.since, self._is_resting = now, False
            return False
        was, self._is_resting = self._is_resting, now - self.since >= REST_SECONDS
        return self._is_resting and not was


def _say_idle(step: Step, last: tuple[object, ...], archive: str | None) -> tuple[object, ...]:
    """Say what a run waits for that has read all there is, unless it waits for what it waited for `last`.

    The time of being up to date is no news.
    """
    names, resolved_ts = sorted({str(row.name) for row in step.waiting}), step.status.resolved_ts
    if (found := (names, resolved_ts and True)) == last:
        return found
    if archive is not None:
        announce("archive is read to its end", archive=archive, hint=wording.WAY_FROM_AN_ARCHIVE)
    elif names:
        schemas = f"the schema of {', '.join(names)}, which TiCDC sends every 120 seconds or 10,000 rows of a table"
        terminal.say(f"waiting for {schemas}")
    elif resolved_ts is None:
        terminal.say("up to date, waiting for new messages")
    elif not resolved_ts:
        terminal.say("waiting for the first watermark")
    else:
        terminal.say(f"up to date at {wall_clock(resolved_ts):%F %T} UTC, waiting for new messages")
    return found


def give_back() -> None:
    """Give back what neither this process nor its JVM uses."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        # Other C libraries than glibc have no such function, and keep less.
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
    collect_garbage()
