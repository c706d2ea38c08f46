"""Renews the lease while a step runs that takes longer than it.

The process beats in a thread of its own, so a process that stands still does not: its lease runs out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from applier.errors import ApplierError, CheckpointConflict
from applier.pipeline.state import State
from applier.runtime.logs import logger
from applier.runtime.threads import beside


@contextmanager
def beating(state: State, seconds: float) -> Iterator[None]:
    """Renew the hold on a changefeed while the block runs, after so many seconds without any checkpoint.

    Nothing that goes wrong with it ends the process. An outage is logged once and the beat retried; once another
    process has the changefeed there is no more beat, and the next write to a control table is refused.
    """
    # Its end is waited for: a beat after the release would say that the changefeed is held still.
    with beside("heartbeat", lambda over: _beat(state, seconds, over)):
        yield


def _beat(state: State, seconds: float, over: threading.Event) -> None:
    step, since, is_told = state.checkpoint.step, time.monotonic(), False
    while not over.wait(seconds / 4):
        if state.checkpoint.step != step:
            step, since = state.checkpoint.step, time.monotonic()
        if time.monotonic() - since < seconds:
            continue
        try:
            state.write(lambda last: last)
            is_told = False
        except CheckpointConflict as error:
            logger().warning("changefeed lost", error=str(error))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the step meets it, too, and knows what to do
            if not is_told:
                said = str(error) if isinstance(error, ApplierError) else type(error).__name__
                logger().warning("heartbeat failed", error=said)
            is_told = True
