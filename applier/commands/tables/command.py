"""Asks the process that holds a changefeed to do something to tables, or does it where there is none."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import open_lake
from applier.commands.catalog_writer import append
from applier.commands.control_reader import ControlView
from applier.commands.tables.preview import preview, progress
from applier.commands.user_name import user_name
from applier.config.settings import Config
from applier.errors import CheckpointConflict, ConfigError, TerminalError
from applier.pipeline.build import assembled
from applier.pipeline.requests import REFUSED
from applier.pipeline.table_selection import selected
from applier.runtime import terminal
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals
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


def planned(config: Config, kind: Kind, rules: Sequence[str]) -> list[str]:
    """What a command would do to the tables of some filter rules, one sentence a table; it writes nothing.

    Raises:
        ConfigError: The changefeed has not begun, or no table is meant.
        TransientError: The catalog does not answer.
    """
    last = _checkpoint(config)
    return list(preview(kind, selected(rules, last.tables), last, config))


def ask(
    config: Config,
    kind: Kind,
    rules: Sequence[str],
    why: str,
    say: Say,
    *,
    take_over: bool = False,
    spark: SparkSession | None = None,
) -> str:
    """Have something done to the tables of some filter rules, for a reason; returns the outcome.

    While another process holds the changefeed, it does so between two steps, and this waits for it. Otherwise this
    process takes the changefeed for as long as that takes, in a session of its own unless it is given one.

    Raises:
        ConfigError: It cannot be done as it was asked for.
        CheckpointConflict: The holder of the changefeed is older than this command.
        TransientError: Something outside did not answer.
    """
    if kind == "park" and not why.strip():
        raise ConfigError(["--why is empty: say why the table is parked; the checkpoint keeps it."])
    for sentence in planned(config, kind, rules):
        say(sentence)
    who = f"{user_name()} on {this_process(0).host}"
    request = TableRequest(uuid.uuid4().hex, kind, tuple(rules) or ("*.*",), why, who)
    if not take_over and is_held(config):
        outcome = wait(config, request, say, comes_back=kind == "resume")
        if outcome is not None:
            return accepted(outcome)
    terminal.say("starting Spark …")
    with stop_signals(config.run.stop_seconds) as stop, assembled(config, take_over=take_over, spark=spark) as pipeline:
        beside = pipeline.beside
        assert beside is not None  # noqa: S101 - `assembled` gives each pipeline one
        outcome = accepted(with_retry(lambda: beside.requests.carry_out(request)))
        last = ""
        while kind == "resume" and not stop.is_set() and with_retry(lambda: beside.advance(is_busy=False)):
            last = _say_progress(pipeline.state.checkpoint, request, say, last)
        return ended(pipeline.state.checkpoint, request, config, outcome) if kind == "resume" else outcome


def accepted(outcome: str) -> str:
    """The outcome of a request; raises ConfigError for one that was refused."""
    if outcome.startswith(REFUSED):
        raise ConfigError([outcome.removeprefix(REFUSED)])
    return outcome


def _checkpoint(config: Config) -> Checkpoint:
    with open_lake(config.catalog) as lake:
        last = ControlView(lake, config.changefeed.name).checkpoint()
    if last is None:
        raise ConfigError([f"Changefeed {config.changefeed.name} has never run: it has no tables."])
    return last


def is_held(config: Config) -> bool:
    """Whether another process holds the changefeed."""
    with open_lake(config.catalog) as lake:
        last = ControlView(lake, config.changefeed.name).checkpoint()
    if last is None:
        return False
    try:
        may_take(last, this_process(unix_ms()), unix_ms(), config.run.lease_seconds, process_start)
    except CheckpointConflict:
        return True
    return False


def wait(config: Config, request: TableRequest, say: Say, *, comes_back: bool) -> str | None:
    """Leave a request for the holder and wait for it; None if the holder is gone, which this process may then replace.

    With `comes_back`, wait for the tables to be brought back as well.
    """
    where = (namespace(config.changefeed.name), REQUESTS.name)
    if not append(config.catalog, where, request_rows(request)):
        what = f"The applier that holds changefeed {config.changefeed.name} takes no requests: it is an older version."
        raise CheckpointConflict(what, "Stop it and give the command again, or start this version.")
    say(f"Asked {_checkpoint(config).holder} to do so between two steps …")
    line, outcome = "", None
    try:
        while outcome is None or comes_back:
            time.sleep(POLL_SECONDS)
            last = _checkpoint(config)
            outcome = outcome or last.handled.get(request.id)
            if outcome is not None and (outcome.startswith(REFUSED) or not comes_back):
                return outcome
            if outcome is not None and not _due(last, request):
                return ended(last, request, config, outcome)
            line = _say_progress(last, request, say, line)
            if not is_held(config):
                return None
    except BaseException:
        if outcome is None:
            append(config.catalog, where, request_rows(request, "withdrawn"))
        raise
    return outcome


def _due(last: Checkpoint, request: TableRequest) -> dict[TableName, Completeness]:
    """The tables of a request that are still to be brought back."""
    return {name: known for name, known in _asked_for(last, request).items() if known.is_due}


def _asked_for(last: Checkpoint, request: TableRequest) -> dict[TableName, Completeness]:
    states = ((name, last.tables[name].completeness) for name in selected(request.tables, last.tables))
    return {name: known for name, known in states if known is not None}


def _say_progress(last: Checkpoint, request: TableRequest, say: Say, before: str) -> str:
    """Show how far tables are that are being brought back, where it has changed."""
    due = _due(last, request)
    share = next((progress(known, last) for known in due.values()), "")
    line = f"{len(due)} table{'s' if len(due) != 1 else ''} to bring back{share}."
    if due and line != before:
        say(line)
    return line


def ended(last: Checkpoint, request: TableRequest, config: Config, outcome: str) -> str:
    """What became of tables that were to be brought back; the outcome of the request names those that were not whole.

    Raises:
        TerminalError: One is parked still.
    """
    states = _asked_for(last, request)
    for name, known in states.items():
        if known.is_parked and not known.is_due:
            raise TerminalError(known.sentence(name), known.way_out(name, config.path))
    if due := _due(last, request):
        return f"resumes: {', '.join(map(str, due))}; `applier run` does the rest."
    lacking = [known.sentence(name) for name, known in states.items() if not known.is_live]
    return " ".join([outcome.replace("resumes:", "resumed:", 1).replace("catching up:", "loaded:", 1), *lacking])
