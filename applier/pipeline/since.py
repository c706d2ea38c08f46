"""Finds where a source is read from so that nothing above a commit ts is missed, and proves that it still has that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.ts import CLOCK_SKEW_MS, unix_ms, wall_clock
from applier.changefeed.window import OffsetRange, Window
from applier.consume.source import Source
from applier.consume.window_size import WindowTooLargeError
from applier.errors import EXPORT, SourceLost
from applier.pipeline.scan.watermarks import resolved_in, resolved_near_ends

if TYPE_CHECKING:
    from applier.decode.decoder import Decoder

_MESSAGES = 2_000
"""First messages of a partition that are searched for a resolved ts: TiCDC sends one a second."""


def since(source: Source, ts: int, decoder: Decoder | None) -> dict[TopicPartition, Reading]:
    """Where each partition is read from, so that nothing above a commit ts is missed.

    A partition that has lost its first messages must still have a message that is older than the commit ts, by the
    clock of its records or by its own watermark. One that has its very first message has all that TiCDC ever sent. An
    archive, which has no `decoder`, holds what its maker chose: that is taken for all that is needed.

    Raises:
        SourceLost: Nothing proves that the source still has everything above it.
        TransientError: The source does not answer.
    """
    bounds = source.bounds()
    found = sent_since(source, ts)
    starts = {place: max(found.get(place, span.start), span.start) for place, span in bounds.items()}
    for place, span in bounds.items():
        if decoder is not None and starts[place] == span.start > 0:
            _prove(source, place, span, ts, decoder)
    return {place: Reading(at) for place, at in starts.items()}


def sent_since(source: Source, ts: int) -> Mapping[TopicPartition, int]:
    """The first offset of each partition that may hold a commit ts: what was sent before its commit cannot."""
    return source.offsets_at(max(0, unix_ms(ts) - CLOCK_SKEW_MS))


def _prove(source: Source, place: TopicPartition, span: OffsetRange, ts: int, decoder: Decoder) -> None:
    first = first_resolved(source, place, span, decoder)
    if first is not None and first <= ts:
        return
    if first is None:
        what = f"Nothing shows that {place} still holds the messages since resolved ts {ts}."
    else:
        what = (
            f"{place} begins at resolved ts {first} ({wall_clock(first):%F %T} UTC), after {ts} "
            f"({wall_clock(ts):%F %T} UTC): the messages between them are gone."
        )
    hint = f"Export the tables again with `{EXPORT}`, and load them while the topic keeps its messages."
    raise SourceLost(what, hint)


def first_resolved(source: Source, place: TopicPartition, span: OffsetRange, decoder: Decoder) -> int | None:
    """The first resolved ts of a partition, as far as it is looked for."""
    if not len(span):
        return None
    with suppress(WindowTooLargeError):
        return resolved_in(source.collect(Window({place: span}).head(_MESSAGES)), decoder, is_first=True).get(place)
    return None


def newest(source: Source, decoder: Callable[[], Decoder]) -> int | None:
    """The resolved ts that all partitions of some topic have come to; None where none has sent one.

    A topic whose tables were dropped stays behind for good: no export after that could be loaded.
    """
    if (shown := source.resolved({place: span.end for place, span in source.bounds().items()}, 0)) is not None:
        return max(shown.values(), default=None)
    spans = {place: span for place, span in source.bounds().items() if span.end > span.start}
    found = resolved_near_ends(Window(spans), source.collect, decoder) if spans else {}
    by_topic: dict[str, int] = {}
    for place, ts in found.items():
        by_topic[place.topic] = min(ts, by_topic.get(place.topic, ts))
    return max(by_topic.values(), default=None)
