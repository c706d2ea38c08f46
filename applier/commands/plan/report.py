"""What the next step would do: nouns, JSON, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from applier.changefeed.fate import Fate
from applier.changefeed.history import SUFFIX
from applier.changefeed.ts import wall_clock
from applier.runtime.escaping import Text, escaped, grid
from applier.runtime.exact_json import dumps
from applier.runtime.figures import counted


@dataclass(frozen=True, slots=True)
class SpanDue:
    """Offsets of one partition that the step would read, `end` excluded; the source has `backlog` more."""

    topic: str
    partition: int
    start: int
    end: int
    backlog: int


@dataclass(frozen=True, slots=True)
class TableDue:
    """Rows of one table that the step would write, after each task has reduced its own.

    It makes a commit for each part between its DDL. A new table is not in the catalog yet.
    """

    upstream: str
    iceberg: str
    rows: int
    commits: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class DdlDue:
    """A DDL that the step would come to; the section `ddl` of the configuration names its kinds.

    It is decided `apply`, `ignore`, `skip`, `stop`, or `refuse`, with the reason where it is not plainly applied.
    """

    commit_ts: int
    sql: str
    tables: tuple[str, ...]
    kinds: tuple[str, ...]
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class TableAside:
    """A table that is not live: `incomplete` or `parked`, why, and how it becomes live again."""

    upstream: str
    state: str
    because: str
    way_out: str


@dataclass(frozen=True, slots=True)
class LayoutDue:
    """What the next start of `run` changes about how a table lies; its files stay as they are.

    The change is "" where the layout does not fit the table; the note says what it costs, or why it does not fit.
    """

    upstream: str
    iceberg: str
    change: str
    note: str


@dataclass(frozen=True, slots=True)
class ShapedRow:
    """The newest row of a table that the step would apply, where the configuration gives the table another shape.

    Attributes:
        before: The row as upstream has it, by column; None where the step applies no whole row of the table.
        hidden: Columns that are left out of `before`, as they are excluded or masked.
        after: The row as the Iceberg table would show it; None where it would not.
        changes: The row as the table of changes would show it; None without one.
        note: Why a part is missing, or what else there is to say; "" for nothing.
    """

    upstream: str
    iceberg: str
    before: Mapping[str, Any] | None = None
    hidden: tuple[str, ...] = ()
    after: Mapping[str, Any] | None = None
    changes: Mapping[str, Any] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the next step would do, after the newest checkpoint, `step`.

    Attributes:
        resolved_ts: What all tables have reached; None for a feed in offset order.
        watermark: What they would reach; None if the step would apply nothing, or the feed carries no watermark.
        counts: Row changes by what would become of them, see `Fate`.
        ddl: DDL that it would come to, in order.
        aside: Tables that are not live: the rows of parked ones would not be applied.
        layouts: Tables that do not lie as the configuration says, or whose rows are of another shape.
        shapes: A row of each table whose pattern asks for a shape.
        waits: Why nothing, or not all, can be applied; "" if nothing is in the way.
    """

    changefeed: str
    step: int
    resolved_ts: int | None
    watermark: int | None
    messages: int
    counts: dict[str, int]
    spans: Sequence[SpanDue]
    tables: Sequence[TableDue]
    ddl: Sequence[DdlDue]
    waits: str
    aside: Sequence[TableAside] = ()
    layouts: Sequence[LayoutDue] = ()
    shapes: Sequence[ShapedRow] = ()

    def to_json(self) -> str:
        """The plan for machines; the keys are the attributes."""
        return dumps(asdict(self))


def render(plan: StepPlan, console: Console) -> None:
    """Print a plan."""
    begun = f"What the next step of changefeed {plan.changefeed} would do, after step {plan.step}; nothing is changed."
    counts = ", ".join(f"{plan.counts.get(fate, 0):,} {what}" for fate, what in _COUNTS.items())
    for sentence in (begun, _progress(plan), f"It reads {counted(plan.messages, 'message')}: {counts}."):
        console.print(Text(escaped(sentence)), soft_wrap=True)
    if plan.spans:
        rows = [(f"{span.topic}/{span.partition}", span.start, span.end, span.backlog) for span in plan.spans]
        console.print(grid("offsets", ("partition", "from", "to", "beyond"), rows))
    if plan.tables:
        due = [(t.upstream, t.iceberg, t.rows, t.commits, "created" if t.is_new else "") for t in plan.tables]
        console.print(grid(_TABLES, ("upstream", "iceberg", "keys", "commits", ""), due))
    if plan.ddl:
        decided = [(_at(ddl.commit_ts), ", ".join(ddl.kinds), ddl.decision, ddl.reason, ddl.sql) for ddl in plan.ddl]
        console.print(grid("DDL", ("commit ts", "kind", "decision", "reason", "statement"), decided))
    for row in plan.shapes:
        _render_row(row, console)
    for layout in plan.layouts:
        changes = f"The next start changes table {layout.iceberg}: {layout.change}. " if layout.change else ""
        console.print(Text(escaped(f"{changes}{layout.note}")), soft_wrap=True)
    for table in plan.aside:
        console.print(Text(escaped(f"{table.because} Hint: {table.way_out}")), soft_wrap=True)
    if plan.waits:
        console.print(Text(escaped(plan.waits)))


def _render_row(row: ShapedRow, console: Console) -> None:
    """Print a row, a line for each of its columns."""
    if row.before is not None:
        sides = {"upstream": {**row.before, **dict.fromkeys(row.hidden, _HIDDEN)}, row.iceberg: row.after or {}}
        if row.changes is not None:
            sides[f"{row.iceberg}{SUFFIX}"] = row.changes
        names = dict.fromkeys(name for side in sides.values() for name in side)
        cells = [(name, *(_cell(side, name) for side in sides.values())) for name in names]
        console.print(grid(f"a row of {row.upstream}, before and after", ("column", *sides), cells))
    if row.note:
        console.print(Text(escaped(row.note)), soft_wrap=True)


_HIDDEN = "hidden"
_WIDEST = 80
"""Characters of a cell that a terminal shows."""


def _cell(side: Mapping[str, Any], name: str) -> str:
    """A cell as text: NULL, or `-` where the side has no such column."""
    if name not in side:
        return "-"
    text = "NULL" if side[name] is None else str(side[name])
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


_TABLES = "tables; keys are the rows that change, each by the last of its row changes"

_COUNTS = {
    Fate.APPLIED: "row changes to apply",
    Fate.HAD: "applied before",
    Fate.HELD: "above the watermark",
    Fate.LEFT_OUT: "of tables that are left out",
}


def _progress(plan: StepPlan) -> str:
    if plan.resolved_ts is None:
        return "The feed carries no watermark: all that is read is applied."
    if plan.watermark is None:
        return f"All tables are at resolved ts {_at(plan.resolved_ts)}, and stay there."
    return f"All tables go from resolved ts {_at(plan.resolved_ts)} to {_at(plan.watermark)}."


def _at(tso: int) -> str:
    return f"{tso} ({wall_clock(tso).isoformat(timespec='milliseconds')})" if tso else "0"
