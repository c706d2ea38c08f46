"""Loads an export, and hands its tables over to the changefeed: at its beginning, or while it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from applier import wording
from applier.changefeed.completeness import Why
from applier.changefeed.filter import exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.commands.load.outlook import Opened, gone_on, megabytes, opened, reach, unproven
from applier.commands.plan.read_only_pipeline import looking
from applier.commands.tables.command import Say, accepted, is_held, requested, waited
from applier.config.settings import Config
from applier.errors import TerminalError
from applier.pipeline.build import assembled
from applier.pipeline.load.begin import begin, is_unstarted
from applier.pipeline.load.loading import Loader, mark_of
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.loads import LoadRecord
from applier.runtime.figures import counted, span
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals
from applier.sink.control.rows import TableRequest


@dataclass(slots=True)
class LoadProgress:
    """Counts what was loaded of so many bytes, and shows it by `say`; threads may share it. The clock is monotonic."""

    size: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    rows: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    _read: int = field(default=0, init=False)
    _start: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def add(self, name: TableName, rows: int, size: int) -> None:
        """Take rows and bytes of files that are in a table; bytes without rows are those of an earlier attempt."""
        with self._lock:
            self.rows += rows
            self.done += size
            self._read += size if rows else 0
            if rows:
                self.say(f"{name}: {counted(rows, 'row')}; in all {self._line()}")

    def _line(self) -> str:
        seconds = max(0.001, self.clock() - self._start)
        rate = self._read / seconds
        # The first small files take as long as a job of Spark, and tell nothing of the others.
        is_telling = self._read > self.size // 50 and self.size - self.done > rate
        left = f", {span(round((self.size - self.done) / rate))} left" if is_telling else ""
        rows = counted(self.rows, "row")
        return f"{rows}, {megabytes(self.done)} of {megabytes(self.size)}, {megabytes(int(rate))}/s{left}"


class LoadOutcome(NamedTuple):
    """What became of the tables of a load, in one sentence, and why some could not be loaded."""

    what: str
    refused: Sequence[str]


_UNFINISHED = "What is loaded so far stays: give the same command again, which goes on."

_NOTHING = LoadOutcome("Nothing is left to load.", ())


def planned(
    config: Config, address: str | None, rules: Sequence[str], *, at: int | None = None, again: bool = False
) -> list[str]:
    """What `load` would read and show, one sentence each; it writes nothing, and raises what it would refuse."""
    export, left = opened(config, address, rules, at), list[str]()
    with looking(config) as pipeline:
        export = gone_on(config, pipeline, export, rules, at)
        lines = export.lines()
        export = _lacking(pipeline, export, left.append, again=again)
        if not export.names:
            return [*lines, *left, _NOTHING.what]
        doubts = list[str]()
        readings = _led_on(pipeline, export, doubts.append)
        places = ", ".join(f"{place} from offset {reading.next_offset}" for place, reading in sorted(readings.items()))
        if is_unstarted(pipeline):
            end = f"The changefeed begins at resolved ts {export.export.tso}."
        else:
            end = "`applier run` applies what the feed has changed since, and then shows the tables in one commit each."
        return [*lines, *left, *doubts, f"The feed leads on from there: {places}.", end]


def load(
    config: Config,
    address: str | None,
    rules: Sequence[str],
    say: Say,
    *,
    at: int | None = None,
    again: bool = False,
    take_over: bool = False,
) -> LoadOutcome:
    """Load the tables that rules mean, and hand them over; `again` those too that are live.

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
    export = opened(config, address, rules, at)
    if not take_over and is_held(config):
        with looking(config) as pipeline:
            return _beside(pipeline, _shown(gone_on(config, pipeline, export, rules, at), say), say, again=again)
    with (
        stop_signals(config.run.stop_seconds, _UNFINISHED) as stop,
        assembled(config, take_over=take_over) as pipeline,
    ):
        export = _shown(gone_on(config, pipeline, export, rules, at), say)
        export = _lacking(pipeline, export, say, again=again)
        if not export.names:
            is_followed = pipeline.state.resolved_ts > export.export.tso
            return _NOTHING if is_followed else _NOTHING._replace(what=f"{_NOTHING.what} {_next(config)}")
        _led_on(pipeline, export, say)
        begins, follower = is_unstarted(pipeline), Follower(pipeline)
        if begins and export.left_out:
            say(f"Not loaded: {', '.join(map(str, export.left_out))}. They begin as incomplete tables.")

        def ask(request: TableRequest) -> str:
            return wording.outcome(accepted(with_retry(lambda: follower.requests.carry_out(request))))

        done = _brought(pipeline, export, say, ask, nullcontext(stop))
        if begins:
            with_retry(lambda: begin(pipeline, export.export.tso))
            while not stop.is_set() and with_retry(follower.piece):
                pass
        states = {name: pipeline.state.completeness[name] for name in export.names}
        if not begins or any(known.is_due for known in states.values()):
            return done._replace(what=f"{done.what} `applier run -c {config.path}` does the rest.")
        shown = counted(sum(not known.is_parked for known in states.values()), "table")
        lost = [wording.sentence(name, known) for name, known in states.items() if known.why is Why.CATCHING_UP]
        refused = (*done.refused, *lost)
        then = _next(config) if not refused else _left(config, len(refused))
        what = f"Loaded {shown}: the changefeed begins at resolved ts {export.export.tso}. {then}"
        return LoadOutcome(what, refused)


