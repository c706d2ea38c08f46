"""What reaches the log of a process beside its own events."""

from __future__ import annotations

import json
import sys

import pytest
import structlog

from applier.runtime.logs import set_up_logging


class _Writer:
    """What Arrow's is on a full disk: its clean-up fails, too."""

    def __del__(self) -> None:
        raise OSError("No space left on device: /data/shop/orders?token=x")


def test_what_a_clean_up_raises_is_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python would print a traceback among the lines of JSON; its text is left out, as it may show anything."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    set_up_logging("debug")
    try:
        _Writer()
    finally:
        structlog.reset_defaults()

    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["event"], found["where"], found["error"]) == (
        "error while cleaning up",
        "_Writer.__del__",
        "OSError",
    )
