"""A call that may fail in, its result out: asked again while an outside system does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from applier.errors import TransientError
from applier.telemetry import logger

OUTAGE_SECONDS = 300.0
"""An outage that lasts longer ends the run."""

T = TypeVar("T")


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
