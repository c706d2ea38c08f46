"""The holder of a changefeed beats while it works, and whatever goes wrong with a beat does not end it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from structlog.testing import capture_logs

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease
from applier.errors import CheckpointConflict, TransientError
from applier.pipeline.heartbeat import beating
from applier.pipeline.state import State
from applier.sink.control.control import Control

TAKEN = Checkpoint(Lease(1, Holder("one", "host-a")), step=5, resolved_ts=7, written_at=0)


@dataclass
class Checkpoints:
    """In the place of the control table: keeps what is appended, or fails as it is told."""

    errors: list[Exception] = field(default_factory=list)
    written: list[Checkpoint] = field(default_factory=list)
    told: threading.Condition = field(default_factory=threading.Condition)

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Control`."""
        with self.told:
            self.told.notify_all()
            if self.errors:
                raise self.errors.pop(0)
            self.written.append(checkpoint)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for what appends bring about."""
        with self.told:
            assert self.told.wait_for(done, timeout=60)


def state_of(checkpoints: Checkpoints) -> State:
    """Progress of a process that holds the changefeed."""
    return State(cast("Control", checkpoints), TAKEN)


def running() -> list[str]:
    """Names of the threads that beat."""
    return [thread.name for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_it_beats_until_the_block_ends() -> None:
    """The checkpoint is written again under the next steps, with nothing changed but the time; then the thread ends."""
    found = Checkpoints()
    state = state_of(found)

    with beating(state, 0.01):
        assert running() == ["heartbeat"]
        found.until(lambda: len(found.written) >= 3)

    assert running() == []
    assert [checkpoint.step for checkpoint in found.written[:3]] == [6, 7, 8]
    assert {(item.lease, item.resolved_ts) for item in found.written} == {(TAKEN.lease, 7)}
    assert state.checkpoint == found.written[-1]
    assert state.checkpoint.written_at > 0


def test_the_thread_ends_where_the_block_fails() -> None:
    """An error of the step comes through, and nothing beats after it."""
    with pytest.raises(KeyError, match="step"), beating(state_of(Checkpoints()), 3600):
        raise KeyError("step")

    assert running() == []


def test_an_outage_is_told_once_and_passes() -> None:
    """The process goes on, and so does the beat; the step number of a beat that failed is taken again."""
    down = TransientError("The catalog does not answer.")
    found = Checkpoints([down, ValueError("row of somebody"), down])
    state = state_of(found)

    with capture_logs() as events, beating(state, 0.01):
        found.until(lambda: len(found.written) >= 2)

    failed = [event for event in events if event["event"] == "heartbeat failed"]
    assert [event["error"] for event in failed] == ["The catalog does not answer."]
    assert found.written[0].step == 6


def test_a_beat_that_finds_the_changefeed_taken_is_the_last() -> None:
    """It is told, the process is not ended by it, and the next checkpoint is refused where it is written."""
    taken = CheckpointConflict("Changefeed shop was taken by process 2 on host-b.")
    found = Checkpoints([taken, taken])
    state = state_of(found)

    with capture_logs() as events, beating(state, 0.01):
        found.until(lambda: len(found.errors) == 1)
        for thread in threading.enumerate():
            if thread.name == "heartbeat":
                thread.join(60)
        assert running() == []
        with pytest.raises(CheckpointConflict, match="was taken by process 2"):
            state.advance(9, {}, Cut(), {}, ())

    assert [(event["event"], event["error"]) for event in events] == [("changefeed lost", taken.what)]
    assert (found.written, state.checkpoint) == ([], TAKEN)
