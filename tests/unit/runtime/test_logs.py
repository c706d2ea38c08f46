"""What reaches the log of a process beside its own events."""

from __future__ import annotations

import json
import sys

import pytest
import structlog

from applier.runtime.logs import StatusLine, set_up_logging


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


@pytest.mark.parametrize(
    ("resolved_ts", "why"), [(None, "the feed carries no watermark"), (0, "no watermark yet")], ids=["never", "not yet"]
)
def test_a_status_line_without_a_watermark_says_why(resolved_ts: int | None, why: str) -> None:
    """It has neither a resolved ts of 1970 nor the lag of half a century that follows from one."""
    shown = StatusLine(1, resolved_ts, 1_700_000_000_000, 0, 0, 0, 0, 0, {}, {}).fields()

    assert shown["resolved"] == f"not available, {why}"
    assert not {"resolved_ts", "lag_seconds"} & shown.keys()
