"""Repeats a call while an outside system does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from applier.errors import TransientError
from applier.runtime.logs import logger
from applier.runtime.outages import OUTAGES
from applier.runtime.pulse import PULSE
from applier.runtime.stop_requests import STOPPING

OUTAGE_SECONDS = 300.0
"""An outage that lasts longer ends the run."""

LATE_SECONDS = 120.0
"""What an outside system does not know yet is asked for again for so long; shorter than an outage may last."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Bounded patience for things that may only be late, each on its own; the clock gives monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _since: dict[Hashable, float] = field(default_factory=dict, init=False)

    def is_over(self, thing: Hashable) -> bool:
        """Whether a thing was missed for `LATE_SECONDS`; the first question starts its time."""
        now = self.clock()
        return now - self._since.setdefault(thing, now) >= LATE_SECONDS


def with_retry(call: Callable[[], T]) -> T:
    """Call, and call again after transient errors, with growing pauses; one log line for each.

    Raises:
        TransientError: Five minutes were not enough.
        StopRequested: The process is to stop, and the outage is not over.
    """
    with ExitStack() as outage:

        def say(state: tenacity.RetryCallState) -> None:
            PULSE.beat()
            logger().warning(
                "waiting for an outside system",
                error=str(state.outcome.exception()) if state.outcome else "",
                elapsed_seconds=round(state.seconds_since_start or 0.0, 1),
                limit_seconds=OUTAGE_SECONDS,
                next_try_seconds=round(state.upcoming_sleep, 1),
            )
            if state.attempt_number == 1:
                if state.outcome and (error := state.outcome.exception()) is not None:
                    OUTAGES.begin(error)
                    outage.callback(OUTAGES.end)
                # From the first failure on until the call succeeds, nothing is done that a stop could leave half done.
                outage.enter_context(STOPPING.waiting())

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            wait=tenacity.wait_exponential(multiplier=0.5, max=30) + tenacity.wait_random(0, 1),
            stop=tenacity.stop_after_delay(OUTAGE_SECONDS),
            sleep=STOPPING.pause,
            before_sleep=say,
            reraise=True,
        )
        return retrying(call)


def asked_pause(header: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or as an HTTP date; None without one that is valid."""
    try:
        return Retry().parse_retry_after(header) if header else None
    except InvalidHeader:
        return None
