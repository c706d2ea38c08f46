"""Carries out what commands ask for: to park tables, to bring them back, and to forget them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from applier.changefeed.completeness import LEFT_OUT, Completeness
from applier.changefeed.filter import TableFilter, option
from applier.changefeed.table import TableName
from applier.ddl.actions import DropTable
from applier.errors import ConfigError
from applier.pipeline.table_selection import selected
from applier.pipeline.tables import completeness, parking
from applier.runtime import failpoints
from applier.runtime.logs import logger
from applier.sink.control.rows import TableRequest, open_requests, request_rows
from applier.sink.control.tables import REQUESTS
from applier.sink.iceberg.maintenance import unset_properties

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline
    from applier.sink.control.control import Control

LOOK_SECONDS = 1.0
"""Time between two looks for requests."""

REFUSED = "refused: "
"""How the outcome of a request begins that was not carried out."""


@dataclass(slots=True)
class Requests:
    """The requests to one changefeed.

    Args:
        main: Its pipeline.
        clock: Monotonic seconds.
    """

    main: Pipeline
    clock: Callable[[], float] = time.monotonic
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
        requests.refresh()
        if requests.table.snapshot_id != self._head:
            for request in open_requests(requests.rows().to_pylist()):
                self.carry_out(request)
            requests.refresh()
        self._head, self._next_look = requests.table.snapshot_id, self.clock() + LOOK_SECONDS

    def carry_out(self, request: TableRequest) -> str:
        """Carry out one request, once; the checkpoint has its effect and its outcome, or neither.

        Returns:
            The outcome in words.
        """
        state, control = self.main.state, cast("Control", self.main.state.control)
        failpoints.reach("request-taken")
        outcome = state.checkpoint.handled.get(request.id)
        if outcome is None:
            before = dict(state.completeness)
            try:
                outcome = self._done(request)
            except ConfigError as error:
                outcome = REFUSED + " ".join(error.problems)
                state.completeness = before
            state.keep(completeness.cut(state, self.main.targets), state.checkpoint.resuming, {request.id: outcome})
            logger().info(
                "request", kind=request.kind, tables=",".join(request.tables), outcome=outcome, who=request.who
            )
        failpoints.reach("request-done")
        control.write(REQUESTS, request_rows(request, outcome))
        return outcome

    def _done(self, request: TableRequest) -> str:
        names = selected(request.tables, {**dict.fromkeys(self.main.state.tables), **self.main.state.completeness})
        match request.kind:
            case "park":
                return self._park(names, request)
            case "resume":
                return self._resume(names)
            case "forget":
                return self._forget(names)

    def _park(self, names: Sequence[TableName], request: TableRequest) -> str:
        state = self.main.state
        for name in names:
            parking.park(state, self.main.targets, name, "hand", request.why)
            known = state.completeness[name]
            if known.cause != "include" or known.is_due:
                state.completeness[name] = replace(known, cause="hand", reason=request.why, is_due=False)
        return f"parked: {', '.join(map(str, names))}."

    def _resume(self, names: Sequence[TableName]) -> str:
        state = self.main.state
        wanted = [name for name in names if self._lacks(name)]
        if not wanted:
            raise ConfigError([f"Nothing to resume: {', '.join(map(str, names))} is live."])
        together = list(wanted)
        for name in together:
            together += [other for other in state.completeness[name].partners if other not in together]
        for name in together:
            if self._lacks(name):
                state.completeness[name] = self._due(name, state.completeness[name])
        return f"resumes: {', '.join(map(str, together))}."

    def _lacks(self, name: TableName) -> bool:
        """Whether a table lacks something, also where others have damaged it since the start."""
        known, targets = self.main.state.completeness.get(name), self.main.targets
        is_listed = targets.identifier(name) in self.main.state.checkpoint.snapshots
        return known is not None and (not known.is_live or targets.damage(name, is_listed=is_listed) is not None)

    def _due(self, name: TableName, known: Completeness) -> Completeness:
        """A table as it is to be brought back.

        Raises:
            ConfigError: The feed cannot bring it back.
        """
        state, targets = self.main.state, self.main.targets
        if not TableFilter(self.main.config.tables.include).admits(name):
            raise ConfigError([f"Table {name} is {LEFT_OUT}: admit it there and start `applier run` again."])
        if known.is_due:
            return known
        position = known.position
        damage = targets.damage(name, is_listed=position is not None and position.version is not None)
        if position is None or damage is not None or known.cause == "lost" or not known.is_parked:
            found = completeness.begun(state).get(name) if targets.feed.order.parts_at_ddl else None
            if found is None:
                why = damage.what if damage is not None else known.sentence(name)
                what = (
                    f"{why} The feed brings it back from its CREATE TABLE alone, which the audit of DDL does not hold."
                )
                adopt = f"applier adopt -c {self.main.config.path} --tables {option([name])} --why TEXT"
                raise ConfigError([f"{what} Load its rows by other means, then run `{adopt}`."])
            position = found.position
        since = known.since or state.resolved_ts
        cause = known.cause or "hand"
        # From its CREATE TABLE on, the table lacks nothing.
        lacked = known.lacked if position.version is not None else ""
        return replace(known, state="parked", since=since, cause=cause, position=position, lacked=lacked, is_due=True)

    def _forget(self, names: Sequence[TableName]) -> str:
        state, targets = self.main.state, self.main.targets
        admits = TableFilter(self.main.config.tables.include).admits
        wanted = [name for name in names if admits(name)]
        if wanted:
            what = f"Table {wanted[0]} would begin again as incomplete with its next row:"
            way_out = f"leave it out first, with '!{wanted[0]}' in tables.include, and start `applier run` again."
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
        return f"forgotten: {', '.join(map(str, names))}. The Iceberg tables stay as they are: {kept}."
