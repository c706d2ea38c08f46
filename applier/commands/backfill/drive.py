"""Runs steps until a range is applied."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from applier.changefeed.message import TopicPartition
from applier.pipeline.stall import refuse_far, refuse_stall
from applier.pipeline.step import Pipeline
from applier.runtime.logs import Report
from applier.runtime.retry import with_retry


@dataclass(slots=True)
class Driver:
    """Drives pipelines through ranges until the command is to stop, and reports every step that moved."""

    stop: threading.Event
    report: Report

    def drive(self, pipeline: Pipeline, ends: Mapping[TopicPartition, int], upto: int) -> bool:
        """Step until all rows up to some ends (exclusive) and a commit ts, the pipeline's ceiling, are applied.

        Returns:
            False if it was asked to stop before.

        Raises:
            WatermarkStalled: The range ends before the schema of its rows, or before any resolved ts; or
                the longest window brings no newer watermark.
            TransientError: Something outside did not answer for five minutes.
            TerminalError: The range cannot be applied any further.
        """
        while not self.stop.is_set():
            if pipeline.targets.feed.order.has_watermark and pipeline.state.resolved_ts >= upto:
                return True
            step = with_retry(lambda: pipeline.step(ends))
            if step.moved or step.waiting:
                self.report(step.status)
            if step.error is not None and not step.moved:
                raise step.error
            if step.complete and not step.moved:
                refuse_stall(step)
                return True
            refuse_far(step)
        return False
