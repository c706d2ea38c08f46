"""Figures as people read them."""

from __future__ import annotations

import pytest

from applier.runtime.figures import counted, span


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (0.74, "0.7 s"),
        (10, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (12_600, "3.5 h"),
        (172_800, "2 days"),
        (2e5, "2.3 days"),
    ],
)
def test_time_spans_are_said_as_people_say_them(seconds: float | None, shown: str) -> None:
    """The unit fits the span, no figure is more exact than it looks, and what is not known is not 0."""
    assert span(seconds) == shown


def test_one_thing_is_not_several() -> None:
    """With a plural of its own where one is given."""
    shown = [counted(0, "table"), counted(1, "query", "queries"), counted(1000, "query", "queries")]
    assert shown == ["0 tables", "1 query", "1,000 queries"]
