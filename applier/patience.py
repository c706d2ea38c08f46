"""A call that may fail in, its result out: asked again while an outside system does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from applier.errors import TransientError
from applier.telemetry import logger

OUTAGE_SECONDS = 300.0
"""An outage that lasts longer ends the run."""

LATE_SECONDS = 120.0
"""What an outside system does not know yet is asked for again for so long; shorter than an outage may last."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounded patience for things that may only be late, each on its own.

    Args:
        clock: Monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _since: dict[Hashable, float] = field(default_factory=dict, init=False)

    def is_over(self, thing: Hashable) -> bool:
        """Whether a thing was missed for `LATE_SECONDS`; the first question starts its time."""
        now = self.clock()
        return now - self._since.setdefault(thing, now) >= LATE_SECONDS


def patiently(call: Callable[[], T]) -> T:
    """Call, and call again after transient errors, with growing pauses; one log line per outage.

    Raises:
        TransientError: Five minutes were not enough.
    """
    quiet = False

    def once_per_outage(state: tenacity.RetryCallState) -> None:
        nonlocal quiet
        if not quiet and state.outcome is not None:
            logger().warning("waiting for an outside system", error=str(state.outcome.exception()))
        quiet = True

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        wait=tenacity.wait_exponential(multiplier=0.5, max=30) + tenacity.wait_random(0, 1),
        stop=tenacity.stop_after_delay(OUTAGE_SECONDS),
        before_sleep=once_per_outage,
        reraise=True,
    )
    return retrying(call)
