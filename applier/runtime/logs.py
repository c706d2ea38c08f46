"""What a run says of itself: log events, and one status line per step."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import structlog

from applier.changefeed.ts import age, wall_clock
from applier.runtime import terminal
from applier.runtime.exact_json import dumps
from applier.runtime.pulse import PULSE


def set_up_logging(level: str = "info") -> None:
    """Log to standard error: lines for reading on a terminal, JSON lines elsewhere."""
    shown: list[Any] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(_one_line),
    ]
    is_watched = terminal.is_watched()
    if is_watched:
        shown = [as_line]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, *shown],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=(lambda *_: _Lines()) if is_watched else structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    # py4j logs every lost connection of its own at shutdown, which needs no action.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # urllib3 warns of answers that it cannot read, with the address, which may hold a token.
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    # It logs some of them by the root, with a stack trace; what they lead to is raised as well.
    logging.getLogger().addFilter(_is_not_of_py4j)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _say_unraisable


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _say_unraisable(found: Any) -> None:
    """Log what is raised where nothing can catch it, as in the clean-up of a file: the error before it is reported."""
    where = getattr(found.object, "__qualname__", type(found.object).__name__)
    logger().debug("error while cleaning up", where=where, error=found.exc_type.__name__)


def announce(event: str, **fields: Any) -> None:
    """Show a line to whoever watches, at any level; elsewhere it is an event of level info."""
    if terminal.is_watched():
        terminal.say(" · ".join([event, *map(_field, fields, fields.values())]))
    elif structlog.is_configured():
        note = logger().info
        note(event.removesuffix(" …"), **fields)


class _Lines:
    """Where structlog writes on a terminal."""

    def msg(self, text: str, level: str) -> None:
        terminal.say(text, level)

    debug = info = warning = error = critical = msg


def as_line(_: Any, level: str, event: Mapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    """A log event for reading: its name, then each field as `name value`; a processor of structlog."""
    fields = {name: value for name, value in event.items() if name not in {"event", "level"} and value is not None}
    return (" · ".join([str(event["event"]), *map(_field, fields, fields.values())]), level), {}


def _field(name: str, value: Any) -> str:
    shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{name.replace('_', ' ')} {shown}".rstrip()


def _one_line(event: Any, **options: Any) -> str:
    """JSON whose control characters are escaped, also those of Unicode that JSON would let pass."""
    text = dumps(event, ensure_ascii=False, **options)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def logger() -> Any:
    """The logger of the process."""
    return structlog.get_logger()


class Guard:
    """Lets no failure leave a block, and logs the first of several in a row by its kind: a text may hold an address.

    Of errors that are `told` the text is logged.
    """

    def __init__(self, event: str, told: tuple[type[Exception], ...] = ()) -> None:
        self._event, self._told = event, told
        self._is_broken = False

    @contextmanager
    def block(self) -> Iterator[None]:
        """Guard a block."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, what is done beside the tables ends no step
            if not self._is_broken:
                said = str(error) if isinstance(error, self._told) else type(error).__name__
                warn = logger().warning
                warn(self._event, error=said)
            self._is_broken = True
        else:
            self._is_broken = False


Stage: TypeAlias = Literal["maintain", "plan", "read", "decode", "apply", "checkpoint"]
"""The stages of a step, in their order."""

_STAGES: Mapping[Stage, str] = {
    "maintain": "maintaining tables",
    "plan": "asking the source what is new",
    "read": "reading messages",
    "decode": "decoding messages",
    "apply": "applying rows and DDL",
    "checkpoint": "writing the checkpoint",
}
"""What the stages of a step do, for people."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds per stage of one step.

    Attributes:
        spans: Name of each stage that ended, with its start and end in Unix nanoseconds; a stage may come twice.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        start, began = time.perf_counter(), time.time_ns()
        PULSE.beat()
        try:
            with terminal.waiting(_STAGES[name], passes=True):
                yield
        finally:
            PULSE.beat()
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            # The clock of the wall may be set meanwhile, so the end follows from the other one.
            self.spans.append((name, began, began + int(spent * 1e9)))


def milliseconds(seconds: Mapping[str, float]) -> dict[str, int]:
    """Seconds per stage as figures of a checkpoint, such as `apply_ms`."""
    return {f"{stage}_ms": round(spent * 1000) for stage, spent in seconds.items()}


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One step in one line; `docs/output.md` explains every field.

    The resolved ts is None for a feed in offset order, and 0 before the first watermark. Rows are counted after
    reduction; some wait for their schema or for the watermark. The backlog is what the source has beyond this step.
    Seconds are by stage, and notes count the policies that were used: rows sent again, rows left out, zero dates, dead
    letters, parked tables.
    """

    step: int
    resolved_ts: int | None
    now_ms: int
    messages: int
    rows: int
    waiting: int
    tables: int
    backlog: int
    seconds: Mapping[str, float]
    notes: Mapping[str, int]

    @property
    def lag_seconds(self) -> float | None:
        """Age of the resolved ts; None without one, also before the first."""
        return age(self.resolved_ts, self.now_ms) if self.resolved_ts else None

    def fields(self) -> dict[str, Any]:
        """The fields as they are logged."""
        shown: dict[str, Any] = {"step": self.step}
        if not self.resolved_ts:
            why = "the feed carries no watermark" if self.resolved_ts is None else "no watermark yet"
            shown["resolved"] = f"not available, {why}"
        else:
            resolved = wall_clock(self.resolved_ts).isoformat(timespec="milliseconds")
            shown |= {"resolved_ts": self.resolved_ts, "resolved": resolved, "lag_seconds": self.lag_seconds}
        shown |= {name: getattr(self, name) for name in ("messages", "rows", "waiting", "tables", "backlog")}
        shown |= {f"{stage}_seconds": round(spent, 3) for stage, spent in self.seconds.items()}
        return shown | {note: count for note, count in self.notes.items() if count}


Report: TypeAlias = Callable[[StatusLine], None]
"""Called for every step that moved, and of those that wait."""
