"""Failures that come again are told from outages, and are not asked for again."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkImportError, PythonException

from applier.consume.spark import read_refusal
from applier.errors import OutsideRefused, TerminalError, TransientError
from applier.patience import patiently


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (AnalysisException("[DATA_SOURCE_NOT_FOUND] no kafka"), OutsideRefused, "Messages cannot be read: .*no kafka"),
        (PySparkImportError("[PACKAGE_NOT_INSTALLED] PyArrow >= 15"), OutsideRefused, "Messages cannot be read"),
        (RuntimeError("TopicAuthorizationException: Not authorized: [t]"), OutsideRefused, "Hint: check the log-in"),
        (RuntimeError("java.net.ConnectException: refused"), TransientError, "Reading from Kafka failed"),
    ],
)
def test_a_failed_read_is_told_for_what_it_is(error: Exception, kind: type[Exception], sentence: str) -> None:
    """A missing package or right stops the run; a broker that does not answer is asked again."""
    with pytest.raises(kind, match=sentence):
        raise read_refusal(error)


def test_a_defect_in_a_task_is_named_without_its_data() -> None:
    """A Python worker's exception comes again with every retry, and its message may hold a row."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/site-packages/applier/rowpass.py", line 91, in __call__\n'
        "KeyError: 'a secret row'\n"
    )

    found = read_refusal(PythonException(text))

    assert type(found) is TerminalError
    assert found.what == "A task that decodes messages failed with KeyError at applier/rowpass.py line 91."
    assert "secret" not in str(found)


def test_an_outage_in_a_task_is_asked_again() -> None:
    """Tasks ask the registry, too."""
    assert isinstance(read_refusal(PythonException("applier.errors.TransientError: no registry")), TransientError)


def test_only_outages_are_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is repeated after a transient error and not after a terminal one."""
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    calls: list[Exception | None] = [TransientError("down"), TransientError("down"), None, OutsideRefused("no"), None]

    def call() -> str:
        if (error := calls.pop(0)) is not None:
            raise error
        return "done"

    assert patiently(call) == "done"
    with pytest.raises(OutsideRefused):
        patiently(call)
    assert calls == [None]


def test_an_outage_ends_the_run_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After five minutes the error itself is raised."""
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    monkeypatch.setattr("tenacity.time.monotonic", lambda: next(clock))

    def call() -> None:
        raise TransientError("The catalog does not answer.")

    with pytest.raises(TransientError, match="does not answer"):
        patiently(call)
