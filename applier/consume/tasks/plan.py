"""Parts the messages of a window among tasks: thin partitions together, thick ones by offset where that is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from applier.changefeed.packing import packed
from applier.changefeed.window import OffsetRange, Window

TASK_MESSAGES = 250_000
"""Messages of a task at the most: one to two seconds of work, unless they are large."""

TASK_BYTES = 128 << 20
"""Bytes of them."""

_LEAST = 20_000
"""Messages below which another task costs more than they do."""


def readings(window: Window, at_once: int, slots: int, whole: Collection[str]) -> list[Window]:
    """What each task reads of a window; several that read one partition follow each other.

    A task reads `at_once` messages at the most; `slots` of them run at once. Partitions of topics that are read `whole`
    must not be parted.
    """
    most = max(1, min(at_once, max(_LEAST, -(-window.messages // slots))))
    spans = sorted((place, span) for place, span in window.ranges.items() if len(span))
    thick = [(place, span) for place, span in spans if len(span) > most // 2]
    thin = [(place, span) for place, span in spans if len(span) <= most // 2]
    parts = ((place, part) for place, span in thick for part in _parts(span, most, is_whole=place.topic in whole))
    packs = packed(thin, lambda item: len(item[1]), most)
    return [*(Window({place: part}) for place, part in parts), *(Window(dict(pack)) for pack in packs)]


def _parts(span: OffsetRange, most: int, *, is_whole: bool) -> Iterator[OffsetRange]:
    """Parts of a span of about equal length; one that is whole."""
    count = 1 if is_whole else -(-len(span) // most)
    ends = [span.start + len(span) * number // count for number in range(count + 1)]
    return map(OffsetRange, ends[:-1], ends[1:])
