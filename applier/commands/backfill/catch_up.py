"""Applies a range to tables that are behind: skips what they have, and applies what lies beyond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.commands.backfill.bounds import Range
from applier.commands.backfill.drive import Driver
from applier.commands.backfill.report import STOPPED, Outcome
from applier.errors import RangeRefused
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.schema_changes.fixed_columns import FixedColumns
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.pipeline.table_selection import rules_for

_GO_ON = "start `applier run -c FILE`, or leave out --tables; nothing is applied twice."


def covered(span: OffsetRange, next_offset: int) -> int:
    """How many offsets of a range are applied already."""
    return len(OffsetRange(span.start, min(span.end, next_offset)))


def refuse_gap(span: Range, next_offsets: Mapping[TopicPartition, int], resolved_ts: int) -> None:
    """Refuse a range that begins beyond what the tables cover: what lies between would never be applied.

    Offsets to read next and resolved ts are those of the checkpoint; the latter is 0 for a feed in offset order.

    Raises:
        RangeRefused: With the offsets, or the time, that would be left out.
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


def begin_at(state: State, span: Range) -> None:
    """Let a changefeed that has read nothing yet begin with a range, for tables that were loaded before."""
    if not state.checkpoint.partitions:
        readings = {place: Reading(start, None) for place, (start, _) in span.spans.items()}
        state.advance(span.above, readings, {}, {}, ())


def catch_up(pipeline: Pipeline, span: Range, names: Sequence[TableName], driver: Driver) -> Outcome:
    """Apply what a range holds beyond what the tables cover.

    With all tables the checkpoint goes along. With some, these are ahead of it afterwards, as after a step that failed
    half way, and `run` leaves out what they have. No names mean all tables.

    Raises:
        RangeRefused: Rows would be left out, or a DDL of a single table is in the way.
    """
    state = pipeline.state
    begin_at(state, span)
    refuse_gap(span, state.next_offsets, state.resolved_ts)
    before, start = state.resolved_ts, dict(state.next_offsets)
    moving = replace(pipeline, scanner=replace(pipeline.scanner, ceiling=span.upto))
    if names:
        moving = _alone(moving, names)
    ends = {place: max(end, start.get(place, end)) for place, end in span.ends.items()}
    has_watermark = pipeline.targets.feed.order.has_watermark
    is_done = driver.drive(lambda: moving.step(ends), lambda: has_watermark and moving.state.resolved_ts >= span.upto)
    skipped = sum(covered(offsets, start.get(place, offsets.start)) for place, offsets in span.spans.items())
    return Outcome([_said(span, skipped, before, moving, is_done=is_done)], is_done=is_done)


def _said(span: Range, skipped: int, before: int, pipeline: Pipeline, *, is_done: bool) -> str:
    after = pipeline.state.resolved_ts
    read = f"Of {span.messages:,} messages in the range {span.text}, {skipped:,} were applied before."
    if pipeline.targets.feed.order.has_watermark:
        moved = f"The tables went from resolved ts {before} to {after}."
        read += f" {moved}" if after > before else f" The tables stay at resolved ts {before}."
    elif is_done:
        read += " The others are applied now."
    return read if is_done else f"{read} {STOPPED}"


@dataclass(frozen=True, slots=True)
class _RowsBeforeDdl(FixedColumns):
    """Lets rows through up to the first DDL of the chosen tables: a DDL is for all tables at once."""

    names: frozenset[TableName]

    def apply(self, ddl: Ddl) -> None:
        """Refuse a DDL of these tables; others do not matter.

        Raises:
            RangeRefused: It is one of theirs.
        """
        mine = [name for name in ddl.names if name in self.names]
        if mine:
            what = f"Table {mine[0]} is applied up to its DDL at commit ts {ddl.commit_ts}, which waits for all tables."
            raise RangeRefused(what, _GO_ON)


def _alone(pipeline: Pipeline, names: Iterable[TableName]) -> Pipeline:
    """The same pipeline for some tables, with progress that is kept by their stamps alone."""
    state = pipeline.state
    # The tables that are left out have not come that far.
    muted = State(state.control, state.checkpoint, dict(state.versions), lives=state.lives, is_durable=False)
    rules = rules_for(names)
    tables = pipeline.config.tables.model_copy(update={"include": rules})
    changefeed = pipeline.config.changefeed.model_copy(update={"on_table_error": "stop"})
    config = pipeline.config.model_copy(update={"tables": tables, "changefeed": changefeed})
    scanner = replace(pipeline.scanner, template=replace(pipeline.scanner.template, include=rules), parks=False)
    applier = DdlApplier(pipeline.targets, muted, config.ddl, config.tables, pipeline.targets.maker.rules)
    rows = _RowsBeforeDdl(applier, muted, _GO_ON, frozenset(names))
    alone = replace(pipeline, config=config, scanner=scanner, state=muted, ddl_handler=rows)
    alone.restore()
    return alone
