"""Command `plan`: what the next step of `run` would do. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from applier import wording
from applier.changefeed.event import SchemaChange
from applier.changefeed.fate import Fate
from applier.changefeed.table import TableName
from applier.commands.plan.read_only_pipeline import looking
from applier.commands.plan.report import DdlDue, LayoutDue, SpanDue, StepPlan, TableAside, TableDue
from applier.commands.plan.shaped_rows import shaped_rows
from applier.config.settings import Config
from applier.ddl.actions import Action, Alteration, NoRows, by_table, kind, touches
from applier.ddl.schema_tracker import Tables
from applier.errors import ApplierError, DdlStopped, SchemaChangeRefused
from applier.pipeline.next_step import NextStep
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.decision import DdlRules, Verdict
from applier.pipeline.schema_changes.track import altered
from applier.pipeline.stall import held_back
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import layouts
from applier.runtime.logs import Stopwatch
from applier.runtime.retry import with_retry
from applier.sink.control.rows import Decision
from applier.sink.evolve import plan as evolution


def plan(config: Config) -> StepPlan:
    """What the next step of `run` would do.

    Raises:
        TransientError: Something outside did not answer for five minutes.
        TerminalError: The step could not even be planned, for the reason for which `run` would stop.
    """
    with looking(config) as pipeline:
        scanner = pipeline.scanner
        pipeline.use_scanner(replace(scanner, template=replace(scanner.template, samples=True)))
        return described(pipeline, with_retry(lambda: pipeline.look(None, Stopwatch())))


def described(pipeline: Pipeline, found: NextStep) -> StepPlan:
    """A look at the next window as a plan."""
    scan, state = found.scan, pipeline.state
    order = pipeline.targets.feed.order
    moves = scan.upto is not None and scan.upto > state.resolved_ts
    after = state.declared.copy()
    ddl = _ddl(pipeline, scan.ddl, after) if moves else ()
    counts = {str(fate): scan.results.counts[fate] for fate in Fate if fate is not Fate.CONTROL}
    return StepPlan(
        changefeed=pipeline.config.changefeed.name,
        step=state.checkpoint.last_step,
        resolved_ts=order.as_of(state.resolved_ts),
        watermark=order.as_of(scan.upto) if moves else None,
        messages=scan.results.counts.get("messages", 0),
        counts=counts,
        spans=[
            SpanDue(*place, span.start, span.end, found.bounds[place].end - span.end)
            for place, span in sorted(scan.window.ranges.items())
        ],
        tables=_tables(pipeline, found) if moves else (),
        ddl=ddl,
        waits=_waits(found),
        aside=[
            TableAside(str(name), item.state, wording.sentence(name, item), pipeline.config.ways_out.of([name], item))
            for name, item in sorted(state.completeness.items())
            if not item.is_live
        ],
        layouts=[*_layouts(pipeline)],
        shapes=[*shaped_rows(pipeline, found, after)],
    )


def _layouts(pipeline: Pipeline) -> Iterator[LayoutDue]:
    state, targets, refused = pipeline.state, pipeline.targets, set[TableName]()
    gaps = chain(layouts.due(state, targets, pipeline.config.tables), layouts.unfit(state, targets))
    for name, table, change, refusal in gaps:
        if name in refused:
            continue
        note = ""
        if refusal is not None:
            refused.add(name)
            note = f"{refusal.what.rstrip('.')}. Hint: {pipeline.config.ways_out.of_error(refusal.hint, name)}"
        if change is not None:
            note = layouts.cost(table, change, targets.catalog.name)
        yield LayoutDue(str(name), str(table), str(change or ""), note)


def _tables(pipeline: Pipeline, found: NextStep) -> list[TableDue]:
    rows: dict[TableName, list[int]] = {}
    for (name, _), parts in found.scan.results.parts.items():
        rows.setdefault(name, []).append(sum(part.count for part in parts))
    targets = pipeline.targets
    return [
        TableDue(str(name), ".".join(targets.identifier(name)), sum(parts), len(parts), targets.writer(name) is None)
        for name, parts in sorted(rows.items())
    ]


def _waits(found: NextStep) -> str:
    scan = found.scan
    if scan.error is not None:
        return f"It ends before a message that cannot be used: {scan.error}"
    return held_back(scan.waiting, scan.silent)


def _ddl(pipeline: Pipeline, ddl: Sequence[Ddl], tables: Tables) -> list[DdlDue]:
    """Each DDL with what would be decided on it, as far as that can be determined without the rows.

    The tables are moved past them.
    """
    due = []
    for item in ddl:
        kinds = tuple(dict.fromkeys(kind(action) for action in item.actions))
        verdicts = list(_verdicts(pipeline, item, tables))
        verdict = min(verdicts, key=lambda found: _ORDER.index(found.decision), default=Verdict("applied"))
        word = "stop" if isinstance(verdict.refusal, DdlStopped) else _WORDS[verdict.decision]
        reason = verdict.ignored_for.words if verdict.ignored_for else verdict.refusal.what if verdict.refusal else ""
        due.append(DdlDue(item.commit_ts, item.barrier.change.sql, tuple(map(str, item.names)), kinds, word, reason))
    return due


_WORDS: Mapping[Decision, str] = {"refused": "refuse", "applied": "apply", "skipped": "skip", "ignored": "ignore"}
_ORDER = tuple(_WORDS)
"""Of the parts of a statement, the first of these counts: it is refused if one part is."""


def _verdicts(pipeline: Pipeline, ddl: Ddl, tables: Tables) -> Iterator[Verdict]:
    """What would be decided on each part of a DDL; the tables are moved past it."""
    config, state, change = pipeline.config, pipeline.state, ddl.barrier.change
    rules = DdlRules(config.ddl, config.filter)
    if ddl.refused is not None:
        yield rules.decide_unread(ddl, state.parked, state.ddl)
        tables.move(change, ())
    for group in by_table(ddl.actions):
        verdict = rules.decide(change, group, state.parked, state.ddl)
        try:
            refusal = _refusal(pipeline, change, group, tables) if verdict.decision == "applied" else None
            tables.move(change, group)
        except ApplierError as error:
            refusal = SchemaChangeRefused(error.what)
        yield Verdict("refused", refusal=refusal) if refusal else verdict


def _refusal(
    pipeline: Pipeline, change: SchemaChange, group: Sequence[Action], tables: Tables
) -> SchemaChangeRefused | None:
    if all(isinstance(action, NoRows) or not isinstance(action, Alteration) for action in group):
        return None
    before, after = tables.get(touches(group[0])[0]), altered(tables, change, group)
    if before is None or after is None:
        return None
    steps = evolution.plan(before, after, group, pipeline.targets.maker.rules)
    if steps.refused is not None:
        return SchemaChangeRefused(steps.refused.reason)
    if not steps.only_empty or (pipeline.config.asked and steps.may_be_asked(after.key)):
        return None
    return SchemaChangeRefused(f"unless the table is empty: {steps.only_empty[0].reason}")
