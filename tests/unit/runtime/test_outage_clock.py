"""How long an outage lasts: from its first failure on, of one system, until that has worked."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from applier import errors
from applier.consume.workers.transport import outcome, settled
from applier.decode.large_messages import ClaimCheck
from applier.errors import TransientError
from applier.runtime.outages import OUTAGES, system_of
from applier.runtime.retry import OUTAGE_SECONDS, with_retry
from applier.runtime.stop_requests import STOPPING


class Clock:
    """Monotonic seconds that pass only where a call works or a retry pauses."""

    now = 1000.0

    def __call__(self) -> float:
        """See `time.monotonic`."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that the retries see."""
    clock = Clock()

    def pause(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("applier.runtime.retry.time.monotonic", clock)
    monkeypatch.setattr(STOPPING, "pause", pause)
    return clock


def down(system: str) -> TransientError:
    """An error of a system."""
    error = TransientError(f"{system} is down.")
    error.system = system
    return error


def test_a_call_that_has_worked_for_hours_has_a_second_try(clock: Clock) -> None:
    """The work before the first failure is no outage."""
    failures: Iterator[TransientError | None] = iter([down("lake"), None])

    def call() -> str:
        clock.now += 40 * OUTAGE_SECONDS
        if (error := next(failures)) is not None:
            raise error
        return "applied"

    assert with_retry(call) == "applied"


def test_outages_of_two_systems_do_not_add_up(clock: Clock) -> None:
    """Each has its own five minutes."""
    begin = clock.now

    def call() -> str:
        passed = clock.now - begin
        if passed < 1.5 * OUTAGE_SECONDS:
            raise down("lake" if passed < 0.8 * OUTAGE_SECONDS else "registry")
        return "applied"

    assert with_retry(call) == "applied"


def test_systems_that_fail_in_turn_end_the_run(clock: Clock) -> None:
    """What answers between the failures of one system is not that system."""
    begin, systems = clock.now, itertools.cycle(["lake", "registry", "source"])

    def call() -> None:
        if clock.now - begin > 10 * OUTAGE_SECONDS:
            pytest.fail("They were asked for ever.")
        raise down(next(systems))

    with pytest.raises(TransientError, match="is down"):
        with_retry(call)
    assert OUTAGE_SECONDS <= clock.now - begin < OUTAGE_SECONDS + 120


def test_a_system_that_works_ends_its_outage(clock: Clock) -> None:
    """Failures that lie further apart than an outage may last end nothing, if something was done between them."""
    tries = iter(range(10))

    def call() -> str:
        clock.now += 2 * OUTAGE_SECONDS
        OUTAGES.worked("lake")
        if next(tries) < 9:
            raise down("lake")
        return "applied"

    assert with_retry(call) == "applied"


@pytest.mark.parametrize("other", ["source", "registry"])
def test_the_work_of_one_system_ends_no_outage_of_another(clock: Clock, other: str) -> None:
    """Kafka may be read as often as it likes while the lake is down."""
    begin = clock.now

    def call() -> None:
        OUTAGES.worked(other)
        raise down("lake")

    with pytest.raises(TransientError, match="lake is down"):
        with_retry(call)
    assert OUTAGE_SECONDS <= clock.now - begin < OUTAGE_SECONDS + 40
    assert OUTAGES.current is None


def test_an_error_of_a_task_names_its_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is lost on the way, and where it is raised again would say `source`."""

    def refuse(address: str) -> None:
        raise ConnectionError(address)

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)

    with pytest.raises(TransientError, match="claim-check storage") as raised:
        settled([copy.copy(outcome(lambda messages: ClaimCheck("s3://x").fetch("a.json"), []))])

    assert system_of(raised.value) == "registry"


def test_the_system_shows_where_the_package_lies_in_the_folder_of_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python there names files from the folder in which it runs."""
    package = Path(errors.__file__).parent
    monkeypatch.chdir(package.parent)
    code = compile("raise error", f"./{package.name}/decode/large_messages.py", "exec")

    with pytest.raises(TransientError) as raised:
        exec(code, {"error": TransientError("away")})  # noqa: S102 - the file name is what counts

    assert system_of(raised.value) == "registry"
