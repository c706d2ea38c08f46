from __future__ import annotations

import os
from dataclasses import replace

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.errors import CheckpointConflict
from applier.sink.control.lease import may_take, process_start, this_process

NOW = 1_795_250_000_000
ME = Holder("mine", "host-a", "machine-1", "boot-1", "pid:[1]", pid=200, process_start=9000, since=NOW)
OTHER = replace(ME, token="other", pid=100, process_start=5000, since=NOW - 3_600_000)


def held(holder: Holder = OTHER, silent: float = 5, *, released: bool = False) -> Checkpoint:
    """A checkpoint of a holder that was last seen some seconds ago."""
    return Checkpoint(Lease(4, holder, released), 12, 7, NOW - int(silent * 1000))


def alive(pid: int) -> int | None:
    """The processes of this machine."""
    return {100: 5000, 200: 9000}.get(pid)


def nobody(_: int) -> int | None:
    """A machine without processes."""
    return None


@pytest.mark.parametrize(
    ("last", "why"),
    [
        pytest.param(None, "the changefeed is new", id="new"),
        pytest.param(held(released=True), "process 100 on host-a released it", id="released"),
        pytest.param(held(ME), "this process holds it", id="own"),
        pytest.param(held(silent=61), "process 100 on host-a has been silent for 61 seconds", id="silent"),
        pytest.param(held(replace(OTHER, pid=101)), "process 101 on host-a is gone", id="no such process"),
        pytest.param(held(replace(OTHER, process_start=4)), "process 100 on host-a is gone", id="pid used again"),
        pytest.param(held(replace(OTHER, boot_id="boot-0")), "process 100 on host-a is gone", id="machine rebooted"),
    ],
)
def test_a_changefeed_that_nobody_holds_is_taken(last: Checkpoint | None, why: str) -> None:
    """What is certain is decided at once, whatever the clock says."""
    assert may_take(last, ME, NOW, 60, alive).because == why


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param(OTHER, id="alive here"),
        pytest.param(replace(OTHER, host="host-b"), id="another host"),
        pytest.param(replace(OTHER, machine="machine-2", boot_id="boot-2"), id="another machine of that name"),
        pytest.param(replace(OTHER, pid=1, pid_namespace="pid:[2]"), id="a container, whose process ids say nothing"),
        pytest.param(replace(OTHER, process_start=0), id="start unknown"),
    ],
)
@pytest.mark.parametrize("silent", [-30, 0, 59.9])
def test_a_changefeed_that_may_be_held_is_refused(holder: Holder, silent: float) -> None:
    """Within the lease a holder that may live keeps the changefeed, even if its clock is ahead of ours."""
    with pytest.raises(CheckpointConflict):
        may_take(held(holder, silent), ME, NOW, 60, alive)


def test_a_dead_process_elsewhere_holds_until_its_lease_ends() -> None:
    """Nobody here can tell whether a process of another host lives."""
    with pytest.raises(CheckpointConflict):
        may_take(held(replace(OTHER, host="host-b")), ME, NOW, 60, nobody)


def test_an_operator_may_overrule_the_lease() -> None:
    """With --take-over the changefeed is taken from a holder that seems alive."""
    assert may_take(held(), ME, NOW, 60, alive, take_over=True).because == (
        "it is taken over from process 100 on host-a by request"
    )


@pytest.mark.parametrize(
    ("last", "is_over"),
    [
        pytest.param(None, True, id="new"),
        pytest.param(held(released=True), True, id="released"),
        pytest.param(held(replace(OTHER, pid=101)), True, id="gone"),
        pytest.param(held(silent=61), False, id="silent"),
        pytest.param(held(), False, id="taken over"),
    ],
)
def test_a_holder_that_may_still_live_is_not_over(last: Checkpoint | None, *, is_over: bool) -> None:
    """Silence and an operator's word prove nothing: such a process may wake up and has to be kept out."""
    assert may_take(last, ME, NOW, 60, alive, take_over=True).is_over is is_over


def test_a_refusal_says_who_holds_it_and_what_to_do() -> None:
    """One sentence with the holder, since when and last seen; one with the ways out."""
    with pytest.raises(CheckpointConflict) as caught:
        may_take(held(silent=48), ME, NOW, 60, alive)
    assert caught.value.what == (
        "The changefeed is held by process 100 on host-a (epoch 4) since 2026-11-21 07:33:20+00:00, "
        "last seen 2026-11-21 08:32:32+00:00."
    )
    assert caught.value.hint == (
        "Stop that process if it still runs; or wait, its hold ends 12 seconds from now unless it shows up again; "
        "or, if you know that it is gone, start with --take-over."
    )


@pytest.mark.parametrize("silent", [-2, 0, 12, 30])
def test_a_holder_that_is_at_work_is_to_be_stopped(silent: int) -> None:
    """It renews its hold, so that a wait has no end; and what takes over from it ends it."""
    with pytest.raises(CheckpointConflict) as caught:
        may_take(held(silent=silent), ME, NOW, 60, alive)
    assert caught.value.hint == (
        "That process seems to be at work, and keeps its hold as long as it runs: stop it, and give the command "
        f"again. If it has died since, its hold ends {60 - silent} seconds from now."
    )


def test_this_process_finds_itself_alive() -> None:
    """What a process writes of itself is what another one finds of it."""
    me = this_process(NOW)
    assert (me.pid, me.since) == (os.getpid(), NOW)
    assert process_start(me.pid) in (0, me.process_start)
    assert me.token != this_process(NOW).token


def test_a_process_that_ended_is_not_found() -> None:
    """A process id that is not in use has no start, whether or not somebody still has to collect it."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process_start(pid) is None
    os.waitpid(pid, 0)
    assert process_start(pid) is None
