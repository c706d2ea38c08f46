"""Named points at which recovery tests kill or stop the process, by an environment variable."""

from __future__ import annotations

import os
import signal
import threading

KILL_AT = "APPLIER_KILL_AT"
"""Environment variable: the name of a point, or `name:n` for the n-th time that it is reached; `name:n:STOP` lets the
process stand still there until SIGCONT, as one that is swapped out or cut off does."""

_lock = threading.Lock()
_reached: dict[str, int] = {}


def reach(point: str) -> None:
    """Say that the process has come to a point; kill or stop it if `APPLIER_KILL_AT` asks for that.

    The process dies as in a power cut: no handler runs, nothing is flushed. Without the variable this does nothing.
    """
    name, turn, how = [*os.environ.get(KILL_AT, "").split(":"), "", ""][:3]
    if name != point:
        return
    with _lock:
        _reached[point] = _reached.get(point, 0) + 1
        if _reached[point] == int(turn or 1):
            os.kill(os.getpid(), signal.SIGSTOP if how == "STOP" else signal.SIGKILL)
