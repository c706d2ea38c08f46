"""Asks the process that holds a changefeed to do something to tables, or does it where there is none."""

from __future__ import annotations

import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from applier import wording
from applier.changefeed.checkpoint import Checkpoint, RequestOutcome, caught_up
from applier.changefeed.completeness import Completeness, Reason, Why, incomplete
from applier.changefeed.filter import TableFilter, named
from applier.changefeed.table import TableName
from applier.commands.before_spark import refuse, refuse_held
from applier.commands.catalog_reader import catalog_properties, reported
from applier.commands.control_reader import newest_checkpoint
from applier.commands.follower import Follower
from applier.config.settings import CatalogSection, Config
from applier.errors import CheckpointConflict, ConfigError, TerminalError, TransientError
from applier.pipeline.build import assembled
from applier.pipeline.table_selection import selected
from applier.runtime.figures import counted
from applier.runtime.logs import announce
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import stop_signals
from applier.sink.commit.committer import retrying
from applier.sink.control.lease import this_process
from applier.sink.control.rows import Kind, TableRequest, request_rows
from applier.sink.control.tables import REQUESTS, namespace

POLL_SECONDS = 1.0
"""Time between two looks at what became of a request."""

ABSENT_SECONDS = 90.0
"""How long a request is waited for while no process holds the changefeed: a supervisor starts one within that time."""

_LEFT_OUT = wording.clause(Reason(Why.LEFT_OUT))

_ASKED: Mapping[Kind, str] = {
    "park": "park {}",
    "resume": "bring {} back",
    "forget": "forget {}",
    "load": "leave {} to this load",
    "loaded": "take over what was loaded of {}",
    "reload": "read its configuration file again",
}
"""What a holder is asked for; `{}` are the tables."""

Say = Callable[[str], None]
"""Shows the user a line."""


def planned(config: Config, kind: Kind, rules: Sequence[str]) -> list[str]:
    """What a command would do to the tables of some filter rules, one sentence a table; it writes nothing.

    Raises ConfigError where the changefeed has not begun, or no table matches.
    """
    last = _checkpoint(config)
    return list(_preview(kind, selected(rules, last.tables), last, config))


def _preview(kind: Kind, names: Sequence[TableName], last: Checkpoint, config: Config) -> Iterator[str]:
    route, admits = config.route, config.filter.admits
    for name in names:
        known = last.tables[name].completeness or incomplete(Why.UNRECORDED)
        iceberg = ".".join(route.identifier(name))
        match kind:
            case "park":
                yield _park(name, known, last, iceberg)
            case "resume" if not admits(name):
                yield f"{name} is {_LEFT_OUT}, so nothing brings it back."
            case "resume":
                yield _resume(name, known, last)
            case "forget" if admits(name):
                yield f"{name} is in tables.include, so it cannot be forgotten."
            case "forget":
                yield f"Forget {name}: the checkpoint and the applier.* properties of {iceberg} go, the table stays."


def _park(name: TableName, known: Completeness, last: Checkpoint, iceberg: str) -> str:
    if known.why.is_left_out and not known.is_due:
        return f"{name} is {_LEFT_OUT} and so parked already: it resumes once it is admitted there again."
    if known.is_parked and not known.is_due:
        return f"{wording.sentence(name, known)} It is left as it is, with this reason."
    at = f"resolved ts {last.resolved_ts}" if last.resolved_ts else "its last commit"
    return f"Park {name}: readers of {iceberg} keep what it shows at {at}, and no rows or DDL are applied to it."


def _resume(name: TableName, known: Completeness, last: Checkpoint) -> str:
    if known.is_live:
        return f"{name} is live: it resumes only if others have dropped, replaced or rolled back its Iceberg table."
    if known.is_due:
        return f"{name} resumes already{_progress(known, last)}."
    position = known.position
    if position is None or position.version is None:
        begin = "read the feed from its CREATE TABLE on, if control table schema_changes holds that"
        return f"Resume {name}: {begin}, and show it in one commit."
    begin = f"resolved ts {position.ts}" if position.ts else "where it was parked"
    missing = f"read what it misses since {begin} up to {last.resolved_ts or 'now'}"
    return f"Resume {name}: {missing}, and show it in one commit."


