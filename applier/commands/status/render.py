"""Prints what `applier status` found on a terminal, once or anew every few seconds: verdict, what to do, figures."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text as RichText

from applier.changefeed.table import TableName
from applier.commands.status import grids
from applier.commands.status.grids import clock, line, prose
from applier.errors import ConfigError, TransientError
from applier.pipeline.table_selection import selected
from applier.runtime.escaping import Text, escaped
from applier.runtime.figures import counted, span
from applier.watch.report import HolderReport, StatusReport
from applier.wording import several

_REASONS = 10
"""Reasons that are shown where no tables are asked for."""

_DROPPED = 10
"""Dropped tables that are shown where no tables are asked for."""

_LOUD = ("pending", "skipped", "to skip")
"""Decisions on DDL that deserve a look."""

_QUOTED = "`(?:[^`]|``)+`"
_COMMAND = re.compile(rf"""`((?:"[^"]*"|'[^']*'|(?:{_QUOTED}\.)+(?:\w|{_QUOTED})|\.{_QUOTED}|[^`'"])+)`""")
"""A command within a sentence; names in its quotes, and before or behind a dot, may be in backticks of their own."""


_UNANSWERED = 3
"""Exit code where the catalog did not answer the last time."""

_ALONE = {"--json": "everything", "--cut": "the queries and nothing else"}
"""Options that allow no other, and what they print."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a report is shown in full; the path of the configuration file is for commands.

    Tables are listed with their snapshots by filter rules, () for those that need a look; DDL with the decisions.
    """

    config: str = "applier.toml"
    tables: tuple[str, ...] = ()
    ddl: bool = False
    partitions: bool = False


def render(report: StatusReport, console: Console, choice: Choice | None = None) -> None:
    """Print a report; lines that are to be copied may be longer than the terminal is wide."""
    for part in parts(report, choice or Choice(), console.width):
        if isinstance(part, RichText) and not console.is_terminal:
            # Nobody watches: a line that breaks in the midst of a sentence is one that no search finds.
            console.out(part.plain, highlight=False)
        else:
            console.print(Group(part), crop=False)


def parts(report: StatusReport, choice: Choice, width: int) -> Iterator[RenderableType]:
    """All of a report, from top to bottom, for a terminal with so many columns; ConfigError for a bad choice."""
    yield verdict(report)
    if report.holder is not None:
        yield _holder(report, report.holder)
    yield from _reasons(report, choice)
    if report.notes:
        yield Text()
    for note in report.notes:
        yield prose(str(note), "yellow")
    chosen = _chosen(report, choice.tables)
    for listing in (grids.tables(report, chosen, width), _dropped(report, chosen, choice.config)):
        if shown := [*listing]:
            yield Text()
            yield from shown
    if report.steps:
        yield Text()
        yield from grids.steps(report, width)
    if others := [*_others(report, choice)]:
        yield Text()
        yield from others


def _chosen(report: StatusReport, rules: Sequence[str]) -> Collection[str] | None:
    shown = {*(table.table for table in report.tables), *(table.table for table in report.dropped or ())}
    names = (TableName(*table.partition(".")[::2]) for table in shown)
    return {str(name) for name in selected(rules, names)} if rules and shown else None


def verdict(report: StatusReport) -> RichText:
    """Whether the tables are true, and as of when."""
    return Text.assemble(
        (report.verdict, "bold red" if report.stale else "bold green" if report.exit_code == 0 else "bold yellow"),
        escaped(f" · {_summary(report)}"),
    )


def _summary(report: StatusReport) -> str:
    if report.lag_seconds is None:
        return report.summary
    when = f" as of {clock(report.resolved)}" if report.resolved else ""
    return f"{report.summary}{when} ({span(report.lag_seconds)} ago)"


def _holder(report: StatusReport, holder: HolderReport) -> Text:
    held = "released" if holder.released else "held"
    shown = [f"changefeed {report.changefeed}", f"step {report.step}"]
    shown += [f"resolved ts {report.resolved_ts}"] if report.resolved_ts else []
    shown += [f"{held} by {holder.name}, epoch {holder.epoch}, since {clock(holder.since)}"]
    shown += [f"last seen {span(holder.silent_seconds)} ago"]
    return prose(" · ".join(shown), "dim")


def _reasons(report: StatusReport, choice: Choice) -> Iterator[Text]:
    shown = report.stale if choice.tables else report.stale[:_REASONS]
    for found in shown:
        yield Text()
        yield prose(found.because, "red")
        yield from _way_out(found.way_out)
    if rest := len(report.stale) - len(shown):
        yield Text()
        yield prose(f"… and {counted(rest, 'more reason')}, which this shows:", "red")
        yield line(f"    applier status -c {choice.config} --tables '*.*'", "bold", is_cut=False)


def _way_out(sentence: str) -> Iterator[Text]:
    """Each command on a line of its own, which a terminal may break but no space does: it can be copied."""
    pieces = _COMMAND.split(sentence)
    for piece, command in zip_longest(pieces[::2], pieces[1::2]):
        words = piece.strip(" ,;:.")
        if words not in ("", "run", "start"):
            yield prose(f"  {words}{':' if command else '.'}")
        if command:
            yield line(f"    {command}", "bold", is_cut=False)


