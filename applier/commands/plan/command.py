"""Command `plan`: what the next step of `run` would do. It writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.commands.plan.read_only_pipeline import looking
from applier.commands.plan.report import DdlDue, SpanDue, StepPlan, TableAside, TableDue
from applier.config.settings import Config
from applier.ddl import actions as say
from applier.ddl.actions import kind, touches
from applier.ddl.schema_tracker import Tables
from applier.errors import ApplierError, SchemaChangeRefused
from applier.pipeline.scan.next_step import NextStep
from applier.pipeline.schema_changes.statements import Ddl
from applier.pipeline.stall import held_back
from applier.pipeline.step import Pipeline
from applier.runtime.logs import Stopwatch
from applier.runtime.retry import with_retry
from applier.sink.evolve import plan as evolution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(config: Config, *, spark: SparkSession | None = None) -> StepPlan:
    """What the next step of `run` would do.

    Args:
        config: The configuration.
        spark: A running session to use instead of a new one.

    Raises:
        TransientError: Something outside did not answer for five minutes.
        TerminalError: The step could not even be planned, for the reason for which `run` would stop.
    """
    with looking(config, spark=spark) as pipeline:
        return described(pipeline, with_retry(lambda: pipeline.look(None, Stopwatch())))


def described(pipeline: Pipeline, found: NextStep) -> StepPlan:
    """A look at the next window as a plan."""
    scan, state = found.scan, pipeline.state
    ordered = pipeline.scanner.ordered
    moves = scan.upto is not None and (not ordered or scan.upto > state.resolved_ts)
    counts = {name: scan.results.counts.get(name, 0) for name in ("rows", "replayed", "left", "excluded")}
    return StepPlan(
        changefeed=pipeline.config.changefeed.name,
        step=state.checkpoint.step,
        resolved_ts=state.resolved_ts if ordered else None,
        watermark=scan.upto if ordered and moves else None,
        messages=scan.results.counts.get("messages", 0),
        counts=counts,
        spans=_spans(found),
        tables=_tables(pipeline, found) if moves else (),
        ddl=_ddl(pipeline, scan.ddl, found.known.tables) if moves else (),
        waits=_waits(found),
        aside=_aside(pipeline),
    )


def _aside(pipeline: Pipeline) -> list[TableAside]:
    known, path = pipeline.state.completeness, pipeline.config.path
    return [
        TableAside(str(name), item.state, item.sentence(name), item.way_out(name, path))
        for name, item in sorted(known.items())
        if not item.is_live
    ]


def _spans(found: NextStep) -> list[SpanDue]:
    return [
        SpanDue(*place, span.start, span.end, found.bounds[place].end - span.end)
        for place, span in sorted(found.scan.window.ranges.items())
    ]


def _tables(pipeline: Pipeline, found: NextStep) -> list[TableDue]:
    rows: dict[TableName, list[int]] = {}
    for (name, _), parts in found.scan.results.parts.items():
        rows.setdefault(name, []).append(sum(part.rows.num_rows for part in parts))
    targets = pipeline.targets
    return [
        TableDue(str(name), ".".join(targets.identifier(name)), sum(parts), len(parts), targets.writer(name) is None)
        for name, parts in sorted(rows.items())
    ]


def _waits(found: NextStep) -> str:
    scan = found.scan
    if scan.error is not None:
        return f"It ends before a message that cannot be used: {scan.error}"
    silent = sorted(place for place in found.known.ends if place not in scan.resolved)
    return held_back(scan.waiting, silent if scan.upto is None else ())


def _ddl(pipeline: Pipeline, ddl: Sequence[Ddl], tables: Tables) -> list[DdlDue]:
    """Each DDL with what would be decided on it, as far as that can be determined without the rows."""
    after = tables.copy()
    due = []
    for change in ddl:
        kinds = tuple(dict.fromkeys(kind(action) for action in change.actions))
        decision, reason = _decided(pipeline, change, kinds, after)
        barrier = change.barrier.change
        due.append(DdlDue(barrier.commit_ts, barrier.sql, tuple(map(str, change.names)), kinds, decision, reason))
        for action in change.actions:
            after.apply(action, barrier.commit_ts)
        if barrier.after is not None and barrier.after.name in after:
            after.put(barrier.after)
    return due


def _decided(pipeline: Pipeline, change: Ddl, kinds: Sequence[str], tables: Tables) -> tuple[str, str]:
    config = pipeline.config
    if change.names and not any(map(TableFilter(config.tables.include).admits, change.names)):
        return "ignore", "left out by tables.include"
    policies: Mapping[str, str] = config.ddl
    for policy in ("stop", "ignore"):
        if policy in {policies.get(name) for name in kinds}:
            return policy, "configured under [ddl]"
    try:
        refusal = _refusal(pipeline, change, tables)
    except ApplierError as error:
        refusal = error.what
    return ("refuse", refusal) if refusal else ("apply", "")


def _refusal(pipeline: Pipeline, change: Ddl, tables: Tables) -> str:
    """Why the columns of a table cannot follow, or ""."""
    actions = [action for action in change.actions if isinstance(action, say.ColumnAction)]
    name = touches(actions[0])[0] if actions else None
    before = tables.get(name) if name else None
    if name is None or before is None:
        return ""
    later = tables.copy()
    for action in actions:
        later.apply(action, change.commit_ts)
    after = change.barrier.change.after or later.get(name)
    if after is None:
        raise SchemaChangeRefused(f"What table {name} is after the statement is not known.")
    steps = evolution.plan(before, after, actions, pipeline.targets.maker.rules)
    if steps.refused is not None:
        return steps.refused.reason
    return f"unless the table is empty: {steps.only_empty[0].reason}" if steps.only_empty else ""
