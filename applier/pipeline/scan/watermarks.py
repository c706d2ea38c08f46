"""The watermark of a window, over the topics that still have tables; found before any row is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from applier.changefeed.event import Resolved
from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import WindowTooLargeError
from applier.decode.decoder import Decoder
from applier.errors import DecodeError
from applier.order.barrier import in_order
from applier.pipeline.scan.statements import Ddl, read_all
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.scan.window_tables import spelling
from applier.pipeline.state import State

TAIL_MESSAGES = 50
"""Messages at the end of a partition's range that are searched first for a resolved ts; TiCDC sends one a second."""

_WIDER = 4
"""How many times as far back each search goes as the one before. The row pass reads all of it again, but each search is
one more question to the brokers."""


def resolved_near_ends(
    window: Window, read: Callable[[Window], Messages], decoder: Callable[[], Decoder]
) -> dict[TopicPartition, int]:
    """A resolved ts near the end of each partition's range; the search widens until one is found."""
    resolved: dict[TopicPartition, int] = {}
    size = TAIL_MESSAGES
    silent = dict(window.ranges)
    while silent:
        tails = Window(silent).tail(size)
        try:
            resolved |= resolved_in(read(tails), decoder())
        except WindowTooLargeError:
            return resolved  # The row pass meets the others, and is run again with the watermark that they make.
        ahead = {p: OffsetRange(span.start, tails.ranges[p].start) for p, span in silent.items() if p not in resolved}
        silent = {p: span for p, span in ahead.items() if len(span)}
        size *= _WIDER
    return resolved


def resolved_in(messages: Messages, decoder: Decoder, *, is_first: bool = False) -> dict[TopicPartition, int]:
    """The last, or the first, resolved ts of each partition among messages, sought from that end: few are decoded.

    What cannot be decoded is the row pass's to report, and so is a higher one before it: TiCDC may have gone back.
    """
    resolved: dict[TopicPartition, int] = {}
    step, choose = (1, min) if is_first else (-1, max)
    for place, table in messages.items():
        for key, value in zip(*(table[name].to_pylist()[::step] for name in ("key", "value")), strict=True):
            with suppress(DecodeError):
                found = [event.resolved_ts for event in decoder.decode(key, value) if isinstance(event, Resolved)]
                if found:
                    resolved[place] = choose(found)
                    break
    return resolved


def mark(found: WindowScan, state: State) -> int | None:
    """The watermark of a window; None while a partition in use has no resolved ts."""
    retired = set[str]() if found.is_shown else _retired(found, state)
    used = [place for place in found.ends if place.topic not in retired]
    if not used or any(place not in found.resolved for place in used):
        return None
    return min(found.resolved[place] for place in used)


def _retired(found: WindowScan, state: State) -> set[str]:
    """Topics that get no more watermarks, as no table of theirs is left; also those of views, which never get any.

    Rows of such a topic cannot follow, and a table that is made there later begins with a message of its own. A topic
    still counts while there is more of it to read, and while its watermarks run ahead, as those of the default topic
    do. TiCDC sends a watermark only after all that it covers has arrived: what was not there when the newest of the
    other topics' watermarks was seen is above it.
    """
    topics = {**state.topics, **found.topics}
    live = set(_live(topics, found, state).values())
    emptied: dict[str, int] = {}
    for barrier in found.results.barriers:
        emptied[barrier.topic] = max(barrier.change.commit_ts, emptied.get(barrier.topic, 0))
    counting = {
        place.topic
        for place, end in found.ends.items()
        if place.topic in live
        or (place in found.planned and found.window.ranges.get(place, OffsetRange(0, 0)).end < end)
        or found.resolved.get(place, 0) > max(emptied.get(place.topic, 0), state.resolved_ts)
    }
    return {place.topic for place in found.ends} - counting if counting else set()


def _live(topics: Mapping[TableName, str], found: WindowScan, state: State) -> dict[TableName, str]:
    """Topic of each table that is there after all DDL read so far, those above the watermark included.

    One whose name may be left upstream counts by what the window has of it alone: such a topic may get nothing more.
    """
    there = set(state.declared) - state.misnamed
    barriers = in_order(found.results.barriers, state.resolved_ts, state.ddl.applied)
    due = read_all(barriers, spelling(found, state)) if barriers else []
    brought = {name for ddl in due for name in ddl.brought}
    here = there | found.topics.keys() - (_sent_again(found, state) - there - brought)
    live = {name: topic for name, topic in topics.items() if name in here}
    for ddl in due:
        for done in ddl.effects:
            renamed = [to for _, to in done.moved if live.get(to) == ddl.barrier.topic]
            for name in [*done.leaving(live), *renamed]:
                live.pop(name, None)
            live |= dict.fromkeys(done.created, ddl.barrier.topic)
        for name in ddl.misnamed:
            live.pop(name, None)
    return live


def _sent_again(found: WindowScan, state: State) -> set[TableName]:
    """Names that tables have left by DDL which are applied, and which a restart of TiCDC has sent again."""
    past = [item for item in found.results.barriers if item.change.commit_ts <= state.resolved_ts]
    if not past:
        return set()
    names = spelling(found, state)
    done = [each for barrier in past for each in Ddl.of(barrier, names).effects]
    return {name for each in done for name in each.leaving(list(found.topics))}
