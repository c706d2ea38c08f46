"""Parts the messages of a window among tasks: thin partitions together, thick ones by offset where that is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window

TASK_MESSAGES = 250_000
"""Messages of a task at the most: one to two seconds of work, unless they are large."""

TASK_BYTES = 128 << 20
"""Bytes of them."""

_LEAST = 20_000
"""Messages below which another task costs more than they do."""


def readings(window: Window, at_once: int, slots: int, whole: Collection[str]) -> list[Window]:
    """What each task reads of a window; several that read one partition follow each other.

    Args:
        window: The window.
        at_once: Messages of a task at the most.
        slots: Tasks that run at once.
        whole: Topics whose partitions must not be parted.
    """
    most = max(1, min(at_once, max(_LEAST, -(-window.messages // slots))))
    found: list[Window] = []
    thin: dict[TopicPartition, OffsetRange] = {}
    messages = 0
    for place, span in sorted((place, span) for place, span in window.ranges.items() if len(span)):
        if len(span) > most // 2:
            parts = [span] if place.topic in whole else _parts(span, most)
            found += [Window({place: part}) for part in parts]
            continue
        if messages + len(span) > most:
            found.append(Window(thin))
            thin, messages = {}, 0
        thin[place] = span
        messages += len(span)
    return [*found, Window(thin)] if thin else found


def _parts(span: OffsetRange, most: int) -> Iterator[OffsetRange]:
    """Parts of a span of about equal length."""
    count = -(-len(span) // most)
    ends = [span.start + len(span) * number // count for number in range(count + 1)]
    return map(OffsetRange, ends[:-1], ends[1:])
