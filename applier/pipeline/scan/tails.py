"""Resolved ts near the ends of partitions, found before any row is decoded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from applier.changefeed.event import Resolved
from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import WindowTooLargeError
from applier.decode.decoder import Decoder
from applier.errors import DecodeError

TAIL_MESSAGES = 50
"""Messages at the end of a partition's range that are searched first for a resolved ts; TiCDC sends one a second."""

_WIDER = 4
"""How many times as far back each search goes as the one before. The row pass reads all of it again, but each search is
one more question to the brokers."""


def resolved_near_ends(
    window: Window, read: Callable[[Window], Messages], decoder: Callable[[], Decoder]
) -> dict[TopicPartition, int]:
    """A resolved ts near the end of each partition's range; the search widens until one is found.

    Args:
        window: The window.
        read: Reads the messages of a part of it.
        decoder: Makes a decoder of the changefeed's protocol.
    """
    resolved: dict[TopicPartition, int] = {}
    size = TAIL_MESSAGES
    silent = dict(window.ranges)
    while silent:
        tails = Window(silent).tail(size)
        try:
            resolved |= _resolved_in(read(tails), decoder())
        except WindowTooLargeError:
            return resolved  # The row pass meets the others, and is run again with the watermark that they make.
        ahead = {p: OffsetRange(span.start, tails.ranges[p].start) for p, span in silent.items() if p not in resolved}
        silent = {p: span for p, span in ahead.items() if len(span)}
        size *= _WIDER
    return resolved


def _resolved_in(messages: Messages, decoder: Decoder) -> dict[TopicPartition, int]:
    """The last resolved ts of each partition among messages, sought from behind: few are decoded.

    What cannot be decoded is the row pass's to report, and so is a higher one before it: TiCDC may have gone back.
    """
    resolved: dict[TopicPartition, int] = {}
    for place, table in messages.items():
        for key, value in zip(*(table[name].to_pylist()[::-1] for name in ("key", "value")), strict=True):
            with suppress(DecodeError):
                found = [event.resolved_ts for event in decoder.decode(key, value) if isinstance(event, Resolved)]
                if found:
                    resolved[place] = max(found)
                    break
    return resolved