def _progress(known: Completeness, last: Checkpoint) -> str:
    """How far the resume of a table is, in words; "" while that is not known."""
    share = caught_up(known, last)
    return "" if share is None else f", {share:.0%} of the way"


def ask(config: Config, kind: Kind, rules: Sequence[str], why: str, say: Say, *, take_over: bool = False) -> str:
    """Have something done to the tables of some filter rules, for a reason; returns the outcome.

    While another process holds the changefeed, it does so between two steps, and this waits for it. Otherwise this
    process takes the changefeed for as long as that takes. The request is kept before anything is done for it: whatever
    dies, it is carried out once, by the next process if need be.

    Raises:
        ConfigError: It cannot be done as it was asked for.
        CheckpointConflict: The holder of the changefeed is older than this command.
        TransientError: Something outside did not answer.
    """
    if kind == "park" and not why.strip():
        raise ConfigError(["--why is missing: say why the table is parked; the checkpoint keeps it."])
    for sentence in planned(config, kind, rules):
        say(sentence)
    request = requested(kind, tuple(rules) or ("*.*",), why)
    if take_over or not is_held(config):
        try:
            return _done(config, request, say, take_over=take_over)
        except CheckpointConflict:
            if take_over or not is_held(config):
                raise
            # A process has come first: the request is for that one.
    return waited(config, request, say, comes_back=kind == "resume")


def _done(config: Config, request: TableRequest, say: Say, *, take_over: bool) -> str:
    refuse(config, take_over=take_over, reads=request.kind == "resume")
    announce("starting Spark …")
    with stop_signals(config.run.stop_seconds) as stop, assembled(config, take_over=take_over) as pipeline:
        follower = Follower(pipeline)
        outcome = accepted(with_retry(lambda: follower.requests.ask(request)))
        if request.kind != "resume":
            return wording.outcome(outcome)
        last = ""
        while not stop.is_set() and with_retry(follower.piece):
            last = _say_progress(pipeline.state.checkpoint, request, say, last)
        return ended(pipeline.state.checkpoint, request, config, outcome)


def accepted(outcome: RequestOutcome) -> RequestOutcome:
    """The outcome of a request; raises ConfigError for one that was refused."""
    if outcome.is_refused:
        raise ConfigError(list(outcome.notes))
    return outcome


def _checkpoint(config: Config) -> Checkpoint:
    last = newest_checkpoint(config)
    if last is None:
        raise ConfigError([f"Changefeed {config.changefeed.name} has never run: it has no tables."])
    return last


def is_held(config: Config) -> bool:
    """Whether another process holds the changefeed."""
    return _holds(newest_checkpoint(config), config)


def _holds(last: Checkpoint | None, config: Config) -> bool:
    try:
        refuse_held(config, last)
    except CheckpointConflict:
        return True
    return False


def waited(config: Config, request: TableRequest, say: Say, *, comes_back: bool) -> str:
    """Leave a request for the holder of the changefeed, and wait for it; with `comes_back` for the tables as well.

    Where the holder is gone, this waits for the next one, and never takes its place: a supervisor starts it again, and
    it must not find the changefeed taken. Returns the outcome in words.

    Raises:
        ConfigError: The request was refused.
        TerminalError: No process has come. The request is kept.
    """
    holder, where = _looked(config).lease.holder, (namespace(config.changefeed.name), REQUESTS.name)
    if not with_retry(lambda: append(config.catalog, where, request_rows(request))):
        what = f"The control table requests of changefeed {config.changefeed.name} is not in the catalog any more."
        raise CheckpointConflict(what, "stop the applier that holds the changefeed, and give the command again.")
    # That a load has failed is noted, which is no work of which a user waits for the end.
    if not (request.kind == "load" and request.why):
        say(f"Asked {holder} to {_asked(request)}, between two of its steps …")
    try:
        return _awaited(config, request, say, comes_back=comes_back)
    except KeyboardInterrupt:
        if request.id not in _checkpoint(config).handled:
            append(config.catalog, where, request_rows(request, "withdrawn"))
        raise
    except TransientError:
        say(_kept(config))
        raise


def _asked(request: TableRequest) -> str:
    tables = [*map(str, named(request.tables))] or request.tables
    return _ASKED[request.kind].format(wording.several(tables) if tables else "")


