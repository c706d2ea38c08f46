"""Tables that several CREATE TABLE in a row make: all at once, and recorded in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from applier.changefeed.completeness import LIVE
from applier.errors import TableMismatch
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.decision import DdlRules
from applier.pipeline.schema_changes.track import declared
from applier.pipeline.state import State
from applier.pipeline.tables.ddl_stamp import DDL, mark
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.sink.iceberg.catalog import JavaError


@dataclass(frozen=True, slots=True)
class NewTables:
    """Makes tables before the turn of their CREATE TABLE, which finds them made as one that is repeated does.

    Args:
        targets: The tables.
        state: What is known of them, and where decisions are kept.
        rules: Decides on DDL.
    """

    targets: TargetTables
    state: State
    rules: DdlRules

    def in_turn(self, ddl: Sequence[Ddl], is_first: Callable[[Ddl], bool]) -> Iterator[Ddl]:
        """The DDL in their order; what CREATE TABLE in a row have made is kept in one commit behind the last.

        A process that dies among them leaves tables that are made, not recorded: the next one finds each at its turn.

        Args:
            ddl: The DDL; each is to be applied before the next is asked for.
            is_first: No rows are due before a DDL in its tables.
        """
        for _, group in groupby(ddl, lambda item: item.made is not None and self.state.keeps_cut):
            run = list(group)
            # Of two tables of one place the second one waits for its turn.
            apart = {self.targets.identifier(item.made.table): item for item in reversed(run) if item.made is not None}
            if is_many := len(run) > 1 and len(apart) > 1:
                self.targets.side_by_side(self._make, [item for item in apart.values() if is_first(item)])
            for item in run:
                if is_many and self.state.ddl.held is None:
                    self.state.ddl.held = []
                yield item
            self.settle()

    def settle(self) -> None:
        """Keep what is in memory alone, in one commit to each control table."""
        held, self.state.ddl.held = self.state.ddl.held, None
        if held:
            self.state.keep_versions()
            self.state.control.record_schema_changes(held)
            for _ in held:
                failpoints.reach("ddl-recorded")

    def _make(self, ddl: Ddl) -> None:
        """Make the table of a CREATE TABLE where nothing has its name; what speaks against it is found at its turn."""
        change, create = ddl.barrier.change, ddl.made
        if create is None or create.table in self.state.completeness or self.state.ddl.is_begun(change.id):
            return
        verdict = self.rules.decide(change, ddl.actions, self.state.parked, self.state.ddl)
        version = declared(change, create) if verdict.decision == "applied" else None
        with suppress(JavaError, TableMismatch):
            if version is not None and not self.targets.catalog.exists(self.targets.identifier(create.table)):
                stamp = self.targets.stamp(create.table, change.commit_ts, {DDL: mark(change)}, known=LIVE)
                self.targets.make(version, stamp)
                failpoints.reach("table-made")
