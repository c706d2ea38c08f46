"""Failures that come again are told from outages, and are not asked for again."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkImportError, PythonException

from applier.consume.spark import read_refusal
from applier.errors import OutsideRefused, TerminalError, TransientError
from applier.runtime.outages import system_of
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import STOPPING, StopRequested, stop_signals


class SparkException(Exception):
    """A failed job, as `chain_of` sees it."""


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (AnalysisException("[DATA_SOURCE_NOT_FOUND] no kafka"), OutsideRefused, "Messages cannot be read: .*no kafka"),
        (PySparkImportError("[PACKAGE_NOT_INSTALLED] PyArrow >= 15"), OutsideRefused, "Messages cannot be read"),
        (RuntimeError("TopicAuthorizationException: Not authorized: [t]"), OutsideRefused, "Hint: give this user the"),
        (
            RuntimeError("Task 0 in stage 1.0 failed 4 times, most recent failure: ExecutorLostFailure (executor 3)"),
            TransientError,
            "Spark lost the executors of a job: .* Hint: .* spark.executor.memoryOverhead",
        ),
        (
            SparkException("Job aborted: (executor 1): java.lang.OutOfMemoryError: Java heap space"),
            TransientError,
            "^Tasks have not enough memory: .* Hint: .* spark.executor.memory",
        ),
        (RuntimeError("java.net.ConnectException: refused"), TransientError, "^Reading from Kafka failed"),
    ],
)
def test_a_failed_read_is_told_for_what_it_is(error: Exception, kind: type[Exception], sentence: str) -> None:
    """A missing package or right stops the run; a broker that does not answer is asked again."""
    with pytest.raises(kind, match=sentence):
        raise read_refusal(error)


def test_a_full_temporary_folder_is_no_outage_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go through a file there: the sentence names the folder, and no alert sends anybody to the brokers."""
    error = RuntimeError("java.io.IOException: No space left on device")
    assert "Kafka" in str(read_refusal(error))

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    found = read_refusal(error)

    assert str(found) == (
        f"The temporary folder {tempfile.gettempdir()} is full. Hint: free some of it, or set TMPDIR to another one."
    )
    assert system_of(found) == "other"


def test_a_failed_read_does_not_repeat_secrets() -> None:
    """Kafka's clients say which word of an option they cannot read."""
    error = RuntimeError("java.lang.IllegalArgumentException: JAAS configuration: no '=' behind hunter2")
    options = {"kafka.sasl.jaas.config": 'org.x.PlainLoginModule required password="hunter2";'}

    assert "hunter2" in str(read_refusal(error))
    assert "hunter2" not in str(read_refusal(error, options))

    # The text is cut to the length of a log line, here within the secret.
    long = RuntimeError(f"{'x' * 296}hunter2 is no value")
    assert "hunt" not in str(read_refusal(long, options))


def test_a_defect_in_a_task_is_named_without_its_data() -> None:
    """A Python worker's exception comes again with every retry, and its message may hold a row."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/site-packages/applier/pipeline/scan/decode_task.py", line 91, in __call__\n'
        "KeyError: 'a secret row'\n"
    )

    found = read_refusal(PythonException(text))

    assert type(found) is TerminalError
    place = "applier/pipeline/scan/decode_task.py line 91"
    assert found.what == f"A task failed with KeyError at {place}."
    assert "secret" not in str(found)


def test_a_module_that_a_task_lacks_is_no_defect() -> None:
    """One executor may differ from the one that was asked first; and a storage may need a package of its own."""
    found = read_refusal(PythonException("Traceback:\n  x\nModuleNotFoundError: No module named 's3fs'\n"))

    assert type(found) is OutsideRefused
    assert str(found).startswith(
        "A task needs the module s3fs, which its Python does not have. Hint: install it where tasks run; for "
    )


def test_an_outage_in_a_task_is_asked_again() -> None:
    """Tasks ask the registry, too."""
    for told in ("applier.errors.TransientError: no registry", "OSError: [Errno 28] No space left on device"):
        assert isinstance(read_refusal(PythonException(told)), TransientError)


def test_only_outages_are_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is repeated after a transient error and not after a terminal one."""
    monkeypatch.setattr(STOPPING, "pause", lambda seconds: None)
    calls: list[Exception | None] = [TransientError("down"), TransientError("down"), None, OutsideRefused("no"), None]

    def call() -> str:
        if (error := calls.pop(0)) is not None:
            raise error
        return "done"

    assert with_retry(call) == "done"
    with pytest.raises(OutsideRefused):
        with_retry(call)
    assert calls == [None]


def test_an_outage_ends_the_run_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After five minutes the error itself is raised."""
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(STOPPING, "pause", lambda seconds: None)
    monkeypatch.setattr("tenacity.time.monotonic", lambda: next(clock))

    def call() -> None:
        raise TransientError("The catalog does not answer.")

    with pytest.raises(TransientError, match="does not answer"):
        with_retry(call)


def test_each_try_of_an_outage_says_how_long_it_may_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a try: the cause, the time so far, the limit, and when the next try comes."""
    said: list[dict[str, Any]] = []
    logger = type(
        "Logger", (), {"warning": staticmethod(lambda event, **fields: said.append({"event": event, **fields}))}
    )
    monkeypatch.setattr("applier.runtime.retry.logger", lambda: logger)
    monkeypatch.setattr(STOPPING, "pause", lambda seconds: None)
    calls: list[Exception | None] = [TransientError("down"), TransientError("still down"), None]

    def call() -> None:
        if (error := calls.pop(0)) is not None:
            raise error

    with_retry(call)

    assert [line["error"] for line in said] == ["down", "still down"]
    assert {line["event"] for line in said} == {"waiting for an outside system"}
    assert all(line["limit_seconds"] == 300 and line["elapsed_seconds"] >= 0 for line in said)
    assert all(0 < line["next_try_seconds"] < 3 for line in said)


def test_a_stop_request_ends_a_wait_and_not_a_step() -> None:
    """The handler of a signal leaves the call that waits; without a wait it takes note alone."""
    with stop_signals(60) as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(StopRequested):
            STOPPING.pause(60)
    calls = 0
    with stop_signals(60):

        def call() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise TransientError("down")
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the signal did not leave the call")

        with pytest.raises(StopRequested):
            with_retry(call)
    assert calls == 2


def test_a_command_that_ended_in_time_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a step has after a stop request ends with the command, and the process lives on."""
    given_up: list[float] = []
    monkeypatch.setattr(STOPPING, "_abandon", given_up.append)
    with stop_signals(seconds=0.05):
        signal.raise_signal(signal.SIGTERM)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(1)

    assert given_up == []
    with stop_signals(seconds=0.01):
        signal.raise_signal(signal.SIGTERM)
        for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
            timer.join(5)
    assert given_up == [0.01]


def test_a_stop_request_ends_with_its_command() -> None:
    """What the same process calls after the command waits as long as it has to."""
    with stop_signals(60):
        signal.raise_signal(signal.SIGTERM)

    STOPPING.pause(0)


def test_a_closed_terminal_asks_to_stop_and_nohup_does_not() -> None:
    """SIGHUP is a stop request; a process that was started to outlive its terminal goes on."""
    with stop_signals(60) as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.is_set()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals(60) as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
