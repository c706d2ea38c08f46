"""Loads an export, and hands its tables over to the changefeed: at its beginning, or while it goes on."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from applier import wording
from applier.changefeed.filter import exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.commands.load.outlook import Opened, opened, reach, unproven
from applier.commands.load.progress import LoadProgress
from applier.commands.plan.read_only_pipeline import looking
from applier.commands.tables.command import accepted, is_held, waited
from applier.commands.user_name import user_name
from applier.config.settings import Config
from applier.errors import TerminalError
from applier.pipeline.build import assembled
from applier.pipeline.load.begin import begin, is_unstarted
from applier.pipeline.load.loading import Loader
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.loads import LoadRecord
from applier.runtime.figures import counted
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals
from applier.sink.control.lease import this_process
from applier.sink.control.rows import Kind, TableRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
"""Shows the user a line."""


class LoadOutcome(NamedTuple):
    """What became of the tables of a load, in one sentence, and why some could not be loaded."""

    what: str
    refused: Sequence[str]


def planned(
    config: Config, address: str | None, rules: Sequence[str], *, spark: SparkSession | None = None
) -> list[str]:
    """What `load` would read and show, one sentence each; it writes nothing, and raises what it would refuse."""
    export = opened(config, address, rules)
    with looking(config, spark=spark) as pipeline:
        readings = reach(pipeline, export)
        places = ", ".join(f"{place} from offset {reading.next_offset}" for place, reading in sorted(readings.items()))
        if is_unstarted(pipeline):
            end = f"The changefeed begins at resolved ts {export.export.tso}."
        else:
            end = "`applier run` applies what the feed has changed since, and then shows the tables in one commit each."
        doubts = unproven(pipeline, export.export.tso)
        return [*export.lines(), *doubts, f"The feed leads on from there: {places}.", end]


def load(
    config: Config,
    address: str | None,
    rules: Sequence[str],
    say: Say,
    *,
    take_over: bool = False,
    spark: SparkSession | None = None,
) -> LoadOutcome:
    """Load the tables that rules mean, and hand them over.

    While another process holds the changefeed, the tables are loaded beside it, and it takes them over between two
    steps. Otherwise this process takes the changefeed for as long as that takes. After a crash at any point the same
    command goes on.

    Raises:
        ConfigError: The export cannot be loaded, or not these tables.
        SourceLost: The feed does not hold everything since the export.
        ValueRefused: No table can be loaded, or one cannot and the configuration says to stop.
        CheckpointConflict: Another process loads the same tables.
        TransientError: Something outside did not answer.
    """
    export = opened(config, address, rules)
    for line in export.lines():
        say(line)
    if not take_over and is_held(config):
        return _beside(config, export, say, spark)
    with stop_signals(config.run.stop_seconds) as stop, assembled(config, take_over=take_over, spark=spark) as pipeline:
        readings = _led_on(pipeline, export, say)
        begins = is_unstarted(pipeline)
        if begins and export.left_out:
            say(f"Not loaded: {', '.join(map(str, export.left_out))}. They begin as incomplete tables.")
        _asked(pipeline, "load", export.names)
        shown = {name for name in export.names if begins and _is_shown(pipeline, export, name)}
        refused = _bulk(pipeline, [name for name in export.names if name not in shown], export, say, stop)
        names = [name for name in export.names if name not in refused]
        for name, error in refused.items():
            known = pipeline.state.completeness[name]
            pipeline.state.completeness[name] = replace(known, reason=replace(known.reason, detail=error.clause))
        if begins:
            with_retry(lambda: begin(pipeline, names, readings))
            what = f"Loaded {counted(len(names), 'table')}: the changefeed begins at resolved ts {export.export.tso}."
        else:
            outcome = _asked(pipeline, "loaded", names)
            what = f"{outcome[:1].upper()}{outcome[1:]} `applier run -c {config.path}` does the rest."
        return LoadOutcome(what, tuple(map(str, refused.values())))


def _led_on(main: Pipeline, export: Opened, say: Say) -> Mapping[TopicPartition, Reading]:
    """Find the offsets to read from; print what could not be verified."""
    readings = with_retry(lambda: reach(main, export))
    for line in with_retry(lambda: unproven(main, export.export.tso)):
        say(line)
    return readings


def _is_shown(main: Pipeline, export: Opened, name: TableName) -> bool:
    """Whether an attempt that was killed at its very end has shown a table already."""
    writer = main.targets.writer(name)
    found = None if writer is None else LoadRecord.told_by(writer.table.properties)
    return found is not None and found.is_complete and found.tso == export.export.tso


def _asked(main: Pipeline, kind: Kind, names: Sequence[TableName]) -> str:
    return wording.outcome(accepted(with_retry(lambda: Requests(main).carry_out(_request(kind, names)))))


def _beside(config: Config, export: Opened, say: Say, spark: SparkSession | None) -> LoadOutcome:
    with looking(config, spark=spark) as pipeline:
        _led_on(pipeline, export, say)
        _asked_beside(config, _request("load", export.names), say)
        with stop_signals(config.run.stop_seconds) as stop:
            refused = _bulk(pipeline, export.names, export, say, stop)
        for name, error in refused.items():
            # Nothing loads it any more, and `status` is to say why; another load may have brought it meanwhile.
            _asked_beside(config, _request("load", [name], error.clause), say)
        names = [name for name in export.names if name not in refused]
        outcome = _asked_beside(config, _request("loaded", names), say)
        return LoadOutcome(f"{outcome[:1].upper()}{outcome[1:]}", tuple(map(str, refused.values())))


def _asked_beside(config: Config, request: TableRequest, say: Say) -> str:
    return waited(config, request, say, comes_back=request.kind == "loaded")


def _bulk(
    main: Pipeline, names: Sequence[TableName], export: Opened, say: Say, stop: threading.Event
) -> Mapping[TableName, TerminalError]:
    """Load tables aside; those that cannot be come back with the reason, unless they are all or one is to stop it."""
    size = sum(map(export.export.size, names))
    # Tables aside are no part of the changefeed yet: what two loads write to one of them, its commits show.
    targets = replace(main.targets, confirm=lambda: None)

    def load_all() -> Mapping[TableName, TerminalError]:
        return Loader(targets, export.export, export.form, LoadProgress(size, say).add, stop).all(names)

    refused = with_retry(load_all)
    if refused and (len(refused) == len(names) or main.config.changefeed.on_table_error == "stop"):
        raise next(iter(refused.values()))
    return refused


def _request(kind: Kind, names: Sequence[TableName], why: str = "") -> TableRequest:
    who = f"{user_name()} on {this_process(0).host}"
    return TableRequest(uuid.uuid4().hex, kind, exactly(names), why, who)
