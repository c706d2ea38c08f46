"""Shows `applier status` anew every few seconds, in place, until the user ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live

from applier.commands.status.grids import prose
from applier.commands.status.render import Choice, parts, verdict
from applier.errors import ConfigError, TransientError
from applier.watch.report import StatusReport

_UNANSWERED = 3
"""Exit code where the catalog did not answer the last time."""

_ALONE = {"--json": "everything", "--cut": "the queries and nothing else"}
"""Options that allow no other, and what they print."""


def refuse(given: Mapping[str, bool], console: Console, engine: str | None = None) -> None:
    """Refuse options that contradict each other.

    Args:
        given: Whether each option was given.
        console: Where the report would be shown.
        engine: The engine that was named.

    Raises:
        ConfigError: They do, an engine is named without `--cut`, or `--watch` has no terminal.
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

    Raises:
        KeyboardInterrupt: There is no report yet.
        ConfigError, TerminalError: See `status`.
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
