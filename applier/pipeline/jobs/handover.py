"""Hands tables that were brought back over to the changefeed: readers see them, and it goes on with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from applier.changefeed.checkpoint import Resuming
from applier.changefeed.completeness import LIVE, Completeness, Why
from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName
from applier.ddl.actions import DropTable, effect, touches
from applier.ddl.parser import parse
from applier.errors import BY_HAND, RangeRefused, SchemaChangeRefused, TableMismatch
from applier.pipeline.jobs.copies import Copies, forgetting
from applier.pipeline.state import State
from applier.pipeline.tables import completeness, loads, parking
from applier.runtime import failpoints
from applier.runtime.logs import logger

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline

Members = Mapping[TableName, TableName]
"""Tables of a job by the names that they have there, with the names by which readers know them now."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Hands the tables of one job over. After a crash at any point the same may be done again."""

    main: Pipeline
    state: State
    copies: Copies

    def parked(self, members: Members) -> None:
        """Hand over tables with a change that cannot be applied: they are true up to it, and parked again.

        A table that was read again from its CREATE TABLE on may come less far than it was, or not be made at all: then
        it stays as it is.
        """
        found = {own: known for own, known in self.state.completeness.items() if known.is_parked and own in members}
        if not found:
            return
        for own, known in found.items():
            name, states = members[own], self.main.state.completeness
            is_made = known.position is None or known.position.version is not None
            if known.since < states[name].since or not is_made:
                states[name] = replace(states[name], is_due=False, reason=known.reason)
                leave_out(self.state, own)
                continue
            partners = tuple(members.get(other, other) for other in known.partners)
            ended = replace(self._with_late(name, known), origin=None, partners=partners)
            if own not in self.state.tables or self._shown(name, own, ended):
                states[name] = ended
                self._doubt_others(known)
            leave_out(self.state, own)
        failpoints.reach("resume-shown")
        progress = replace(self.state.checkpoint, tables=self.state.tracked())
        completeness.write(self.main.state, self.main.targets, Resuming(self.copies.job, progress))
        self.state.checkpoint = progress

    def all(self, members: Members) -> bool:
        """Hand all tables over, which have every row of the changefeed; False, and none, if they may lack a DDL."""
        if not self._has_all_ddl():
            return False
        self.show({own: name for own, name in members.items() if own == name or not self._is_renamed(own, name)})
        return True

    def _is_renamed(self, own: TableName, name: TableName) -> bool:
        """Drop a table from the job that the feed has renamed, and the changefeed has not; whether it is one.

        Readers would see its rows in place of those of the table that has the name. The changefeed may have refused
        the rename, or an export may be older than it.
        """
        origin = self.state.completeness[own].origin
        if origin is not None:
            of_what = " of the export" if origin.is_loaded else ""
            self.let_go(name, f"Table {name}{of_what} was renamed to {own} since")
        return origin is not None

    def let_go(self, name: TableName, what: str) -> None:
        """Drop a table from the job whose rows belong to no table any more, or to another one."""
        if name in self.main.state.tables:
            parking.give_up(self.main.state, name, TableMismatch(f"{what}.", BY_HAND), is_lost=True)
        else:
            # The changefeed has no table of the name.
            self.main.state.completeness.pop(name, None)

    def show(self, shown: Members) -> None:
        """Let readers see the copies of these tables, let the changefeed go on with them, and end the job."""
        main = self.main.state
        for own, name in shown.items():
            known = self.state.completeness[own]
            ended = self._ended(name, known)
            if not self._shown(name, own, ended):
                # What an export brought stays for the next attempt.
                self.state.completeness.pop(own)
                continue
            failpoints.reach("copy-shown")
            main.completeness[name] = ended
            self._doubt_others(known)
            version = self.state.tables.get(own)
            if version is not None:
                main.tables.put(version.renamed(name), self.state.tables.partitioning(own))
            if own in self.state.loaded:
                main.loaded[name] = self.state.loaded[own]
            logger().info(
                "table resumed", table=str(name), state=main.completeness[name].state, resolved_ts=main.resolved_ts
            )
        main.keep_versions()
        failpoints.reach("resume-shown")
        origins = [(own, known.origin) for own, known in self.state.completeness.items() if known.origin is not None]
        aside = [(origin.name, own) for own, origin in origins if origin.is_loaded]
        self.state.completeness.clear()
        with forgetting(self.main.targets):
            completeness.write(main, self.main.targets, None)
            failpoints.reach("resume-done")
        for name, own in aside:
            loads.discard(self.main.targets, name, self.state.loaded.get(own, 0))

    def _shown(self, name: TableName, own: TableName, known: Completeness) -> bool:
        """Let readers see one copy, which says what is known of it; a table that others have changed is given up alone.

        Raises:
            TableMismatch, RangeRefused: A backfill shows all of its copies.
        """
        try:
            self.copies.show(name, own, known)
        except (TableMismatch, RangeRefused) as error:
            resuming = self.main.state.checkpoint.resuming
            if resuming is None or resuming.hold:
                raise
            self.main.targets.confirm()
            parking.give_up(self.main.state, name, error)
            return False
        return True

    def _ended(self, name: TableName, known: Completeness) -> Completeness:
        letters = self.state.control.letters(every=True) if known.why is Why.LETTERS else []
        # Those that were made up for leave a trace.
        is_over = bool(letters) and not any(letter.error for letter in letters)
        return self._with_late(name, LIVE if is_over else replace(known, origin=None))

    def _with_late(self, name: TableName, known: Completeness) -> Completeness:
        """Keep a table in doubt if the changefeed has met late rows of it, by a former name that the job does not read.

        It may have met them while the job went on. A TRUNCATE that the job has come past since shows nothing of that.
        """
        late = self.main.state.completeness[name].lacked
        if late is None or late.why is not Why.LATE:
            return known
        if known.is_parked:
            return replace(known, lacked=known.lacked or late)
        return replace(known, reason=late) if known.is_live or known.why is Why.LETTERS else known

    def _doubt_others(self, known: Completeness) -> None:
        """Doubt the tables that may have got a late row of one that is back: partitions may have changed places."""
        reason = known.lacked if known.is_parked else known.reason
        if reason is not None and reason.why is Why.LATE and known.origin is not None:
            completeness.doubt_late(self.main.state, {known.origin.name: [int(reason.detail)]})

    def _has_all_ddl(self) -> bool:
        """Whether these tables have every DDL of exactly this ts: one may follow the watermark of its own commit ts."""
        if not self.main.targets.feed.order.has_watermark:
            return True
        # An export of exactly this ts has them.
        loaded = {name: self.state.loaded.get(name, 0) for name in self.state.tables}
        others = self.main.state.ddl.applied - self.state.ddl.applied
        return not any(ts < item.commit_ts and _concerns(item, name) for item in others for name, ts in loaded.items())


def _concerns(ddl: DdlId, name: TableName) -> bool:
    """Whether a DDL may concern a table: it names one that is called so in any database, or is not understood."""
    try:
        actions = parse(ddl.sql, name.database)
    except SchemaChangeRefused:
        return True
    return any(
        name.folded[1] in [touched.folded[1] for touched in touches(action)] or effect(action).leaving([name])
        for action in actions
    )


def leave_out(state: State, own: TableName) -> None:
    """Let a table go from a job."""
    state.tables.apply(DropTable(own), 0)
    state.completeness.pop(own, None)
