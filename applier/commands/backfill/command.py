"""Command `backfill`: a bounded range of the changefeed, applied once more or for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from applier.changefeed.checkpoint import Cut
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.commands.backfill.dead_letters import opened
from applier.commands.backfill.held_job import build, refuse_parked, refuse_short
from applier.commands.backfill.report import STOPPED, Outcome
from applier.commands.backfill.request import Bound, Range, Request, resolve
from applier.commands.dead_letters import end_letters, place_of
from applier.commands.follower import Driver
from applier.commands.plan.read_only_pipeline import looking
from applier.config.settings import Config
from applier.consume.source import Source
from applier.errors import ConfigError, RangeRefused
from applier.order.feed_order import ORDERS
from applier.pipeline import topics
from applier.pipeline.build import assembled
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.pipeline.table_selection import selected
from applier.runtime import terminal
from applier.runtime.figures import counted
from applier.runtime.logs import Report
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals


def backfill(config: Config, request: Request, *, take_over: bool, report: Report) -> Outcome:
    """Do what was asked for; `report` gets the status line of each step.

    Raises:
        ConfigError: The range or the tables make no sense.
        CheckpointConflict: Another applier holds the changefeed.
        TransientError: Something outside did not answer for five minutes.
        TerminalError: The range cannot be applied; what came before is.
    """
    # A table that is compacted while its branch is built would not take the branch.
    config = config.model_copy(update={"maintenance": config.maintenance.model_copy(update={"tasks": ()})})

    def meant(state: State, source: Source) -> tuple[Range, list[TableName]] | None:
        return None if request.dead_letters else _meant(config, state, source, request)

    holding = assembled(config, take_over=take_over, look=meant)
    with stop_signals(config.run.stop_seconds) as stop, holding as pipeline:
        driver = Driver(stop, report)
        with terminal.waiting("asking the source for the range"):
            found = meant(pipeline.state, pipeline.source)
        if found is None:
            return make_up(pipeline, request, driver)
        span, names = found
        if request.builds:
            return build(pipeline, request, span, names, driver)
        return catch_up(pipeline, span, driver)


def planned(config: Config, request: Request) -> Outcome:
    """Show what `backfill` would read and write, touching nothing; raises what it would refuse."""
    with looking(config) as pipeline:
        state, said = pipeline.state, []
        if request.dead_letters:
            letters = opened(pipeline, request, _all(config, state))
            span, names, said = letters.span, list(letters.names), list(letters.said)
        else:
            span, names = _meant(config, state, pipeline.source, request)
        if request.builds and names:
            refuse_short(pipeline, request, span, names)
        spans = [
            (str(place), *offsets, covered(offsets, state.next_offsets.get(place, offsets.start)))
            for place, offsets in sorted(span.spans.items())
        ]
        target = f"branch {request.branch}" if request.builds else "main"
        aims = [_aim(pipeline, name, target) for name in (names if request.builds else names or _all(config, state))]
        return Outcome([*said, _told(request, span, sum(row[3] for row in spans))], spans, aims)


def make_up(pipeline: Pipeline, request: Request, driver: Driver) -> Outcome:
    """Apply what dead letters left out, and take note of that; see `backfill` for the errors."""
    letters = opened(pipeline, request, _all(pipeline.config, pipeline.state))
    left = len(letters.said)
    if not letters.ready:
        return Outcome([*letters.said, "There is no dead letter that can be made up for."], left=left)
    begin = Bound(f"{len(letters.ready)} dead letters since {place_of(letters.ready[0])}")
    outcome = build(pipeline, replace(request, begin=begin), letters.span, letters.names, driver)
    if outcome.is_done:
        end_letters(pipeline, letters.ready)
        outcome.sentences.append(f"{len(letters.ready)} dead letters are made up for.")
    outcome.sentences[:0] = letters.said
    outcome.left = left
    return outcome


def _told(request: Request, span: Range, done: int) -> str:
    covered = f"Of {counted(span.messages, 'message')}, {counted(done, 'is', 'are')}"
    if not request.builds:
        return f"{covered} covered and skipped. Nothing was touched."
    shown = "is then shown to readers" if request.publish else "is then compared with what readers see"
    return f"{covered} covered and applied again to a branch, which {shown}. Nothing was touched."


def from_archive(config: Config, archive: str | None) -> Config:
    """The configuration with a folder of recorded messages as its source; as it is without one."""
    if archive is None:
        return config
    if config.source.storage is not None:
        what = "--archive holds messages of a topic, and the feed is one of files."
        raise ConfigError([f"{what} Leave it out: [source.storage] keeps all of them."])
    source = config.source.model_copy(update={"archive": archive, "kafka": None})
    return config.model_copy(update={"source": source})


def _meant(config: Config, state: State, source: Source, request: Request) -> tuple[Range, list[TableName]]:
    """The range, and the tables that are chosen; () for all tables where none are built.

    Raises:
        ConfigError: They make no sense.
        RangeRefused: Rows would be left out, or be applied to some tables alone.
    """
    span = _range(config, state, source, request)
    names = selected(request.tables, _all(config, state)) if request.tables or request.builds else []
    if not request.builds:
        refuse_parked(state, names)
        if state.checkpoint.partitions:
            refuse_gap(span, state.next_offsets, state.resolved_ts)
        if names:
            refuse_alone(span, state)
    return span, names


def _range(config: Config, state: State, source: Source, request: Request) -> Range:
    by_time = request.begin.resolved_ts is not None or request.end.resolved_ts is not None
    if by_time and not ORDERS[config.changefeed.order].has_watermark:
        what = "The feed is in offset order and carries no watermark: give --from and --to as offsets."
        raise ConfigError([what])
    topics.meet(state, with_retry(source.topic_ids))
    return resolve(request.begin, request.end, source, with_retry(source.bounds))


def _all(config: Config, state: State) -> list[TableName]:
    admits = config.filter.admits
    return sorted(name for name in state.tables if admits(name))


def _aim(pipeline: Pipeline, name: TableName, target: str) -> tuple[str, str, str, str]:
    targets = pipeline.targets
    covers = targets.applied_ts(name) if targets.feed.order.has_watermark else None
    shown = "" if covers is None else str(max(covers, pipeline.state.resolved_ts))
    return str(name), ".".join(targets.identifier(name)), target, shown


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
        state.advance(span.above, readings, Cut(), {}, ())
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
