"""Runs steps until a range is applied."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from applier.pipeline.stall import refuse_far, refuse_stall
from applier.pipeline.step import Step
from applier.runtime.logs import Report
from applier.runtime.retry import with_retry


@dataclass(slots=True)
class Driver:
    """Drives pipelines through ranges until the command is to stop, and reports every step that moved."""

    stop: threading.Event
    report: Report

    def drive(self, step: Callable[[], Step], is_over: Callable[[], bool]) -> bool:
        """Step until the range is over, or has no more to read.

        Returns:
            False if it was asked to stop before.

        Raises:
            WatermarkStalled: The range ends before the schema of its rows, or before any resolved ts; or
                the longest window brings no newer watermark.
            TransientError: Something outside did not answer for five minutes.
            TerminalError: The range cannot be applied any further.
        """
        while not self.stop.is_set():
            if is_over():
                return True
            done = with_retry(step)
            if done.moved or done.waiting:
                self.report(done.status)
            if done.error is not None and not done.moved:
                raise done.error
            if done.complete and not done.moved:
                refuse_stall(done)
                return True
            refuse_far(done)
        return False
