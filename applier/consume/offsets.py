"""Which offsets to read next: from the checkpoint's next offsets to explicit ends."""

from __future__ import annotations

from collections.abc import Mapping

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.errors import SourceLost


def next_window(
    next_offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, OffsetRange], limit: int
) -> Window:
    """The next window.

    A backlog larger than `limit` is cut in proportion to what each partition has left, so that all of them advance
    through about the same time: the watermark is the minimum, and the partition that got least would hold it back.

    Args:
        next_offsets: Offset to read next per partition; partitions that are not in it start at their first offset.
        bounds: What the source has.
        limit: Messages at the most, save that each partition with a backlog gets one at least.

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
    if backlog <= limit:
        return Window(todo)
    return Window({p: OffsetRange(s.start, s.start + max(1, len(s) * limit // backlog)) for p, s in todo.items()})


_LOST_HINT = (
    "if the topic was made anew or its retention is too short, load the tables again and start a changefeed under a "
    "new name; a cold copy of the messages can be replayed from an archive."
)


def _check(partition: TopicPartition, start: int, span: OffsetRange) -> None:
    if start < span.start:
        what = f"Offsets {start} to {span.start - 1} of {partition} are needed next, but were deleted from the source."
        raise SourceLost(what, _LOST_HINT)
    if start > span.end:
        what = f"Offset {start} of {partition} is needed next, but it ends at {span.end}: the topic is another one."
        raise SourceLost(what, _LOST_HINT)


def refuse_gaps(changefeed: str, bounds: Mapping[TopicPartition, OffsetRange]) -> None:
    """Refuse to read a feed from its beginning, for lack of a checkpoint, unless it is all there.

    Raises:
        SourceLost: The first messages of a partition were deleted, so nobody can tell whether the tables have them.
    """
    trimmed = [f"{place} begins at offset {span.start}" for place, span in sorted(bounds.items()) if span.start > 0]
    if trimmed:
        what = (
            f"The control table applier_{changefeed}.checkpoints is lost, and messages that the tables may lack are "
            f"gone: {', '.join(trimmed[:10])}."
        )
        way_out = (
            "Register checkpoints again from its last metadata file (system.register_table), which dropping it without "
            "purge leaves in storage; or load the tables again and start a changefeed under another name."
        )
        raise SourceLost(what, way_out)
