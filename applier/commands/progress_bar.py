"""Shows status lines: on a terminal as lines to read above a bar of the backlog, and elsewhere as log events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from applier.changefeed.fate import Fate
from applier.runtime import terminal
from applier.runtime.figures import counted, span
from applier.runtime.logs import StatusLine, logger

_LONG_BACKLOG = 10_000

_TIME_COLUMNS = 9
"""Width of the time that every line on a terminal begins with."""

_SHARE = 0.05
"""A stage that takes less of a step than this is not shown."""

_WARNINGS = {
    "parked": ("table", "parked"),
    "dead_letters": ("message", "set aside"),
    "missing": ("offset", "without a message"),
    "not_found": ("row", "to change not found"),
    "zero_dates": ("zero date", "became NULL"),
}
"""Notes that a person may have to act on: what is counted, and what became of it."""

_OTHERS = {
    Fate.HAD: ("row", "sent again"),
    Fate.LEFT_OUT: ("row", "left out"),
    Fate.DOUBTED: ("row", "too late"),
    "days": ("day", "of changes removed"),
    "compacted": ("file", "rewritten"),
    "vectors": ("deletion vector", "removed"),
    "manifests": ("manifest", "merged"),
    "expired": ("snapshot", "expired"),
    "orphans": ("orphan", "removed"),
}


@contextmanager
def progress_bar() -> Iterator[Callable[[StatusLine], None]]:
    """A function to give each status line to; on a terminal a bar shows how much of the backlog is done."""
    with terminal.progress("catching up", "messages") as bar:
        done = 0

        def show(status: StatusLine) -> None:
            nonlocal done
            done += status.messages
            bar(done, done + status.backlog if status.backlog > _LONG_BACKLOG else 0)
            log_status(status)

        yield show


def log_status(status: StatusLine) -> None:
    """Log one step."""
    log = logger()
    if not terminal.is_watched():
        log.info("step", **status.fields())
    elif log.is_enabled_for(logging.INFO):
        terminal.say(step_line(status, terminal.CONSOLE.width - _TIME_COLUMNS))


def step_line(status: StatusLine, width: int) -> str:
    """One step for reading, in so many columns where that can be: details go first, warnings and the lag stay."""
    total = sum(status.seconds.values())
    stages = _stages(status.seconds, total)
    took = span(total)
    start = [f"step {status.step:,}", counted(status.rows, "row")]
    tables = [counted(status.tables, "table")]
    end = [_lag(status), f"backlog {status.backlog:,}"]
    end += _said(status.notes, _WARNINGS)
    others = [f"{counted(status.waiting, 'row')} waiting"] if status.waiting else []
    others += _said(status.notes, _OTHERS)
    lines = [
        [*start, *tables, f"{took} ({stages})" if stages else took, *end, *others],
        [*start, *tables, took, *end, *others],
        [*start, *tables, took, *end],
        [*start, *tables, *end],
        [*start, *end],
    ]
    joined = [" · ".join(line) for line in lines]
    return next((line for line in joined if len(line) <= width), joined[-1])


def _lag(status: StatusLine) -> str:
    if status.lag_seconds is None:
        return "the feed carries no watermark" if status.resolved_ts is None else "no watermark yet"
    return f"lag {span(status.lag_seconds)}"


def _stages(seconds: Mapping[str, float], total: float) -> str:
    shown = {stage: spent for stage, spent in seconds.items() if spent >= max(0.01, _SHARE * total)}
    brief = {stage: f"{it:.1f}" if it >= 1 else f"{it:.2f}".removeprefix("0") for stage, it in shown.items()}
    return " ".join(f"{stage} {spent}" for stage, spent in brief.items())


def _said(notes: Mapping[str, int], words: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f"{counted(notes[note], noun)} {what}" for note, (noun, what) in words.items() if notes.get(note)]
