"""Prints what `applier check` found as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.tree import Tree

from applier.commands.check.report import ChangeReport, Report, SubjectReport, SystemAnswer, TableReport
from applier.runtime.escaping import Text, below, escaped

_STYLES = {
    "fits": "green",
    "does not fit": "bold red",
    "cannot tell": "yellow",
    "accepted": "green",
    "refused": "bold red",
    "unchanged": "green",
    "new subject": "green",
    "in place": "green",
    "rewritten": "yellow",
    "dropped": "yellow",
}

_STOPS = "TiCDC stops at the first row after the change until the registry takes the schema; nothing is lost."


def render(report: Report, console: Console) -> None:
    """Print a report; answers to what was asked come first, in front of what is the same each time."""
    for part in _parts(report):
        console.print(part)
        console.print()
    console.print(Text.assemble("Verdict: ", _styled(report.verdict), f" (exit code {report.exit_code})"))


def _parts(report: Report) -> Iterable[RenderableType]:
    for change in report.changes:
        yield _change(change)
    # Who asks about a change has seen the systems before.
    if systems := [it for it in report.systems if not report.changes or it.verdict != "fits"]:
        yield _systems(systems)
    yield _capabilities(report)
    if report.subjects:
        yield _subjects(report.subjects)
    if report.tables:
        yield _tables(report.tables)
    for table in report.tables:
        if table.verdict != "fits" and table.columns:
            yield _columns(table)
    if report.warnings:
        yield _listed("Warnings", report.warnings, "yellow")
    if report.problems:
        yield _listed("Not answered", report.problems, "yellow")


def _capabilities(report: Report) -> RenderableType:
    carried = report.capabilities
    rows = [
        ("resolved ts", carried.resolved_ts),
        ("commit ts", carried.commit_ts),
        ("DDL", carried.ddl),
        ("old values", carried.old_values),
        ("columns", f"from the {carried.schema}"),
        ("decimals", "exact" if carried.exact_decimals else "through a double"),
        *(("" if number else "losses", loss) for number, loss in enumerate(carried.losses)),
    ]
    return _grid(f"Changefeed {report.changefeed}, protocol {report.protocol}", ("carries", ""), rows)


def _systems(systems: Sequence[SystemAnswer]) -> RenderableType:
    # Columns of a grid would cut paths into pieces.
    root = Tree("Systems")
    for it in systems:
        branch = root.add(Text.assemble(f"{it.checked}: ", _styled(it.verdict), f". {escaped(it.result)}"))
        _add(branch, *_ways_out([escaped(it.way_out)] if it.way_out else []))
    return root


def _subjects(subjects: Sequence[SubjectReport]) -> RenderableType:
    rows = []
    for subject in subjects:
        readable = sum(version.is_readable for version in subject.versions)
        versions = f"{readable} of {len(subject.versions)} readable"
        reasons = Text("\n".join(subject.reasons), style="red")
        stops = Group(Text("\n".join(subject.breaks) or "nothing"), *([reasons] if subject.reasons else []))
        rows.append((subject.subject, subject.level, versions, stops, _styled(subject.verdict)))
    headings = ("subject", "level", "versions", "TiCDC stops at", "verdict")
    return _grid("Subjects", headings, rows, has_lines=True)


def _tables(tables: Sequence[TableReport]) -> RenderableType:
    rows = []
    for table in tables:
        columns = f"{sum(column.fits for column in table.columns)} of {len(table.columns)}"
        because = "\n".join([*table.reasons, *_hints(table.ways_out)])
        rows.append((escaped(table.table), escaped(table.iceberg), columns, _styled(table.verdict), because))
    return _grid("Tables", ("upstream", "Iceberg", "columns that fit", "verdict", "because"), rows)


def _columns(table: TableReport) -> RenderableType:
    misfits = (column for column in table.columns if not column.fits)
    rows = [(it.name, it.upstream or "none", it.iceberg or "none", it.reason) for it in misfits]
    return _grid(f"Columns of {table.table} that do not fit", ("column", "upstream", "Iceberg", "because"), rows)


def _change(change: ChangeReport) -> RenderableType:
    title = Text.assemble("DDL " if change.asked == "ddl" else "Schema ", (change.text, "bold"), ": ")
    root = Tree(title.append_text(_styled(change.verdict)).append(_unless(change), style="yellow"))
    _add(root, *map(Text, change.reasons))
    for answer in change.registry:
        level = f" at level {answer.level}" if answer.level else ""
        said = [Text(f"The registry says: {message}", style="dim") for message in answer.messages]
        stops = [Text(_STOPS, style="dim")] if answer.outcome == "refused" else []
        branch = root.add(Text.assemble("Registry, subject ", answer.subject, level, ": ", _styled(answer.outcome)))
        _add(branch, *map(Text, answer.rules), *said, *_ways_out(answer.ways_out), *stops)
    for table in change.tables:
        known = f", known from {table.known_from}" if table.known_from else ""
        branch = root.add(Text.assemble("Iceberg table ", table.iceberg, known, ": ", _styled(table.outcome)))
        _add(branch, *map(Text, (*table.steps, *table.reasons)), *_ways_out(table.ways_out))
    _add(root, *(Text(note, style="yellow") for note in change.notes))
    return root


def _unless(change: ChangeReport) -> str:
    """On what a change that fits still depends."""
    columns = dict.fromkeys(column for table in change.tables for column in table.converted)
    if change.verdict != "fits" or not columns:
        return ""
    return f", unless a value of {', '.join(columns)} cannot be converted: that parks the table"


def _listed(title: str, sentences: Iterable[str], style: str) -> RenderableType:
    root = Tree(Text(title, style=f"bold {style}"))
    _add(root, *map(Text, sentences))
    return root


def _add(root: Tree, *lines: Text) -> None:
    for line in lines:
        root.add(line)


def _ways_out(answered: Iterable[str]) -> list[Text]:
    return [Text(hint, style="cyan") for hint in _hints(answered)]


def _hints(ways_out: Iterable[str]) -> list[str]:
    return [f"Way out: {way[:1].upper()}{way[1:]}" for way in ways_out]


def _grid(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str | RenderableType]], *, has_lines: bool = False
) -> Group:
    shown = Table(show_lines=has_lines)
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return below(title, shown)


def _styled(verdict: str) -> Text:
    return Text(verdict, style=_STYLES.get(verdict, ""))
