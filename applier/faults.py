"""A point's name in, a dead process out: the crash that recovery tests order by an environment variable."""

from __future__ import annotations

import os
import signal
import threading

KILL_AT = "APPLIER_KILL_AT"
"""Environment variable: the name of a point, or `name:n` for the n-th time that it is reached."""

_lock = threading.Lock()
_reached: dict[str, int] = {}


def reach(point: str) -> None:
    """Say that the process has come to a point; kill -9 it if `APPLIER_KILL_AT` asks for that.

    The process dies as in a power cut: no handler runs, nothing is flushed. Without the variable this does nothing.

    Args:
        point: `data-files-staged`, `commit-sent`, `commit-done`, or another name that its caller documents.
    """
    wanted = os.environ.get(KILL_AT)
    if not wanted:
        return
    name, _, turn = wanted.partition(":")
    if name != point:
        return
    with _lock:
        _reached[point] = _reached.get(point, 0) + 1
        if _reached[point] == int(turn or 1):
            os.kill(os.getpid(), signal.SIGKILL)