def _awaited(config: Config, request: TableRequest, say: Say, *, comes_back: bool) -> str:
    line, outcome, absent = "", None, 0.0
    while absent < ABSENT_SECONDS:
        time.sleep(POLL_SECONDS)
        last = _looked(config)
        outcome = outcome or last.handled.get(request.id)
        if outcome is not None and (not comes_back or outcome.is_refused):
            return wording.outcome(accepted(outcome))
        if outcome is not None and not _due(last, request):
            break
        line = _say_progress(last, request, say, line)
        is_absent = not _holds(last, config)
        if is_absent and not absent:
            say(f"No process holds the changefeed now. {_kept(config)}")
        absent = absent + POLL_SECONDS if is_absent else 0.0
    if outcome is not None:
        return ended(last, request, config, outcome)
    what = f"No process holds changefeed {config.changefeed.name}, so nothing is done yet. {_kept(config)}"
    raise TerminalError(what, f"start `applier run -c {config.path}`; the command need not be given again.")


def _kept(config: Config) -> str:
    return f"The request is kept, and `applier run -c {config.path}` carries it out, once."


def _looked(config: Config) -> Checkpoint:
    return with_retry(lambda: _checkpoint(config))


def _due(last: Checkpoint, request: TableRequest) -> dict[TableName, Completeness]:
    return {name: known for name, known in _asked_for(last, request).items() if known.is_due}


def _asked_for(last: Checkpoint, request: TableRequest) -> dict[TableName, Completeness]:
    # A table that is loaded may not be known yet, and one that was known may be gone.
    means = TableFilter(request.tables).admits
    states = ((name, tracked.completeness) for name, tracked in last.tables.items() if means(name))
    return {name: known for name, known in states if known is not None}


def _say_progress(last: Checkpoint, request: TableRequest, say: Say, before: str) -> str:
    """Show how far each resume is, where it has changed."""
    due = _due(last, request)
    share = next((_progress(known, last) for known in due.values()), "")
    line = f"{counted(len(due), 'table')} to bring back{share}."
    if due and line != before:
        say(line)
    return line


def ended(last: Checkpoint, request: TableRequest, config: Config, outcome: RequestOutcome) -> str:
    """What became of tables that were to be brought back; raises TerminalError where one is parked still."""
    states, due = _asked_for(last, request), _due(last, request)
    done = wording.outcome(replace(outcome, notes=()), is_ended=True)
    if due:
        done = f"resumes: {', '.join(map(str, due))}; `applier run` does the rest."
    # Another load may have begun behind the one that is done: such a table is `loading`.
    left = {name: known for name, known in states.items() if known.shown == "parked" and not known.is_due}
    if outcome.left:
        found = [wording.sentence(name, known) for name, known in left.items() if name not in outcome.left]
        refused = " ".join(outcome.notes)
        raise TerminalError(" ".join([f"{done[:1].upper()}{done[1:]}", *found, f"Refused: {refused}"]))
    for name, known in left.items():
        raise TerminalError(wording.sentence(name, known), config.ways_out.of([name], known))
    lacking = [] if due else [wording.sentence(name, known) for name, known in states.items() if not known.is_live]
    return " ".join([done, *lacking])


def requested(kind: Kind, rules: Sequence[str], why: str) -> TableRequest:
    """A new request of this user for the tables of some filter rules."""
    return TableRequest(uuid.uuid4().hex, kind, tuple(rules), why, who())


def who() -> str:
    """This user and host, for the audit; a user is a number where the system has no name, as in many containers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name} on {this_process(0).host}"


def append(section: CatalogSection, identifier: tuple[str, ...], rows: pa.Table) -> bool:
    """Append rows to a table of a catalog; False if there is no such table. Raises what `reported` does."""
    with reported(f"append to table {'.'.join(identifier)} of catalog {section.name}", section.type):
        catalog = load_catalog(section.name, **catalog_properties(section, is_read_only=False))
        try:
            for attempt in retrying(CommitFailedException, attempts=10):
                with attempt:
                    table = catalog.load_table(identifier)
                    table.append(rows.cast(table.schema().as_arrow()))
        except (NoSuchTableError, NoSuchNamespaceError):
            return False
        finally:
            catalog.close()
    return True
