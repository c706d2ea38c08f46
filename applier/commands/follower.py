"""Follows a changefeed: its steps, and what is done between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from applier.changefeed.message import TopicPartition
from applier.pipeline.jobs.resumption import Resumption
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline, Step


class Follower:
    """The steps of a pipeline, and between them the requests of commands and the jobs that bring parked tables back."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.requests, self.jobs = pipeline, Requests(pipeline), Resumption(pipeline)

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
