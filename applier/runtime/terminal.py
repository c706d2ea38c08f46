"""The terminal of a long command: lines to read on standard error, with bars below them that leave no copies behind.

Where standard error is no terminal, nothing of this is shown.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn

from applier.runtime.escaping import Text, escaped
from applier.runtime.figures import span
from applier.runtime.threads import beside

PATIENCE_SECONDS = 1.5
"""A wait that takes longer is shown."""

CONSOLE = Console(stderr=True, highlight=False)
"""Every line goes through it: it takes the bars away, prints the line, and draws them again below."""

Show = Callable[[int, int], None]
"""Takes how much is done, and of how much; the bar is hidden while that is 0."""

_LOCK = threading.RLock()
_bars: Progress | None = None


def is_watched() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def say(text: str, level: str = "info") -> None:
    """Print a line with its time in UTC, if somebody watches; the terminal wraps it, so that it is copied whole."""
    if not is_watched():
        return
    line = Text().append(f"{datetime.now(UTC):%H:%M:%S} ", "dim")
    if level != "info":
        line.append(f"{level} ", {"warning": "yellow", "error": "red", "critical": "red"}.get(level, "dim"))
    CONSOLE.print(line.append(escaped(text)), soft_wrap=True)


@contextmanager
def waiting(what: str, *, passes: bool = False) -> Iterator[None]:
    """Show what the block waits for once that takes a while: in a line, or where it passes in a row that goes again."""
    if not is_watched():
        yield
        return

    def show(over: threading.Event) -> None:
        if over.wait(PATIENCE_SECONDS):
            return
        if not passes or CONSOLE.is_dumb_terminal:
            say(f"{what} …")
            return
        with _row(what):
            over.wait()

    with beside("waiting", show):
        yield


@contextmanager
def progress(what: str, unit: str) -> Iterator[Show]:
    """A bar on a terminal, gone when the block ends."""
    with ExitStack() as shown:
        row: tuple[Progress, TaskID] | None = None

        def show(done: int, total: int) -> None:
            nonlocal row
            if not total or not is_watched() or CONSOLE.is_dumb_terminal:
                shown.close()
                row = None
                return
            row = row or shown.enter_context(_row(what, unit))
            row[0].update(row[1], completed=done, total=total)

        yield show


class _HowFar(ProgressColumn):
    """What is done, of how much, and the time left; the time so far where nothing is counted."""

    def render(self, task: Task) -> Text:
        """See Rich."""
        if task.total is None:
            return Text(span(round(task.elapsed or 0)))
        left = "" if not task.time_remaining else f" · {span(round(task.time_remaining))} left"
        return Text(f"{task.completed:,.0f} of {task.total:,.0f} {task.fields['unit']}{left}")


@contextmanager
def _row(what: str, unit: str = "") -> Iterator[tuple[Progress, TaskID]]:
    """A row of the one display that a terminal can have, which is there while it has rows."""
    global _bars  # noqa: PLW0603 - there is one terminal
    with _LOCK:
        if _bars is None:
            _bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                _HowFar(),
                console=CONSOLE,
                transient=True,
                # What goes to a file or a pipe must not come to the terminal.
                redirect_stdout=sys.stdout.isatty(),
            )
            _bars.start()
        bars = _bars
        task = bars.add_task(escaped(what), total=None, unit=unit)
    try:
        yield bars, task
    finally:
        with _LOCK:
            bars.remove_task(task)
            if not bars.tasks:
                bars.stop()
                _bars = None
