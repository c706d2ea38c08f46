"""Shows status lines: as a progress bar on a terminal, and as one log line per step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from applier.runtime.logs import StatusLine, logger

_LONG_BACKLOG = 10_000


@contextmanager
def progress_bar() -> Iterator[Callable[[StatusLine], None]]:
    """A function to give each status line to; on a terminal a bar shows how much of the backlog is done."""
    if not sys.stderr.isatty():
        yield log_status
        return
    columns = (TextColumn("[bold]catching up"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,} messages"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("backlog", total=0, visible=False)
        done = 0

        def show(status: StatusLine) -> None:
            nonlocal done
            done += status.messages
            bar.update(task, completed=done, total=done + status.backlog, visible=status.backlog > _LONG_BACKLOG)
            log_status(status)

        yield show


def log_status(status: StatusLine) -> None:
    """Log one step."""
    logger().info("step", **status.fields())
