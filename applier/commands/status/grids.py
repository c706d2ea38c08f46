"""The tables of figures that `applier status` prints, each row on one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text as RichText

from applier.runtime.escaping import Text, escaped
from applier.runtime.figures import counted, span
from applier.watch.report import TONES, DdlReport, PartitionProgress, StatusReport, StepProgress, TableProgress

_STYLES = {"good": "green", "bad": "bold red", "wait": "yellow", "held": "yellow"}
_FEW = 20
"""Tables that are all listed, and of more the most that need a look."""

_WIDE = 120
"""Width from which on a terminal shows further columns."""

_STAGES = ("read", "decode", "apply", "checkpoint", "maintain")
"""Stages of a step that have a column everywhere."""

_MILLION = 1_000_000

_NAMES = ("table", "Iceberg", "Iceberg table", "partition")
"""Headings of the columns that are cut where a row is too long."""

_LEAST = 20
"""Columns of the terminal that names keep."""

_GIVE_WAY = ("maintain", "checkpoint", "decode", "read", "files", "last commit", "apply", "messages", "rows", "backlog")
"""Headings of the columns that are left out where the terminal is too narrow, the first first."""

_UNKNOWN = "?"


def tables(report: StatusReport, chosen: Collection[str] | None, width: int) -> Iterator[RenderableType]:
    """How far the tables are, for a terminal of a width: those that need a look come first.

    `chosen` are the names of the tables to list, with their snapshots; None for those that need a look, or a few.
    """
    found = sorted(report.tables, key=lambda table: (-table.urgency, table.table))
    shown = [table for table in found if chosen is None or table.table in chosen]
    if chosen is None and len(found) > _FEW:
        shown = [table for table in found if table.urgency][:_FEW]
    if shown:
        yield _progress(shown, width)
    if chosen is not None and shown:
        yield Text()
        yield _snapshots(shown)
    elif rest := found[len(shown) :] if chosen is None else []:
        counts = Counter(table.state for table in rest)
        states = ", ".join(f"{counted(count, 'table')} {state}" for state, count in counts.most_common())
        yield prose(f"… and {states}" if shown else states)


def _progress(shown: Sequence[TableProgress], width: int) -> Table:
    is_wide = width >= _WIDE
    is_routed = is_wide and any(table.iceberg != table.table for table in shown)
    headings = ["table", *(["Iceberg"] if is_routed else []), "state", ">rows", ">files", ">last commit", ">lag"]
    headings += ["committed (UTC)", "last change (UTC)"] if is_wide else []
    rows = []
    for table in shown:
        age = "never" if table.commit_age_seconds is None else f"{span(table.commit_age_seconds)} ago"
        share = "" if table.caught_up is None else f" {table.caught_up:.0%}"
        is_there = table.state != "missing"
        cells: list[str | Text] = [table.table, *([table.iceberg] if is_routed else [])]
        cells += [Text(f"{table.state}{share}", style=style(table.state))]
        cells += [f"{count:,}" if is_there else _UNKNOWN for count in (table.rows, table.files)]
        cells += [age, span(table.lag_seconds, _UNKNOWN)]
        cells += [clock(table.committed), clock(table.resolved)] if is_wide else []
        rows.append(cells)
    return _grid(headings, rows, width)


def _snapshots(shown: Sequence[TableProgress]) -> Table:
    rows = [[it.iceberg, str(it.snapshot_id or "none"), str(it.cut_snapshot_id or "none")] for it in shown]
    return _grid(("Iceberg table", ">snapshot", ">in the cut"), rows)


def steps(report: StatusReport, width: int) -> Iterator[RenderableType]:
    """What the newest steps did, how many seconds each stage took, and what follows from it."""
    is_wide = width >= _WIDE
    stages = ("plan", *_STAGES) if is_wide else _STAGES
    figures = (">messages", ">rows", ">backlog", ">lag")
    headings = [*(["at (UTC)"] if is_wide else []), ">step", *figures, *(f">{name}" for name in stages)]
    rows = []
    for step in report.steps:
        cells = [*([clock(step.at)] if is_wide else []), str(step.step)]
        cells += [*map(_figure, (step.messages, step.rows, step.backlog)), span(step.lag_seconds, _UNKNOWN)]
        rows.append(cells + [_seconds(step, stage) for stage in stages])
    yield prose("The newest steps, and the seconds that each stage took")
    yield _grid(headings, rows, width, gap=1 + is_wide)
    if report.explanation:
        yield prose(report.explanation, "bold")


def partitions(found: Sequence[PartitionProgress]) -> Table:
    """How far each partition is read, those that are furthest behind first."""
    rows = [
        [f"  {item.topic}/{item.partition}", f"{item.next_offset:,}", clock(item.resolved) or "never"]
        for item in sorted(found, key=lambda item: (item.resolved_ts or 0, item.topic, item.partition))
    ]
    return _grid(("  partition", ">next offset", "resolved (UTC)"), rows)


def ddl(item: DdlReport) -> Iterator[RichText]:
    """A DDL with its commit ts, what became of it, and why; the statement can be copied."""
    yield Text()
    heading = "  ".join(filter(None, (str(item.commit_ts), clock(item.committed), item.table, item.kind)))
    yield Text.assemble("  ", (escaped(item.decision), style(item.decision, "yellow")), "  ", escaped(heading))
    yield line(f"    {' '.join(item.sql.split())}", is_cut=False)
    if item.reason:
        yield prose(f"    {item.reason}")


def prose(text: str, style: str = "") -> Text:
    """A sentence, which wraps at spaces."""
    return Text(escaped(text), style)


def line(text: str, style: str = "", *, is_cut: bool = True) -> Text:
    """One line, which is cut where the terminal ends, or goes on as it is."""
    return Text(escaped(text), style, no_wrap=True, overflow="ellipsis" if is_cut else "ignore")


def style(word: str, other: str = "dim") -> str:
    """The colour of a state or a decision; `other` for what is neither good nor bad."""
    return _STYLES[TONES[word]] if word in TONES else other


def clock(iso: str | None) -> str:
    """A time to the second; "" for none."""
    return "" if iso is None else iso.replace("T", " ").removesuffix("+00:00").partition(".")[0]


def _figure(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{count:,}" if count < _MILLION else f"{count / _MILLION:,.1f} M"


def _seconds(step: StepProgress, stage: str) -> str:
    return f"{step.seconds[stage]:.2f}" if stage in step.seconds else _UNKNOWN


def _grid(
    headings: Sequence[str], texts: Sequence[Sequence[str | Text]], width: int | None = None, gap: int = 2
) -> Table:
    """A table without lines; a heading that begins with `>` is that of numbers.

    Columns of names give way to a terminal of that width, and then whole columns do: no figure is cut.
    """
    shown = [heading.removeprefix(">") for heading in headings]
    rows = [[line(cell) if isinstance(cell, str) else cell for cell in row] for row in texts]
    widths = [max(len(heading), *(row[at].cell_len for row in rows)) + gap for at, heading in enumerate(shown)]
    least = [min(wide, _LEAST) if shown[at].strip() in _NAMES else wide for at, wide in enumerate(widths)]
    kept = list(range(len(shown)))
    for heading in _GIVE_WAY:
        if width is None or sum(least[at] for at in kept) - gap <= width:
            break
        kept = [at for at in kept if shown[at] != heading]
    made = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for at in kept:
        is_name = shown[at].strip() in _NAMES
        justify: JustifyMethod = "right" if headings[at].startswith(">") else "left"
        made.add_column(shown[at], justify=justify, no_wrap=not is_name, overflow="ellipsis")
    for row in rows:
        made.add_row(*(row[at] for at in kept))
    return made
