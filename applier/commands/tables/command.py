"""Asks the process that holds a changefeed to do something to tables, or does it where there is none."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.catalog_writer import append
from applier.commands.control_reader import ControlView
from applier.commands.tables.preview import preview, progress
from applier.config.settings import Config
from applier.errors import CheckpointConflict, ConfigError, TerminalError
from applier.pipeline.build import assembled
from applier.pipeline.requests import REFUSED
from applier.pipeline.step import Pipeline
from applier.pipeline.table_selection import selected
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals
from applier.runtime.user_name import user_name
from applier.sink.control.control import unix_ms
from applier.sink.control.lease import may_take, process_start, this_process
from applier.sink.control.rows import Kind, TableRequest, request_rows
from applier.sink.control.tables import REQUESTS, namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 1.0
"""Time between two looks at what became of a request."""

Say = Callable[[str], None]
"""Shows the user a line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks for.

    Attributes:
        kind: What is to be done.
        tables: Filter rules of the tables; () for all.
        why: The reason; "" where none is asked for.
    """

    kind: Kind
    tables: tuple[str, ...]
    why: str = ""


def planned(config: Config, asked: Asked) -> list[str]:
    """What a command would do, one sentence a table; it writes nothing.

    Raises:
        ConfigError: The changefeed has not begun, or no table is meant.
        TransientError: The catalog does not answer.
    """
    last = _checkpoint(config)
    return list(preview(asked.kind, selected(asked.tables, last.tables), last, config))


def ask(config: Config, asked: Asked, say: Say, *, take_over: bool = False, spark: SparkSession | None = None) -> str:
    """Have something done to tables.

    While another process holds the changefeed, it does so between two steps, and this waits for it. Otherwise this
    process takes the changefeed for as long as that takes.

    Args:
        config: The configuration.
        asked: What to do.
        say: Shows progress.
        take_over: Take the changefeed even if another applier seems to hold it.
        spark: A running session to use instead of a new one.

    Returns:
        The outcome.

    Raises:
        ConfigError: It cannot be done as it was asked for.
        CheckpointConflict: The holder of the changefeed is older than this command.
        TransientError: Something outside did not answer.
    """
    if asked.kind == "park" and not asked.why.strip():
        raise ConfigError(["--why is empty: say why the table is parked; the checkpoint keeps it."])
    for sentence in planned(config, asked):
        say(sentence)
    who = f"{user_name()} on {this_process(0).host}"
    request = TableRequest(uuid.uuid4().hex, asked.kind, asked.tables or ("*.*",), asked.why, who)
    if not take_over and _is_held(config):
        outcome = _wait(config, request, say)
        if outcome is not None:
            return _accepted(outcome)
    with stop_signals(config.run.stop_seconds) as stop, assembled(config, take_over=take_over, spark=spark) as pipeline:
        outcome = _accepted(with_retry(lambda: _carry_out(pipeline, request)))
        last = ""
        while asked.kind == "resume" and not stop.is_set() and with_retry(lambda: _advance(pipeline)):
            last = _say_progress(pipeline.state.checkpoint, asked, say, last)
        return _ended(pipeline.state.checkpoint, asked, config, outcome) if asked.kind == "resume" else outcome


def _carry_out(pipeline: Pipeline, request: TableRequest) -> str:
    beside = pipeline.beside
    assert beside is not None  # noqa: S101 - `assembled` gives each pipeline one
    return beside.requests.carry_out(request)


def _advance(pipeline: Pipeline) -> bool:
    beside = pipeline.beside
    return beside is not None and beside.advance(is_busy=False)


def _accepted(outcome: str) -> str:
    if outcome.startswith(REFUSED):
        raise ConfigError([outcome.removeprefix(REFUSED)])
    return outcome


def _checkpoint(config: Config) -> Checkpoint:
    with open_lake(config.catalog) as lake:
        last = ControlView(lake, config.changefeed.name).checkpoint()
    if last is None:
        raise ConfigError([f"Changefeed {config.changefeed.name} has never run: it has no tables."])
    return last


def _is_held(config: Config) -> bool:
    try:
        may_take(_checkpoint(config), this_process(unix_ms()), unix_ms(), config.run.lease_seconds, process_start)
    except CheckpointConflict:
        return True
    return False


def _wait(config: Config, request: TableRequest, say: Say) -> str | None:
    """Leave a request for the holder and wait for it; None if the holder is gone, which this process then replaces."""
    where = (namespace(config.changefeed.name), REQUESTS.name)
    if not append(config.catalog, where, request_rows(request)):
        what = f"The applier that holds changefeed {config.changefeed.name} takes no requests: it is an older version."
        raise CheckpointConflict(what, "Stop it and give the command again, or start this version.")
    say(f"Asked {_checkpoint(config).holder} to do so between two steps …")
    asked = Asked(request.kind, request.tables, request.why)
    line, outcome = "", None
    try:
        while outcome is None or request.kind == "resume":
            time.sleep(POLL_SECONDS)
            last = _checkpoint(config)
            outcome = outcome or last.handled.get(request.id)
            if outcome is not None and (outcome.startswith(REFUSED) or request.kind != "resume"):
                return outcome
            if outcome is not None and not _is_resuming(last, asked):
                return _ended(last, asked, config, outcome)
            line = _say_progress(last, asked, say, line)
            if not _is_held(config):
                return None
    except BaseException:
        if outcome is None:
            append(config.catalog, where, request_rows(request, "withdrawn"))
        raise
    return outcome


def _is_resuming(last: Checkpoint, asked: Asked) -> bool:
    return any(_is_due(last, name) for name in selected(asked.tables, last.tables))


def _say_progress(last: Checkpoint, asked: Asked, say: Say, before: str) -> str:
    """Show how far tables are that are being brought back, where it has changed."""
    due = [name for name in selected(asked.tables, last.tables) if _is_due(last, name)]
    known = [last.tables[name].completeness for name in due]
    share = next((progress(item, last) for item in known if item is not None), "")
    line = f"{len(due)} table{'s' if len(due) != 1 else ''} to bring back{share}."
    if due and line != before:
        say(line)
    return line


def _is_due(last: Checkpoint, name: TableName) -> bool:
    known = last.tables[name].completeness
    return known is not None and known.is_due


def _ended(last: Checkpoint, asked: Asked, config: Config, outcome: str) -> str:
    """What became of tables that were to be brought back.

    Args:
        last: The newest checkpoint.
        asked: What the user asked for.
        config: The configuration.
        outcome: What became of the request, which names the tables that were not whole.

    Raises:
        TerminalError: One is parked still.
    """
    names = selected(asked.tables, last.tables)
    for name in names:
        known = last.tables[name].completeness
        if known is not None and known.is_parked and not known.is_due:
            raise TerminalError(known.sentence(name), known.way_out(name, config.path))
    left = [str(name) for name in names if _is_due(last, name)]
    if left:
        return f"resumes: {', '.join(left)}; `applier run` does the rest."
    states = [(name, last.tables[name].completeness) for name in names]
    lacking = [known.sentence(name) for name, known in states if known is not None and not known.is_live]
    return " ".join([outcome.replace("resumes:", "resumed:", 1), *lacking])
