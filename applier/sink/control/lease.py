"""Takes the lease of a changefeed, or refuses and names its owner."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from applier.changefeed.checkpoint import Checkpoint, Holder
from applier.errors import CheckpointConflict
from applier.runtime.figures import counted

StartOf = Callable[[int], int | None]
"""Finds the clock ticks between boot and the start of a process; 0 where the system hides it, None if there is none."""

_UNKNOWN = ""


class Grant(NamedTuple):
    """The right to take a changefeed, and why, as words for the log.

    It is over with the last holder if that can certainly write no more: there was none, it said so, or its process is
    gone.
    """

    because: str
    is_over: bool = True


def may_take(
    last: Checkpoint | None, me: Holder, now: int, lease_seconds: float, start_of: StartOf, *, take_over: bool = False
) -> Grant:
    """Decide whether this process may take the changefeed.

    A wrong yes costs no rows: every commit is fenced, so the process that lost the changefeed stops. A wrong no costs
    an operator's night. So what is certain is decided at once, and the rest by the clock: at `now`, in Unix
    milliseconds, a holder that has been silent for more than `lease_seconds` loses the lease. With `take_over` the user
    says that the holder is gone.

    Raises:
        CheckpointConflict: Another process holds the changefeed, or may still hold it.
    """
    if last is None:
        return Grant("the changefeed is new")
    holder = last.lease.holder
    if last.lease.released:
        return Grant(f"{holder} released it")
    if holder.token == me.token:
        return Grant("this process holds it")
    if _is_dead(holder, me, start_of):
        return Grant(f"{holder} is gone")
    silent = (now - last.written_at) / 1000
    if silent > lease_seconds:
        return Grant(f"{holder} has been silent for {silent:.0f} seconds", is_over=False)
    if take_over:
        # A process has one hold at a time: an earlier one of its own has ended.
        return Grant(f"it is taken over from {holder} by request", is_over=_process(holder) == _process(me))
    raise _held(last, silent, lease_seconds)


def this_process(now: int) -> Holder:
    """This process as a holder since `now`, in Unix milliseconds, with a token of its own."""
    return Holder(
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        machine=_text("/etc/machine-id"),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        process_start=process_start(os.getpid()) or 0,
        since=now,
    )


def process_start(pid: int) -> int | None:
    """See `StartOf`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _signalled(pid)
    # The name in parentheses may hold spaces and parentheses itself; the start is field 22, and the state field 3.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _is_dead(holder: Holder, me: Holder, start_of: StartOf) -> bool:
    """Whether the holder ran on this machine and does so no longer; False also if that is not certain."""
    if (holder.host, holder.machine) != (me.host, me.machine):
        return False
    if _UNKNOWN not in (holder.boot_id, me.boot_id) and holder.boot_id != me.boot_id:
        return True
    if holder.pid_namespace != me.pid_namespace:
        return False
    start = start_of(holder.pid)
    return start is None or (0 not in (start, holder.process_start) and start != holder.process_start)


def _process(holder: Holder) -> tuple[object, ...]:
    place = (holder.host, holder.machine, holder.boot_id, holder.pid_namespace)
    return (*place, holder.pid, holder.process_start)


def _held(last: Checkpoint, silent: float, lease_seconds: float) -> CheckpointConflict:
    holder = last.lease.holder
    what = (
        f"The changefeed is held by {holder} (epoch {last.lease.epoch}) since {_clock(holder.since)}, "
        f"last seen {_clock(last.written_at)}."
    )
    left = counted(max(1, round(lease_seconds - silent)), "second")
    if silent <= lease_seconds / 2:
        # It renews its hold several times in that time: a wait would have no end, and a take-over would end it.
        way_out = (
            "That process seems to be at work, and keeps its hold as long as it runs: stop it, and give the command "
            f"again. If it has died since, its hold ends {left} from now."
        )
    else:
        way_out = (
            f"Stop that process if it still runs; or wait, its hold ends {left} from now unless it shows up again; "
            "or, if you know that it is gone, start with --take-over."
        )
    return CheckpointConflict(what, way_out)


def _clock(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(sep=" ", timespec="seconds")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return _UNKNOWN


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN


def _signalled(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0
