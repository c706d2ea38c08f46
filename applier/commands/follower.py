"""Follows a changefeed, on and on or up to an end: its steps, and what is done between two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from applier.changefeed.message import TopicPartition
from applier.errors import DecodeError
from applier.pipeline.jobs.resumption import Resumption
from applier.pipeline.requests import ReadAgain, Requests
from applier.pipeline.stall import refuse_far, refuse_stall
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import Report
from applier.wording import WAY_TO_WATERMARKS

_SET_ASIDE = (
    'To go on without it, until `applier backfill -c FILE --dead-letters`: changefeed.on_bad_message = "dead_letter".'
)


@dataclass(frozen=True, slots=True)
class Driver:
    """Makes steps until the command is to stop, and reports every one that moved or waits."""

    stop: threading.Event
    report: Report

    def drive(self, step: Callable[[], Step], is_over: Callable[[], bool] = lambda: False) -> bool:
        """Step, by a function that repeats what may be tried again, until the end or until there is no more to read.

        Returns:
            False if it was asked to stop before.

        Raises:
            WatermarkStalled: There is no more to read, but rows wait for their schema or partitions never sent a
                resolved ts; or the longest window brings no newer watermark.
            TransientError: Something outside did not answer for five minutes.
            TerminalError: What lies before the end cannot be applied any further.
        """
        while not self.stop.is_set():
            if is_over():
                return True
            done = step()
            if done.moved or done.waiting:
                self.report(done.status)
            if done.error is not None and not done.moved:
                raise refusal(done.error, done)
            if done.resuming:
                continue
            if done.complete and not done.moved:
                refuse_stall(done)
                return True
            refuse_far(done)
        return False


def refusal(error: DecodeError, step: Step) -> DecodeError:
    """The error of a message that ends a command, with the way past it; before any watermark, with those to one."""
    is_early = step.silent and not step.resolved
    way_out = f"No watermark came before it: if the feed carries none, {WAY_TO_WATERMARKS}" if is_early else _SET_ASIDE
    return error.worded(error.what, f"{error.hint} {way_out}".lstrip())


class Follower:
    """The steps of a pipeline, and between them the requests of commands and the jobs that bring parked tables back.

    A command that goes on until it is stopped hands over how it reads its configuration again; see `Requests`.
    """

    def __init__(self, pipeline: Pipeline, read_again: ReadAgain | None = None) -> None:
        self.pipeline, self.requests = pipeline, Requests(pipeline, read_again=read_again)
        self.jobs = Resumption(pipeline)

    def turn(self, ends: Mapping[TopicPartition, int] | None = None) -> Step:
        """Make a step, carry out the requests that are open, and do a piece of the job under way; see `Pipeline.step`.

        Of a request or a job that fails nothing stays in memory: the next turn begins at the checkpoint.
        """
        step = self.pipeline.step(ends)
        if self.pipeline.state.checkpoint.moving is not None:
            return step  # Until a failed step is repeated, a name may stand for another table.
        with self.pipeline.targets.as_holder(), self.pipeline.changing_memory():
            self.requests.take()
            step = replace(step, resuming=self.jobs.advance(is_busy=step.moved))
        # Tables that came back, or were parked, since the step was counted.
        notes = {**step.status.notes, "parked": len(self.pipeline.state.parked)}
        return replace(step, status=replace(step.status, notes=notes))

    def piece(self) -> bool:
        """Do a piece of the jobs without a step; returns whether there is more to do. It may be tried again."""
        self.pipeline.recall()
        with self.pipeline.targets.as_holder(), self.pipeline.changing_memory():
            return self.jobs.advance(is_busy=False)
