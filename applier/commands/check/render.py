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
    """Print a report; answers to what was asked come last, where a terminal shows them."""
    for part in _parts(report):
        console.print(part)
        console.print()
    console.print(Text.assemble("Verdict: ", _styled(report.verdict), f" (exit code {report.exit_code})"))


def _parts(report: Report) -> Iterable[RenderableType]:
    yield _capabilities(report)
    if report.systems:
        yield _systems(report.systems)
    if report.subjects:
        yield _subjects(report.subjects)
    if report.tables:
        yield _tables(report.tables)
    for table in report.tables:
        if table.verdict != "fits" and table.columns:
            yield _columns(table)
    if report.warnings:
        yield _listed("Warnings", report.warnings, "yellow")
    for change in report.changes:
        yield _change(change)
    if report.problems:
        yield _listed("Not answered", report.problems, "yellow")


def _capabilities(report: Report) -> RenderableType:
    carried = report.capabilities
    shown = _grid("carries", "")
    rows = {
        "resolved ts": carried.resolved_ts,
        "commit ts": carried.commit_ts,
        "DDL": carried.ddl,
        "old values": carried.old_values,
        "columns": f"from the {carried.schema}",
        "decimals": "exact" if carried.exact_decimals else "through a double",
    }
    for name, value in rows.items():
        shown.add_row(Text(name), Text(value))
    for number, loss in enumerate(carried.losses):
        shown.add_row(Text("" if number else "losses"), Text(loss))
    return below(f"Changefeed {report.changefeed}, protocol {report.protocol}", shown)


def _systems(systems: Sequence[SystemAnswer]) -> RenderableType:
    shown = _grid("checked", "verdict", "result", "way out")
    for item in systems:
        way_out = Text(escaped(item.way_out[:1].upper() + item.way_out[1:]))
        shown.add_row(Text(item.checked), _styled(item.verdict), Text(escaped(item.result)), way_out)
    return below("Systems", shown)


def _subjects(subjects: Sequence[SubjectReport]) -> RenderableType:
    shown = _grid("subject", "level", "versions", "TiCDC stops at", "verdict")
    for subject in subjects:
        readable = sum(version.is_readable for version in subject.versions)
        versions = f"{readable} of {len(subject.versions)} readable"
        reasons = Text("\n".join(subject.reasons), style="red")
        stops = Group(Text("\n".join(subject.breaks) or "nothing"), *([reasons] if subject.reasons else []))
        cells = Text(subject.subject), Text(subject.level), Text(versions), stops, _styled(subject.verdict)
        shown.add_row(*cells, end_section=True)
    return below("Subjects", shown)


def _tables(tables: Sequence[TableReport]) -> RenderableType:
    shown = _grid("upstream", "Iceberg", "columns that fit", "verdict", "because")
    for table in tables:
        fitting = sum(column.fits for column in table.columns)
        because = Text("\n".join([*table.reasons, *_hints(table.ways_out)]))
        columns = f"{fitting} of {len(table.columns)}"
        names = Text(escaped(table.table)), Text(escaped(table.iceberg))
        shown.add_row(*names, Text(columns), _styled(table.verdict), because)
    return below("Tables", shown)


def _columns(table: TableReport) -> RenderableType:
    shown = _grid("column", "upstream", "Iceberg", "because")
    for column in table.columns:
        if not column.fits:
            cells = (column.name, column.upstream or "none", column.iceberg or "none", column.reason)
            shown.add_row(*map(Text, cells))
    return below(f"Columns of {table.table} that do not fit", shown)


def _change(change: ChangeReport) -> RenderableType:
    title = Text.assemble("DDL " if change.asked == "ddl" else "Schema ", (change.text, "bold"), ": ")
    root = Tree(title.append_text(_styled(change.verdict)))
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


def _grid(*headings: str) -> Table:
    shown = Table()
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    return shown


def _styled(verdict: str) -> Text:
    return Text(verdict, style=_STYLES.get(verdict, ""))
