"""Builds copies of tables from a range, compares them with what readers see, and shows them on demand."""

from __future__ import annotations

from collections.abc import Sequence

from applier import wording
from applier.changefeed.table import TableName
from applier.commands.backfill.bounds import OPEN, Range
from applier.commands.backfill.compare import compare
from applier.commands.backfill.held_job import HeldJob, held
from applier.commands.backfill.report import STOPPED, Difference, Outcome
from applier.commands.backfill.request import Request
from applier.commands.drive import Driver
from applier.errors import ConfigError, RangeRefused
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.runtime import failpoints, terminal
from applier.runtime.figures import counted
from applier.runtime.retry import with_retry


def refuse_parked(state: State, names: Sequence[TableName], config: str) -> None:
    """Refuse, by RangeRefused, tables that lack DDL: rows alone do not make up for them."""
    parked = sorted(name for name in names if name in state.parked)
    if parked:
        what = (
            f"Table {parked[0]} is parked: the DDL since then are missing from it, which no range of rows makes up for."
        )
        raise RangeRefused(what, wording.way_out(parked[:1], state.completeness[parked[0]], config))


def refuse_short(main: Pipeline, request: Request, span: Range, names: Sequence[TableName]) -> None:
    """Refuse, before anything is read, a range of which nothing is covered (ConfigError), or that ends before what the
    tables have (RangeRefused).
    """
    state = main.state
    refuse_parked(state, names, main.config.path)
    ahead = sorted(name for name in names if name in state.ahead or name in state.unsettled)
    if ahead:
        what = f"Table {ahead[0]} is ahead of the checkpoint, as a step failed half way."
        raise RangeRefused(what, "finish it first, with `applier run -c FILE --once`.")
    if main.targets.feed.order.has_watermark and span.above >= state.resolved_ts:
        reached = state.resolved_ts
        what = (
            f"The range begins at {span.above}, beyond resolved ts {reached} of the tables: nothing is applied twice."
        )
        raise ConfigError([what])
    if not request.publish:
        return
    if span.upto != OPEN and span.upto < state.resolved_ts:
        raise _short(f"at resolved ts {span.upto}", f"resolved ts {state.resolved_ts}")
    for place, due in sorted(state.next_offsets.items()):
        if place in span.spans and span.spans[place].end < due:
            raise _short(f"at offset {span.spans[place].end} of {place}", f"offset {due}")


def _short(end: str, covered: str) -> RangeRefused:
    what = f"The range ends {end}, but the tables have what comes up to {covered}: older values would win."
    way_out = "let it end there or later; or look at what it gives, with --branch and without --publish."
    return RangeRefused(what, way_out)


def build(main: Pipeline, request: Request, span: Range, names: Sequence[TableName], driver: Driver) -> Outcome:
    """Build copies, compare them with their tables, and show them; raises RangeRefused where the result would be wrong.

    A process that is killed on the way goes on when the same is asked for again, unless the changefeed has moved on.
    """
    refuse_short(main, request, span, names)
    with terminal.waiting("copying the tables"):
        job = held(main, request, span, names)
    if not driver.drive(lambda: with_retry(job.step), job.is_over):
        return Outcome([STOPPED], is_done=False)
    job.refuse_short()
    failpoints.reach("range-built")
    differences: list[Difference] = []
    with terminal.progress("comparing the tables", "tables") as bar:
        for name in names:
            bar(len(differences), len(names))
            differences.append(_compared(job, name))
    count = counted(len(names), "table")
    built = f"The range {span.text} is built in branch {request.branch} of {count}."
    if not request.publish:
        for name in names:
            job.keep_in_branch(name)
        shown = f"--publish shows it; until then `VERSION AS OF '{request.branch}'` reads it."
        return Outcome([built, shown], differences=differences)
    _refuse_short_build(main, job, differences)
    with terminal.waiting("showing the tables to readers"):
        job.publish()
    return Outcome([built, "Readers see it now."], differences=differences)


def _compared(job: HeldJob, name: TableName) -> Difference:
    known, copy = job.main.state.tables.get(name), job.copy(name)
    identifier = job.main.targets.identifier(name)
    table = job.main.targets.catalog.load(identifier)
    return compare(".".join(identifier), table, copy, known.key if known else ())


def _refuse_short_build(main: Pipeline, job: HeldJob, differences: Sequence[Difference]) -> None:
    reached = job.run.state.resolved_ts
    is_behind = main.targets.feed.order.has_watermark and reached < main.state.resolved_ts
    if is_behind and not all(item.is_equal for item in differences):
        raise _short(f"at resolved ts {reached}", f"resolved ts {main.state.resolved_ts}")
