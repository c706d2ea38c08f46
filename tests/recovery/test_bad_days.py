"""A storage with bad days beside a feed that goes on; FAULT_SECONDS says for how long, SEED which days."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.storage import slow_s3
from tests.integration.faulty_storage import FaultyStorage, faulty
from tests.recovery.bad_days import BadDays
from tests.services.kafka import Broker

pytestmark = [pytest.mark.s3, pytest.mark.kafka, pytest.mark.soak]

_SECONDS = float(os.environ.get("FAULT_SECONDS") or 120)

_SEED = int(os.environ.get("SEED") or time.time())

_ROUND_SECONDS = 30.0

_SHARES = (0.02, 0.1, 0.03)
"""Requests that fail in each round of a run, which ends in good order; then orphans are looked for."""

_POINTS = ("data-files-staged:9", "commit-sent:9", "files-merged:3", "compaction-sent:3", "snapshots-expired:2")
"""Where a process stands still, in a step or in maintenance."""


@pytest.fixture
def storage() -> Iterator[FaultyStorage]:
    """What stands before a server of S3."""
    with slow_s3() as endpoint, faulty(endpoint) as proxy:
        yield proxy


@pytest.mark.timeout(_SECONDS * 10 + 600)
def test_after_bad_days_every_table_is_the_database_and_nothing_is_left(
    storage: FaultyStorage, kafka: Broker, tmp_path: Path
) -> None:
    """Answers fail, come late or not at all, the process is killed, and maintenance is always due."""
    days = BadDays(_SEED, storage, kafka, tmp_path)
    end = time.monotonic() + _SECONDS
    try:
        while time.monotonic() < end:
            _run(days)
    except BaseException as error:
        error.add_note(f"Run it again: make soak-storage SEED={_SEED}. It went: {'; '.join(days.story)}")
        raise
    print(f"\nseed {_SEED}: {'; '.join(days.story)}")  # noqa: T201 - for whoever runs it


def _run(days: BadDays) -> None:
    days.start()
    days.go_on(5)
    for share in _SHARES:
        days.round(_ROUND_SECONDS, share)
        assert not (problems := days.problems()), "\n".join(problems)
    ended = days.stop()
    assert ended.code == 0, ended.everything[-3000:]
    assert not (left := days.left_over()), "\n".join(left)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", _POINTS)
def test_a_process_that_stood_still_changes_nothing_on_a_storage(
    storage: FaultyStorage, kafka: Broker, tmp_path: Path, point: str
) -> None:
    """SIGSTOP in a step or in maintenance, a take-over that maintains as well, SIGCONT: nothing is lost or doubled."""
    days = BadDays(_SEED + _POINTS.index(point), storage, kafka, tmp_path)
    days.start(kill_at=f"{point}:STOP")
    zombie, stopped = days.applier, None
    try:
        while stopped is None:
            days.go_on(8)
            time.sleep(0.5)
            stopped = os.waitid(os.P_PID, zombie.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG)
        assert stopped.si_code == os.CLD_STOPPED, "it ended before it came to the point"
        days.start("--take-over")
        days.go_on(20)
        days.catch_up()
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
        days.go_on(20)
        ended = zombie.wait()
    days.catch_up()

    assert ended.code == 3
    assert "this one stops." in ended.said
    assert days.problems() == []
    assert days.stop().code == 0
    assert not (left := days.left_over()), "\n".join(left)
