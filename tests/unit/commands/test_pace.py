"""How long a run waits after a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from applier.commands.run import REST_SECONDS, Pace, Rest
from applier.pipeline.step import Step
from applier.runtime.logs import StatusLine

STATUS = StatusLine(1, 1, 0, 0, 0, 0, 0, 0, {"decode": 0.1, "apply": 0.2}, {})
DONE = Step(moved=True, complete=True, status=STATUS)
NOTHING = Step(moved=False, complete=True, status=STATUS)


def test_rows_are_gathered_where_no_backlog_is_left() -> None:
    """The next step begins nearly a second after this one did, or at once where this one took longer."""
    pace = Pace(1.0, 1.0)

    assert pace.after(DONE) == pytest.approx(0.6)
    assert pace.after(replace(DONE, status=replace(STATUS, seconds={"apply": 1.5}))) == 0


def test_a_backlog_is_never_waited_for() -> None:
    """Nor are tables that are being brought back."""
    pace = Pace(1.0, 1.0)

    assert pace.after(replace(DONE, complete=False)) == 0
    assert pace.after(replace(DONE, resuming=True)) == 0


def test_looks_that_find_nothing_become_rare() -> None:
    """Up to the pause that the configuration says; the next step begins anew."""
    pace = Pace(1.0, 1.0)
    pauses = [pace.after(NOTHING) for _ in range(6)]

    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    pace.after(DONE)
    assert pace.after(NOTHING) == pytest.approx(0.1)


def test_a_run_rests_once_after_each_time_of_work() -> None:
    """Watermarks are no work."""
    rest, work = Rest(0.0), replace(DONE, status=replace(STATUS, rows=3))

    assert not rest.begins(NOTHING, REST_SECONDS - 1)
    assert [rest.begins(DONE, REST_SECONDS + second) for second in range(3)] == [True, False, False]
    assert not rest.begins(work, 2 * REST_SECONDS)
    assert not rest.begins(NOTHING, 2 * REST_SECONDS + 1)
    assert rest.begins(NOTHING, 3 * REST_SECONDS)
