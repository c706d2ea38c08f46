"""What fails beside a step leaves nothing of it in memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease, Moving
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.commands.run import note_over
from applier.errors import CheckpointConflict, DecodeError, TableMismatch, TerminalError, TransientError
from applier.pipeline.jobs.resumption import Resumption
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.state import State, keep_end
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import StatusLine


class _RestoredError(Exception):
    """The step began at the checkpoint."""


PLACE = TopicPartition("shop", 0)
_NO_ANSWER = TransientError("No answer came.")


def _follower() -> tuple[Follower, mock.MagicMock]:
    """A follower, and what is called between its steps."""
    follower, between = Follower(Pipeline(*(mock.MagicMock() for _ in range(7)))), mock.MagicMock()
    follower.requests, follower.jobs = between.requests, between.jobs
    return follower, between


def _refused() -> None:
    raise CheckpointConflict("Another applier has the changefeed.")


@pytest.mark.parametrize("place", ["request", "job"])
def test_a_step_behind_a_failure_beside_the_steps_begins_at_the_checkpoint(place: str) -> None:
    """A table that a request had parked, or a job had shown, when it failed must not come into the next checkpoint."""
    follower, between = _follower()
    (between.requests.take if place == "request" else between.jobs.advance).side_effect = _NO_ANSWER
    cast("Any", follower.pipeline.state).checkpoint.moving = None
    done = Step(moved=True, complete=True, status=mock.MagicMock())
    with mock.patch.object(Pipeline, "_step", return_value=done), pytest.raises(TransientError):
        follower.turn()

    with mock.patch.object(Pipeline, "restore", side_effect=_RestoredError), pytest.raises(_RestoredError):
        follower.turn()


@pytest.mark.parametrize("place", ["request", "job"])
def test_a_table_that_the_next_holder_moved_is_its_conflict_between_steps_as_well(place: str) -> None:
    """A request that takes it for damaged would park it, and the user would look for what nobody did."""
    follower, between = _follower()
    (between.requests.take if place == "request" else between.jobs.advance).side_effect = TableMismatch("It is gone.")
    cast("Any", follower.pipeline.state).checkpoint.moving = None
    follower.pipeline.targets = cast("Any", TargetTables)(*[None] * 5, confirm=_refused)
    done = Step(moved=True, complete=True, status=mock.MagicMock())
    with mock.patch.object(Pipeline, "_step", return_value=done), pytest.raises(CheckpointConflict):
        follower.turn()


def test_a_turn_does_what_was_asked_for_before_the_jobs_and_says_what_they_leave() -> None:
    """A table that a request parks must not be shown by its job in the same turn."""
    follower, between = _follower()
    state = cast("Any", follower.pipeline.state)
    between.jobs.advance.return_value, state.checkpoint.moving, state.parked = True, None, {"shop.orders"}
    counted = StatusLine(1, 7, 0, 0, 0, 0, 0, 0, {}, {"parked": 3, "dead_letters": 1})
    done = Step(moved=True, complete=True, status=counted)
    with mock.patch.object(Pipeline, "_step", return_value=done) as step:
        turned = follower.turn({PLACE: 8})
    # Two tables came back behind the step: the line that is printed now must not count them.
    assert turned == replace(done, resuming=True, status=replace(counted, notes={"parked": 1, "dead_letters": 1}))

    step.assert_called_once_with({PLACE: 8})
    assert between.mock_calls == [mock.call.requests.take(), mock.call.jobs.advance(is_busy=True)]


def test_nothing_is_done_beside_a_step_that_is_not_repeated_yet() -> None:
    """A job would show its table under a name that the failed step has given to another one."""
    follower, between = _follower()
    done = Step(moved=False, complete=True, status=mock.MagicMock())
    with mock.patch.object(Pipeline, "_step", return_value=done):
        follower.turn()

    assert between.mock_calls == []


def test_a_restoration_that_failed_is_made_again() -> None:
    """Tables that are ahead of the checkpoint are not known yet: their rows would be applied twice."""
    pipeline = Pipeline(*(mock.MagicMock() for _ in range(7)))
    cast("Any", pipeline.targets).restore.side_effect = _NO_ANSWER
    with pytest.raises(TransientError):
        pipeline.restore()

    with mock.patch.object(Pipeline, "restore", side_effect=_RestoredError), pytest.raises(_RestoredError):
        pipeline.step()


def test_a_job_that_failed_is_begun_again_where_the_checkpoint_has_it() -> None:
    """What it had taken in when it failed would never get its place in the feed."""
    resumption = Resumption(cast("Any", SimpleNamespace()), clock=lambda: 0.0)
    resumption._replay = cast("Any", SimpleNamespace(step=mock.Mock(side_effect=_NO_ANSWER)))
    with mock.patch.object(Resumption, "_is_due", return_value=True), pytest.raises(TransientError):
        resumption.advance(is_busy=False)

    assert resumption._replay is None


@pytest.mark.parametrize("readings", [{}, {PLACE: Reading(8, 9)}])
def test_only_a_step_says_that_the_names_have_come_to_rest(readings: dict[TopicPartition, Reading]) -> None:
    """A command that writes the checkpoint in between would leave them to be taken for tables that others dropped."""
    moving = Moving({TableName("shop", "orders"): 8}, {PLACE: 8})
    last = Checkpoint(Lease(1, Holder("one", "host-a")), step=5, resolved_ts=7, written_at=0, moving=moving)
    state = State(mock.MagicMock(), last)

    state.advance(9 if readings else 7, readings, Cut(), {}, ())

    assert state.checkpoint.moving == (None if readings else moving)


@pytest.mark.parametrize(
    ("outcome", "is_over"),
    [
        ({}, True),
        ({"complete": False}, False),
        ({"error": DecodeError("It is bad.")}, False),
        ({"waiting": [Waiting(TableName("shop", "t"), 1, 1, 1, PLACE)]}, False),
        ({"silent": [PLACE]}, False),
    ],
)
def test_what_ended_the_last_run_is_over_once_a_step_needs_nothing(outcome: dict[str, Any], *, is_over: bool) -> None:
    """A step that only waits, as the last run did, may be about to end for the same reason."""
    last = Checkpoint(Lease(1, Holder("one", "host-a")), step=5, resolved_ts=7, written_at=0)
    state = State(mock.MagicMock(), last)
    keep_end(state, TerminalError("It failed."))
    assert state.checkpoint.stopped is not None

    pipeline = Pipeline(*(mock.MagicMock() for _ in range(7)))
    pipeline.state = state
    note_over(pipeline, Step(**{"moved": False, "complete": True, "status": mock.MagicMock(), **outcome}))
    assert (state.checkpoint.stopped is None) == is_over

    state.advance(8, {PLACE: Reading(8, 9)}, Cut(), {}, ())
    assert state.checkpoint.stopped is None
