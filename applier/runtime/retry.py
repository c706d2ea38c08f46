"""Repeats a call while an outside system does not answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from applier.errors import TransientError
from applier.runtime.logs import logger
from applier.runtime.outages import OUTAGES, system_of
from applier.runtime.pulse import PULSE
from applier.runtime.stop_requests import STOPPING

OUTAGE_SECONDS = 300.0
"""An outage that lasts longer ends the run."""

_LONGEST_PAUSE = 30.0

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


@dataclass(slots=True)
class _Outage:
    """The outage of one system, from its first failure on; `done` is what the system had done by then."""

    system: str
    since: float
    done: int
    tries: int = 0

    @staticmethod
    def of(error: TransientError, known: dict[str, _Outage]) -> _Outage:
        """The outage that an error belongs to: a new one unless its system is known to be out, and has not worked."""
        system = system_of(error)
        before = known.get(system)
        if before is None or before.done != OUTAGES.done[system]:
            OUTAGES.begin(error)
            known[system] = _Outage(system, time.monotonic(), OUTAGES.done[system])
        return known[system]

    def pause(self) -> float:
        """Seconds to the next try; they grow."""
        self.tries += 1
        return min(2.0 ** (self.tries - 2), _LONGEST_PAUSE) + random.random()  # noqa: S311 - spreads tries


def with_retry(call: Callable[[], T]) -> T:
    """Call, and call again after transient errors, with growing pauses; one log line for each.

    An outage begins with the first failure, not with the call: a call that works for hours has its second try. It is
    the outage of one system, and ends when that system has done some work (`Outages.worked`): another system that fails
    between shows nothing of this one, and two that fail in turn would be asked for ever.

    Raises:
        TransientError: The outage of a system lasts five minutes.
        StopRequested: The process is to stop, and the outage is not over.
    """
    outages: dict[str, _Outage] = {}
    with ExitStack() as waits:
        while True:
            try:
                return call()
            except TransientError as error:
                is_first, outage = not outages, _Outage.of(error, outages)
                if is_first:
                    waits.callback(OUTAGES.end)
                elapsed = time.monotonic() - outage.since
                if elapsed >= OUTAGE_SECONDS:
                    raise
                pause = outage.pause()
                PULSE.beat()
                logger().warning(
                    "waiting for an outside system",
                    system=outage.system,
                    error=str(error),
                    elapsed_seconds=round(elapsed, 1),
                    limit_seconds=OUTAGE_SECONDS,
                    next_try_seconds=round(pause, 1),
                )
            if is_first:
                # From the first failure on until the call succeeds, nothing is done that a stop could leave half done.
                waits.enter_context(STOPPING.waiting())
            STOPPING.pause(pause)


def asked_pause(header: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or as an HTTP date; None without one that is valid."""
    try:
        return Retry().parse_retry_after(header) if header else None
    except InvalidHeader:
        return None