def _left(config: Config, tables: int) -> str:
    """What to do where some tables are not loaded: a start would follow the others, and leave these parked."""
    are = "is" if tables == 1 else "are"
    what = f"{counted(tables, 'table')} {are} parked without rows. Do what follows for each, and give the command again"
    return f"{what}; `applier run -c {config.path}` follows the others alone."


def _next(config: Config) -> str:
    return f"Next, {wording.start(config.path)}"


def _lacking(main: Pipeline, export: Opened, say: Say, *, again: bool) -> Opened:
    """The export without the tables that are live and have its rows, and without any live ones that no rule means.

    The first would be read once more for nothing; the others the feed keeps equal.
    """
    live = [] if again else [name for name in export.names if _is_live(main, name)]
    if not live:
        return export
    same = [name for name in live if _has_rows(main, export, name)]
    others = [name for name in live if name not in same and not export.is_chosen]
    if shown := ", ".join(map(str, same)):
        say(f"These tables have the rows of this export already: {shown}. To load them once more, give --again.")
    if shown := ", ".join(map(str, others)):
        say(f"These tables are live, and the feed keeps them equal: {shown}. To load them all the same, give --again.")
    return replace(export, names=[name for name in export.names if name not in (*same, *others)])


def _is_live(main: Pipeline, name: TableName) -> bool:
    known = main.state.completeness.get(name)
    return known is not None and known.is_live and main.targets.damage(name) is None


def _has_rows(main: Pipeline, export: Opened, name: TableName) -> bool:
    table = main.targets.catalog.load(main.targets.identifier(name))
    load = None if table is None else LoadRecord.told_by(table.properties)
    own = (export.export.tso, repr(export.form), mark_of(export.export, name))
    return load is not None and load.is_complete and (load.tso, load.form, load.mark) == own


def _led_on(main: Pipeline, export: Opened, say: Say) -> Mapping[TopicPartition, Reading]:
    """Where the feed leads on from an export, which is refused where it does not; print what could not be verified."""
    readings = with_retry(lambda: reach(main, export))
    for line in with_retry(lambda: unproven(main, export.export.tso)):
        say(line)
    return readings


def _shown(export: Opened, say: Say) -> Opened:
    for line in export.lines():
        say(line)
    return export


def _beside(pipeline: Pipeline, export: Opened, say: Say, *, again: bool) -> LoadOutcome:
    config = pipeline.config

    def ask(request: TableRequest) -> str:
        return waited(config, request, say, comes_back=request.kind == "loaded")

    export = _lacking(pipeline, export, say, again=again)
    if not export.names:
        return _NOTHING
    _led_on(pipeline, export, say)
    return _brought(pipeline, export, say, ask, stop_signals(config.run.stop_seconds, _UNFINISHED))


def _brought(
    main: Pipeline,
    export: Opened,
    say: Say,
    ask: Callable[[TableRequest], str],
    stopping: AbstractContextManager[threading.Event],
) -> LoadOutcome:
    """Load tables aside, and ask the holder of the changefeed to let them come back.

    Raises the error of a table that cannot be loaded, where none can, or where the configuration says to stop.
    """
    ask(requested("load", exactly(export.names), ""))
    say("Loading. Readers see the tables once they are handed over; each line below is a commit of some files.")
    with stopping as stop:
        refused = _bulk(main, export, say, stop)
    ways = main.config.ways_out
    for name, error in refused.items():
        # Nothing loads it any more, and `status` is to say why; another load may have brought it meanwhile.
        mend = ways.of_error(error.mend, name).rstrip(".")
        first = f"; first, {mend[:1].lower()}{mend[1:]}" if mend else ""
        ask(requested("load", exactly([name]), f"{error.clause}{first}"))
    if refused and (len(refused) == len(export.names) or main.config.changefeed.on_table_error == "stop"):
        raise next(iter(refused.values()))
    loaded = [name for name in export.names if name not in refused]
    outcome = ask(requested("loaded", exactly(loaded), ""))
    said = tuple(str(error.worded(error.what, ways.of_error(error.hint, name))) for name, error in refused.items())
    return LoadOutcome(f"{outcome[:1].upper()}{outcome[1:]}", said)


def _bulk(main: Pipeline, export: Opened, say: Say, stop: threading.Event) -> Mapping[TableName, TerminalError]:
    """Load tables aside; returns those that cannot be, with the reason."""
    # Tables aside are no part of the changefeed yet: what two loads write to one of them, its commits show.
    loader = partial(Loader, replace(main.targets, confirm=lambda: None), export.export, export.form)
    return with_retry(lambda: loader(LoadProgress(export.size, say).add, stop).all(export.names))
