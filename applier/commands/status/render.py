"""Prints what `applier status` found as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.table import Table

from applier.runtime.escaping import Text, escaped
from applier.watch.report import HolderReport, StatusReport, shown_seconds

_STYLES = {
    "fresh": "green",
    "in step": "green",
    "applied": "green",
    "stale": "bold red",
    "missing": "bold red",
    "refused": "bold red",
    "rolled back": "bold red",
    "ahead": "yellow",
    "incomplete": "bold red",
    "loading": "yellow",
    "catching up": "yellow",
    "parked": "yellow",
    "expired": "yellow",
    "dropped": "dim",
    "empty": "dim",
}
_SLOWEST = 5
_SQL = 100


def render(report: StatusReport, console: Console) -> None:
    """Print a report; the verdict comes last, where a terminal shows it."""
    for part in _parts(report):
        console.print(part)
        console.print()
    _cut(report, console)
    for sentence in (*report.notes, *report.stale):
        console.print(Text(escaped(sentence), style="red" if sentence in report.stale else "yellow"), soft_wrap=True)
    console.print(Text.assemble("Verdict: ", _styled(report.verdict), f" (exit code {report.exit_code})"))


def _parts(report: StatusReport) -> Iterable[RenderableType]:
    if report.holder is not None:
        yield _overview(report, report.holder)
    if report.tables:
        yield _tables(report)
    if report.partitions:
        yield _partitions(report)
    if report.schema_changes:
        yield _schema_changes(report)
    if report.dead_letters:
        yield _dead_letters(report)


def _overview(report: StatusReport, holder: HolderReport) -> RenderableType:
    shown = _grid(f"Changefeed {report.changefeed}", "", "")
    lag = "" if report.lag_seconds is None else shown_seconds(report.lag_seconds)
    held = "released by" if holder.released else "held by"
    rows = {
        "resolved ts": str(report.resolved_ts) if report.resolved_ts else "not available",
        "true as of (UTC)": _clock(report.resolved),
        "lag": lag,
        "step": str(report.step),
        held: f"{holder.name}, epoch {holder.epoch}",
        "since": _clock(holder.since),
        "last seen": f"{_clock(holder.seen)}, {shown_seconds(holder.silent_seconds)} ago",
        "dead letters": str(report.dead_letter_count),
    }
    for name, value in rows.items():
        shown.add_row(Text(name), Text(value))
    return shown


def _tables(report: StatusReport) -> RenderableType:
    shown = _grid("Tables", "upstream", "Iceberg", "state", "last change (UTC)", "rows", "snapshot of the cut")
    for table in report.tables:
        rows, cut = f"{table.rows:,}", str(table.cut_snapshot_id or "")
        names = Text(escaped(table.table)), Text(escaped(table.iceberg))
        since = Text(_clock(table.resolved))
        share = "" if table.caught_up is None else f" {table.caught_up:.0%}"
        shown.add_row(*names, Text.assemble(_styled(table.state), share), since, Text(rows, justify="right"), Text(cut))
    return shown


def _partitions(report: StatusReport) -> RenderableType:
    slowest = sorted(report.partitions, key=lambda item: item.resolved_ts or 0)[:_SLOWEST]
    is_all = len(slowest) == len(report.partitions)
    title = "Partitions" if is_all else f"The {_SLOWEST} partitions that are furthest behind"
    shown = _grid(title, "partition", "next offset", "resolved (UTC)")
    for item in slowest:
        place = Text(f"{item.topic}/{item.partition}")
        shown.add_row(place, Text(str(item.next_offset), justify="right"), Text(_clock(item.resolved) or "never"))
    return shown


def _schema_changes(report: StatusReport) -> RenderableType:
    title = f"DDL, the last {len(report.schema_changes)} of {report.schema_change_count}"
    shown = _grid(title, "committed (UTC)", "table", "decision", "statement", "because")
    for item in report.schema_changes:
        sql = " ".join(item.sql.split())
        cut = sql if len(sql) <= _SQL else f"{sql[:_SQL]}…"
        because = Text(item.reason)
        shown.add_row(Text(_clock(item.committed)), Text(item.table), _styled(item.decision), Text(cut), because)
    return shown


def _dead_letters(report: StatusReport) -> RenderableType:
    shown = _grid(f"Dead letters, the last {len(report.dead_letters)} of {report.dead_letter_count}", "message", "why")
    for item in report.dead_letters:
        shown.add_row(Text(f"{item.topic}/{item.partition} offset {item.offset}"), Text(item.error))
    return shown


def _cut(report: StatusReport, console: Console) -> None:
    """Lines that can be copied: no borders, no wrapping."""
    if not report.cut:
        return
    moment = f"as of resolved ts {report.resolved_ts}" if report.resolved_ts else "as of the newest checkpoint"
    console.print(Text(f"All tables {moment}", style="bold"))
    for query in report.cut:
        console.print(Text(escaped(query)), soft_wrap=True)
    console.print()


def _clock(iso: str | None) -> str:
    return "" if iso is None else iso.replace("T", " ").removesuffix("+00:00")


def _grid(title: str, *headings: str) -> Table:
    shown = Table(title=Text(title, style="bold"), title_justify="left", show_header=any(headings))
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    return shown


def _styled(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))