def _dropped(report: StatusReport, chosen: Collection[str] | None, config: str) -> Iterator[RenderableType]:
    """The tables that were dropped upstream and are kept; those that are `chosen` with what becomes of them."""
    every = report.dropped or ()
    newest = sorted(every, key=lambda it: it.dropped_ts, reverse=True)[:_DROPPED]
    shown = newest if chosen is None else [it for it in every if it.table in chosen]
    if shown:
        yield line(f"{counted(len(every), 'dropped table')} {'is' if len(every) == 1 else 'are'} kept")
    for it in shown:
        size = "" if it.rows is None else f": {counted(it.rows, 'row')}, {counted(it.files or 0, 'file')}"
        where = "" if it.iceberg == it.table else f", as {it.iceberg}"
        yield prose(f"  {it.table}, dropped at {clock(it.dropped)} (commit ts {it.dropped_ts}){where}{size}")
        if chosen is not None:
            yield from _way_out(it.way_out)
    if shown and chosen is None:
        rest = f"… and {len(every) - len(shown):,} more; how" if len(every) > len(shown) else "how"
        yield line(f"  {rest} each comes back, is renamed or is removed:")
        yield line(f"    applier status -c {config} --tables '*.*'", is_cut=False)


def _others(report: StatusReport, choice: Choice) -> Iterator[RenderableType]:
    if report.partitions:
        last = min(report.partitions, key=lambda item: item.resolved_ts or 0)
        reached = f"resolved {clock(last.resolved)}" if last.resolved else "no watermark of it is read yet"
        where = f"{last.topic}/{last.partition}, {reached}"
        yield line(f"{counted(len(report.partitions), 'partition')}, furthest behind: {where}")
        if choice.partitions:
            yield grids.partitions(report.partitions)
    if report.schema_changes:
        decided = Counter(item.decision for item in report.schema_changes)
        counts = ", ".join(f"{count} {decision}" for decision, count in decided.most_common())
        yield line(f"{report.schema_change_count:,} DDL, of the last {len(report.schema_changes)}: {counts}")
        for item in report.schema_changes:
            if choice.ddl:
                yield from grids.ddl(item)
            elif item.decision in _LOUD:
                shown = item.decision, clock(item.committed), item.table, " ".join(item.sql.split())
                yield line("  " + "  ".join(filter(None, shown)))
    if report.dead_letters:
        letters = counted(report.dead_letter_count, "dead letter")
        yield line(f"{letters}, the newest: {report.dead_letters[0].error}", "yellow")
        yield line(f"    applier dead-letters list -c {choice.config}", is_cut=False)
    if report.cut:
        absent = [table.table for table in report.tables if table.cut_snapshot_id is None]
        which = f"{len(report.cut):,} of {counted(len(report.tables), 'table')}" if absent else "all tables"
        without = f", without {several(absent)}" if absent else ""
        read = f"{counted(len(report.cut), 'query', 'queries')} read{'s' if len(report.cut) == 1 else ''}"
        moment = f"one moment, {report.cut_at}" if report.cut_at else "one moment"
        yield prose(f"{read} {which} as of {moment}{without}:")
        yield line(f"    applier status -c {choice.config} --cut", is_cut=False)


def refuse(given: Mapping[str, bool], console: Console, engine: str | None = None) -> None:
    """Refuse options that contradict each other, an engine without `--cut`, and `--watch` without a terminal.

    It raises ConfigError; `given` says of each option whether it was given.
    """
    if engine is not None and not given["--cut"]:
        raise ConfigError([f"{engine} names an engine for the queries of --cut: add --cut, or leave {engine} out."])
    for option, what in _ALONE.items():
        if given[option] and (others := [name for name, is_given in given.items() if is_given and name != option]):
            raise ConfigError([f"{option} prints {what}: leave out {', '.join(others)}."])
    if given["--watch"] and not console.is_terminal:
        raise ConfigError(["--watch redraws a terminal, and standard output is none: leave out --watch."])


def watching(look: Callable[[], StatusReport], choice: Choice, console: Console, seconds: float) -> int:
    """Redraw what `look` finds until Ctrl-C; returns the exit code of the last report.

    A catalog that does not answer is asked again: what was found before stays on the screen, with the error above it.
    KeyboardInterrupt is raised where there is no report yet, and other errors are those of `status`.
    """
    last: StatusReport | None = None
    code: int | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                error = ""
                try:
                    last = look()
                    code = last.exit_code
                except TransientError as found:
                    error, code = str(found), _UNANSWERED
                live.update(Group(*_screen(last, error, choice, console.width)), refresh=True)
                time.sleep(seconds)
    except KeyboardInterrupt:
        if code is None:
            raise
    if last is not None:
        console.print(verdict(last))
    return code


def _screen(report: StatusReport | None, error: str, choice: Choice, width: int) -> Iterator[RenderableType]:
    if error:
        yield prose(f"{error} It is asked again. What follows is what was found before.", "red")
    if report is not None:
        yield from parts(report, choice, width)
