"""A window of nothing but bad messages, at the beginning of a changefeed and later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.errors import DecodeError, TerminalError
from applier.pipeline.next_step import refuse_unreadable


def found(bad: int, messages: int) -> Any:
    """A survey of some messages, the first of which are bad."""
    letters = [
        SimpleNamespace(partition=TopicPartition("t", 0), offset=at, error=DecodeError(f"Bad {at}."))
        for at in range(bad)
    ]
    return SimpleNamespace(bad=letters, results=SimpleNamespace(counts={"messages": messages}))


def state(**known: Any) -> Any:
    """What a changefeed that has read nothing knows."""
    checkpoint = SimpleNamespace(tables={}, resolved=known.pop("resolved", {}))
    return SimpleNamespace(**{"versions": {}, "checkpoint": checkpoint, **known})


def test_a_first_window_of_bad_messages_is_refused() -> None:
    """The protocol and the first message are named, and both ways out."""
    with pytest.raises(TerminalError) as refusal:
        refuse_unreadable(found(3, 3), state(), "open")

    assert refusal.value.what == "None of the 3 messages that were read is one of protocol open. The first: Bad 0."
    assert "applier backfill -c FILE --from OFFSETS" in refusal.value.hint


@pytest.mark.parametrize(
    ("scan", "known"),
    [
        (found(2, 3), {}),
        (found(0, 0), {}),
        (found(1, 1), {"versions": {1: 1}}),
        (found(1, 1), {"resolved": {1: 1}}),
    ],
    ids=["one can be read", "nothing came", "tables are known", "a watermark came"],
)
def test_a_bad_message_among_others_or_later_is_set_aside(scan: Any, known: dict[str, Any]) -> None:
    """A changefeed that was read before may have a window that holds a bad message alone."""
    refuse_unreadable(scan, state(**known), "open")
