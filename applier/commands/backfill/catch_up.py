"""Applies a range to tables that are behind: skips what they have, and applies what lies beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.window import OffsetRange
from applier.commands.backfill.report import STOPPED, Outcome
from applier.commands.backfill.request import Range
from applier.commands.follower import Driver
from applier.errors import RangeRefused
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.runtime.figures import counted
from applier.runtime.retry import with_retry


def covered(span: OffsetRange, next_offset: int) -> int:
    """How many offsets of a range are applied already."""
    return len(OffsetRange(span.start, min(span.end, next_offset)))


def refuse_gap(span: Range, next_offsets: Mapping[TopicPartition, int], resolved_ts: int) -> None:
    """Refuse, by RangeRefused, a range that begins beyond what the tables cover: what lies between would be lost.

    Offsets to read next and resolved ts are those of the checkpoint; the latter is 0 for a feed in offset order.
    """
    if span.above:
        if span.above > resolved_ts:
            what = f"Rows between resolved ts {resolved_ts}, where the tables are, and {span.above} would be left out."
            raise RangeRefused(what, "begin the range at or before that resolved ts.")
        return
    for place, (start, _) in sorted(span.spans.items()):
        due = next_offsets.get(place, start)
        if start > due:
            what = f"Offsets {due} to {start - 1} of {place}, which no table has applied yet, would be left out."
            raise RangeRefused(what, f"begin the range at or before offset {due} of {place}.")


def is_covered(span: Range, state: State) -> bool:
    """Whether the checkpoint covers all of a range: every table has its rows, or is parked."""
    due = state.next_offsets
    return span.upto <= state.resolved_ts or (
        bool(due) and all(end <= due.get(place, start) for place, (start, end) in span.spans.items())
    )


def refuse_alone(span: Range, state: State) -> None:
    """Refuse, by RangeRefused, rows that no table has for some tables: all tables have one checkpoint."""
    if not is_covered(span, state):
        what = "The range ends beyond the checkpoint, and what lies beyond it is applied to all tables at once."
        hint = "leave out --tables, or start `applier run -c FILE`; to apply again what the tables have, give --repair."
        raise RangeRefused(what, hint)


def catch_up(pipeline: Pipeline, span: Range, driver: Driver) -> Outcome:
    """Apply what a range holds beyond the checkpoint, which goes along; raises TerminalError where that cannot be."""
    state = pipeline.state
    has_watermark = pipeline.targets.feed.order.has_watermark
    if is_covered(span, state):
        stay = f" The tables stay at resolved ts {state.resolved_ts}." if has_watermark else ""
        return Outcome([f"All of the range {span.text} was applied before.{stay}"])
    if not state.checkpoint.partitions:
        # It has read nothing yet, and begins with the range, for tables that were loaded before.
        readings = {place: Reading(start, None) for place, (start, _) in span.spans.items()}
        state.advance(span.above, readings, {}, {}, ())
    before, start = state.resolved_ts, dict(state.next_offsets)
    pipeline.use_scanner(replace(pipeline.scanner, ceiling=span.upto))
    ends = {place: max(end, start.get(place, end)) for place, end in span.ends.items()}
    is_done = driver.drive(
        lambda: with_retry(lambda: pipeline.step(ends)), lambda: has_watermark and state.resolved_ts >= span.upto
    )
    skipped = sum(covered(offsets, start.get(place, offsets.start)) for place, offsets in span.spans.items())
    return Outcome([_said(span, skipped, before, pipeline, is_done=is_done)], is_done=is_done)


def _said(span: Range, skipped: int, before: int, pipeline: Pipeline, *, is_done: bool) -> str:
    after = pipeline.state.resolved_ts
    known = counted(skipped, "was", "were")
    read = f"Of {counted(span.messages, 'message')} in the range {span.text}, {known} applied before."
    if pipeline.targets.feed.order.has_watermark:
        moved = f"The tables went from resolved ts {before} to {after}."
        read += f" {moved}" if after > before else f" The tables stay at resolved ts {before}."
    elif is_done:
        read += " The others are applied now."
    return read if is_done else f"{read} {STOPPED}"
