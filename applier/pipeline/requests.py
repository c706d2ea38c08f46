"""Carries out what commands ask for: to park tables, to bring them back, to forget them, and to reload the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TypeAlias, cast, get_args

from applier import wording
from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import named
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.ddl.actions import DropTable
from applier.errors import ConfigError, TransientError
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.step import Pipeline
from applier.pipeline.table_selection import selected
from applier.pipeline.tables import completeness, loads, parking
from applier.pipeline.tables.loads import LOADED, LoadRecord
from applier.runtime import failpoints
from applier.runtime.logs import logger
from applier.sink.control.control import Control
from applier.sink.control.rows import Kind, TableRequest, open_requests, request_rows
from applier.sink.control.tables import REQUESTS
from applier.sink.iceberg.maintenance import unset_properties

LOOK_SECONDS = 1.0
"""Time between two looks for requests."""

ReadAgain: TypeAlias = Callable[[Pipeline], tuple[Config | None, RequestOutcome]]
"""Reads the file of a configuration again; returns the new one, None where it is the same, and what is made of it. It
raises ConfigError where the process cannot take it up."""


@dataclass(slots=True)
class Requests:
    """The requests to one changefeed.

    A holder that takes up a changed configuration hands over `read_again`; `reloaded` is the one with which it is to
    begin anew, None where there is none.
    """

    main: Pipeline
    clock: Callable[[], float] = time.monotonic
    read_again: ReadAgain | None = None
    reloaded: Config | None = field(default=None, init=False)
    _next_look: float = field(default=0.0, init=False)
    _head: int | None = field(default=None, init=False)

    def take(self) -> None:
        """Carry out the requests that are open, between two steps.

        Raises:
            TransientError: The catalog does not answer.
            CheckpointConflict: Another applier has the changefeed.
        """
        if self.clock() < self._next_look:
            return
        control = cast("Control", self.main.state.control)
        requests = control.tables[REQUESTS]
        requests.table.refresh()
        # Not the head after the outcomes are written: one that came meanwhile would never be read.
        head = requests.table.snapshot_id
        if head != self._head:
            for request in open_requests(requests.rows().to_pylist()):
                control.write(REQUESTS, request_rows(request, wording.outcome(self.carry_out(request))))
                if self.reloaded is not None:
                    # Those behind it may be about what only the new configuration knows.
                    break
        self._head, self._next_look = head, self.clock() + LOOK_SECONDS

    def ask(self, request: TableRequest) -> RequestOutcome:
        """Keep a request of this very process, and carry out all that are open, in the order in which they were made.

        Raises:
            ConfigError: A step that stopped half-way must be finished first; nothing is kept.
        """
        moved_names.refuse_unfinished(self.main.state)
        cast("Control", self.main.state.control).write(REQUESTS, request_rows(request))
        self._next_look = float("-inf")
        self.take()
        return self.main.state.checkpoint.handled[request.id]

    def carry_out(self, request: TableRequest) -> RequestOutcome:
        """Carry out one request, once; the checkpoint has its effect and its outcome, or neither."""
        state = self.main.state
        failpoints.reach("request-taken")
        outcome = state.checkpoint.handled.get(request.id)
        if outcome is None:
            before = dict(state.completeness), state.tables.copy(), dict(state.topics)
            try:
                try:
                    outcome = self._done(request)
                except ConfigError as error:
                    outcome = RequestOutcome("refused", notes=tuple(error.problems))
                    state.completeness, state.tables, state.topics = before
                handled = {request.id: outcome}
                completeness.write(state, self.main.targets, state.checkpoint.resuming, handled)
            except TransientError:
                # The next try would find it half done, and tell of that.
                state.completeness, state.tables, state.topics = before
                raise
            words = wording.outcome(outcome)
            logger().info("request", kind=request.kind, tables=",".join(request.tables), outcome=words, who=request.who)
        failpoints.reach("request-done")
        return outcome

    def _done(self, request: TableRequest) -> RequestOutcome:
        if request.kind not in get_args(Kind):
            holder = f"applier {version('applier')}, which has the changefeed"
            what = f"A request of kind {request.kind} is not known to {holder}"
            way_out = f"end it, and start `applier run -c {self.main.config.path}` of the version that asked"
            raise ConfigError([f"{what}: {way_out}; then give the command again."])
        moved_names.refuse_unfinished(self.main.state)
        if request.kind == "reload":
            return self._reload()
        if request.kind == "load":
            return self._load(named(request.tables), request.why)
        if request.kind == "loaded":
            return self._loaded(named(request.tables))
        names = selected(request.tables, {**dict.fromkeys(self.main.state.tables), **self.main.state.completeness})
        match request.kind:
            case "park":
                return self._park(names, request)
            case "resume":
                return bring_back(self.main, names)
            case "forget":
                return self._forget(names)

    def _reload(self) -> RequestOutcome:
        """Read the file again. What an attempt has found stays until the next one: its checkpoint may have landed."""
        if self.read_again is None:
            what = "The process that holds the changefeed does not follow it, and ends soon"
            raise ConfigError([f"{what}: `applier run -c {self.main.config.path}` reads the file when it starts."])
        self.reloaded = None
        self.reloaded, outcome = self.read_again(self.main)
        return outcome

    def _park(self, names: Sequence[TableName], request: TableRequest) -> RequestOutcome:
        """Park tables; one that is parked already keeps its reason, on which it depends whether a start resumes it.

        One with the reason of the request is parked as asked: the checkpoint of an earlier try may have failed behind
        what the table itself says.
        """
        state, parked, notes = self.main.state, list[TableName](), list[str]()
        reason = Reason(Why.BY_HAND, request.why)
        for name in names:
            known = state.completeness.get(name)
            if known is not None and known.is_parked and not known.is_due and known.reason != reason:
                notes.append(wording.sentence(name, known))
                continue
            parking.park(state, self.main.targets, name, reason)
            state.completeness[name] = replace(state.completeness[name], reason=reason, is_due=False)
            parked.append(name)
        left = tuple(name for name in names if name not in parked)
        return RequestOutcome("parked", tuple(parked), left, tuple(notes))

    def _load(self, names: Sequence[TableName], failed: str) -> RequestOutcome:
        """Park tables while an export is loaded aside, or keep why that has `failed`."""
        state = self.main.state
        self._refuse_left_out(names)
        for name in names:
            known = state.completeness.get(name)
            if not failed and (known is None or not known.needs_export):
                self._discard_load(name)
            if failed:
                if known is not None and known.why is Why.LOADING:
                    state.completeness[name] = replace(known, reason=Reason(Why.LOADING, failed))
            elif known is None:
                state.completeness[name] = Completeness(Reason(Why.LOADING))
            elif known.why.is_loaded and known.is_due:
                # An earlier load comes to its end first: what it has brought is true.
                continue
            else:
                parking.park(state, self.main.targets, name, Reason(Why.LOADING))
                known = state.completeness[name]
                # This load takes the place of what an earlier one has brought: nothing can go on from there.
                position = None if known.position is not None and known.position.is_loaded else known.position
                known = replace(known, reason=Reason(Why.LOADING), position=position, is_due=False)
                state.completeness[name] = known
                self._forget_load(name)
        return RequestOutcome("loading", tuple(names))

    def _refuse_left_out(self, names: Sequence[TableName]) -> None:
        admits = self.main.config.filter.admits
        if others := [name for name in names if not admits(name)]:
            raise left_out(others[0])

    def _discard_load(self, name: TableName) -> None:
        """Forget what an earlier load has left: readers have had its files, and the table may have let them go."""
        targets = self.main.targets
        targets.confirm()
        targets.catalog.drop(loads.place_of(targets.feed.name, name))

    def _forget_load(self, name: TableName) -> None:
        """Let a table not say which export it was loaded from: a load clones it, and the rows since would count."""
        targets = self.main.targets
        table = targets.catalog.load(targets.identifier(name))
        if table is not None and table.setting(LOADED) is not None:
            targets.confirm()
            unset_properties(table, LOADED)

    def _loaded(self, names: Sequence[TableName]) -> RequestOutcome:
        """Let tables come back that an export was loaded into; another load may have brought some back already."""
        # One that was left out while it was loaded would be shown as whole, and get no row from there on.
        self._refuse_left_out(names)
        brought = dict[TableName, LoadRecord]()
        for name in names:
            found, known = loads.find(self.main.targets, name), self.main.state.completeness.get(name)
            if found is not None and found[0].is_complete:
                brought[name] = found[0]
            elif known is None or (known.why.is_loaded and not known.is_due):
                raise ConfigError([f"No export of table {name} is loaded: give the command again."])
        self._hand_over(brought)
        return RequestOutcome("catching up", tuple(names))

    def _hand_over(self, brought: Mapping[TableName, LoadRecord]) -> None:
        state, order, reason = self.main.state, self.main.targets.feed.order, Reason(Why.CATCHING_UP)
        versions = {name: load.version for name, load in brought.items()}
        state.learn({(name, version.version): version for name, version in versions.items()}, {}, {})
        moments = {item.tso for item in brought.values()}
        since = {tso: {} if order.has_watermark else self.main.since(tso) for tso in moments}
        for name, load in brought.items():
            at, number = order.as_of(load.tso) or 0, versions[name].version
            position = FeedPosition(name, at, (), since[load.tso], number, load.partitioning, is_loaded=True)
            parking.park(state, self.main.targets, name, reason)
            known = state.completeness[name]
            state.completeness[name] = replace(known, reason=reason, position=position, lacked=None, is_due=True)

    def _forget(self, names: Sequence[TableName]) -> RequestOutcome:
        state, targets = self.main.state, self.main.targets
        admits = self.main.config.filter.admits
        if (first := next(filter(admits, names), None)) is not None:
            what = f"Table {first} would begin again as incomplete with its next row:"
            way_out = f"leave it out first, with '!{first}' in tables.include, and start `applier run -c FILE` again."
            raise ConfigError([f"{what} {way_out}"])
        for name in names:
            targets.confirm()
            table = targets.catalog.load(targets.identifier(name))
            if table is not None:
                unset_properties(table, "applier.")
            state.tables.apply(DropTable(name), 0)
            state.completeness.pop(name, None)
            state.topics.pop(name, None)
            targets.forget(name)
        kept = ", ".join(".".join(targets.identifier(name)) for name in names)
        return RequestOutcome("forgotten", tuple(names), notes=(f"The Iceberg tables stay as they are: {kept}.",))


def bring_back(main: Pipeline, names: Sequence[TableName]) -> RequestOutcome:
    """Let tables come back, each for itself or with those that it exchanged rows with.

    Returns:
        Which do, and why others do not.

    Raises:
        ConfigError: None can.
    """
    state = main.state
    wanted = [name for name in names if _lacks(main, name)]
    if not wanted:
        raise ConfigError([f"Nothing to resume: {', '.join(map(str, names))} is live."])
    resumed, left, problems = list[TableName](), list[TableName](), list[str]()
    for name in wanted:
        if name in resumed:
            continue
        together = [name]
        for one in together:
            together += [other for other in state.completeness[one].partners if other not in together]
        try:
            due = {one: _due(main, one, state.completeness[one]) for one in together if _lacks(main, one)}
        except ConfigError as error:
            others = f"Table {name} resumes together with {', '.join(map(str, together[1:]))}: "
            problems.append((others if together[1:] else "") + " ".join(error.problems))
            left += [one for one in together if one not in left]
        else:
            state.completeness.update(due)
            resumed += [one for one in together if one not in resumed]
    if not resumed:
        raise ConfigError(problems)
    return RequestOutcome("resumes", tuple(resumed), tuple(left), tuple(problems))


def _lacks(main: Pipeline, name: TableName) -> bool:
    """Whether a table lacks something, also where others have damaged it since the start."""
    known, targets = main.state.completeness.get(name), main.targets
    is_listed = targets.identifier(name) in main.state.checkpoint.cut.heads
    return known is not None and (not known.is_live or targets.damage(name, is_listed=is_listed) is not None)


def _due(main: Pipeline, name: TableName, known: Completeness) -> Completeness:
    """A table as it is to be brought back.

    Raises:
        ConfigError: The feed cannot bring it back.
    """
    state, targets = main.state, main.targets
    if not main.config.filter.admits(name):
        raise left_out(name)
    if known.is_due:
        return known
    position = known.position
    damage = completeness.damage_at(state, targets, name, position)
    if position is None or damage is not None or known.why is Why.LOST or not known.is_parked:
        is_named = Why.NOT_RENAMED not in (known.why, known.lacked and known.lacked.why)
        # Read from there, its rows would go to the table of its former name, as the RENAME is ignored again.
        found = completeness.begun(state).get(name) if targets.feed.order.parts_at_ddl and is_named else None
        if found is None:
            why = damage.what if damage is not None else wording.sentence(name, known)
            what = f"{why} The feed brings it back from its CREATE TABLE alone, which schema_changes does not hold."
            if not is_named:
                what = f"{why} The feed brings it back from its CREATE TABLE alone, behind which its RENAME is ignored."
            load = state.ways.load([name])
            raise ConfigError([f"{what} {load[:1].upper()}{load[1:]}."])
        position = found.position
    since = known.since if known.is_parked else state.resolved_ts
    reason = known.reason if known.is_parked else Reason(Why.REBUILT)
    # From its CREATE TABLE on, the table lacks nothing.
    lacked = known.lacked if position.version is not None else None
    return replace(known, reason=reason, since=since, position=position, lacked=lacked).coming_back


def left_out(name: TableName) -> ConfigError:
    """The refusal of a table that the configuration does not admit."""
    why = wording.clause(Reason(Why.LEFT_OUT))
    return ConfigError([f"Table {name} is {why}: admit it there and start `applier run -c FILE` again."])
