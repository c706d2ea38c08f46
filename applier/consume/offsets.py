"""Which offsets to read next: from the checkpoint's next offsets to explicit ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from applier import wording
from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.errors import SourceLost


def next_window(
    next_offsets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, OffsetRange],
    limit: int,
    least: Mapping[TopicPartition, int] | None = None,
    whole: Collection[str] = (),
    share: int = 1 << 62,
) -> Window:
    """The next window, of `limit` messages at the most.

    A backlog larger than `limit` is cut in proportion to what each partition has left, so that all of them advance
    through about the same time: the watermark is the minimum, and the partition that got least would hold it back.

    Of a partition of a topic that is read `whole`, as one task has to take it all, it has a `share` at the most.

    Partitions that `next_offsets` lacks start at their first offset. Each partition with a backlog gets one message at
    least, and reaches its end in `least` all the same, as far as the source does.

    Raises:
        SourceLost: Offsets that are to be read next were deleted, or lie beyond the end.
    """
    todo = {}
    for partition, span in bounds.items():
        start = next_offsets.get(partition, span.start)
        _check(partition, start, span)
        if span.end > start:
            todo[partition] = OffsetRange(start, span.end)
    missing = sorted(partition for partition, offset in next_offsets.items() if partition not in bounds and offset > 0)
    if missing:
        raise SourceLost(f"The source no longer has partition {missing[0]}.", _LOST_HINT)
    backlog = sum(len(span) for span in todo.values())
    if largest := max((len(span) for place, span in todo.items() if place.topic in whole), default=0):
        limit = min(limit, share * backlog // largest)
    if backlog <= limit:
        return Window(todo)
    shares = {p: s.start + max(1, len(s) * limit // backlog) for p, s in todo.items()}
    reached = {p: min(end, todo[p].end) for p, end in (least or {}).items() if p in todo}
    return Window({p: OffsetRange(s.start, max(shares[p], reached.get(p, 0))) for p, s in todo.items()})


_LOST_HINT = (
    "if the topic was recreated or its retention is too short, load the tables again and start a changefeed under a "
    "new name; a cold copy of the messages can be replayed from an archive."
)


def _check(partition: TopicPartition, start: int, span: OffsetRange) -> None:
    if start < span.start:
        what = f"Offsets {start} to {span.start - 1} of {partition} are needed next, but were deleted from the source."
        raise SourceLost(what, _LOST_HINT)
    if start > span.end:
        what = f"Offset {start} of {partition} is needed next, but it ends at {span.end}: the topic is another one."
        raise SourceLost(what, _LOST_HINT)


def remade(known: Mapping[str, str], found: Mapping[str, str], next_offsets: Mapping[TopicPartition, int]) -> list[str]:
    """Topics that were recreated: their ids are not the known ones.

    A topic may be another one if it was never read from, or if the source does not show its id.
    """
    begun = {place.topic for place, offset in next_offsets.items() if offset > 0}
    return sorted(topic for topic in begun & known.keys() & found.keys() if known[topic] != found[topic])


def refuse_remade(
    known: Mapping[str, str], found: Mapping[str, str], next_offsets: Mapping[TopicPartition, int]
) -> None:
    """Refuse, by SourceLost, what `remade` names: its offsets count other messages, unless it is a mirror."""
    for topic in remade(known, found, next_offsets):
        what = (
            f"Topic {topic} was recreated: its id is {found[topic]}, and {known[topic]} is the one that was read "
            f"up to the checkpoint."
        )
        hint = (
            "if it is a mirror that keeps every message at its offset, start once with `applier run -c FILE "
            "--accept-remade-topics`; else load the tables again and start a changefeed under a new name."
        )
        raise SourceLost(what, hint)


def missing(window: Window, read: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets of a window held no message, by partition, where any did; `read` counts the messages."""
    counts = {place: len(span) - read.get(place, 0) for place, span in sorted(window.ranges.items())}
    return {place: count for place, count in counts.items() if count > 0}


def refuse_missing(window: Window, empty: Mapping[TopicPartition, int]) -> None:
    """Refuse, by SourceLost, a window with offsets that hold no message, as `missing` counts them.

    TiCDC gives each offset a message, so rows may be lost.
    """
    for place, count in empty.items():
        start, end = window.ranges[place]
        what = f"{count} of the offsets {start} to {end - 1} of {place} hold no message: rows may be lost."
        hint = (
            "if the topic is compacted, set its cleanup.policy to delete, load the tables again and start a changefeed "
            "under a new name; if a producer with transactions wrote it, as some mirrors do, its markers take offsets: "
            'set source.missing_offsets = "pass".'
        )
        raise SourceLost(what, hint)


def refuse_gaps(changefeed: str, catalog: str, bounds: Mapping[TopicPartition, OffsetRange]) -> None:
    """Refuse, by SourceLost, to read a feed from its beginning, without a checkpoint, if its first messages are gone.

    Whether the tables have them is unknown.
    """
    trimmed = [f"{place} begins at offset {span.start}" for place, span in sorted(bounds.items()) if span.start > 0]
    if trimmed:
        what = (
            f"The control table applier_{changefeed}.checkpoints is lost, and messages that the tables may lack are "
            f"gone: {', '.join(trimmed[:10])}."
        )
        again = wording.register(catalog, f"applier_{changefeed}.checkpoints")
        way_out = f"{again}, and start again; or load the tables again, for a changefeed under another name."
        raise SourceLost(what, way_out)


def capped(
    bounds: Mapping[TopicPartition, OffsetRange], ends: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, OffsetRange]:
    """Bounds up to the requested ends, without the partitions that have none yet."""
    if ends is None:
        return dict(bounds)
    return {p: OffsetRange(span.start, min(span.end, ends[p])) for p, span in bounds.items() if p in ends}
