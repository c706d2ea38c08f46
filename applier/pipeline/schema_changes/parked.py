"""DDL of parked tables: they are passed over, and what the tables are upstream is followed all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import TableFilter
from applier.config.settings import TablesSection
from applier.ddl import actions as say
from applier.ddl.actions import touches
from applier.errors import SchemaChangeRefused
from applier.order.barrier import ddl_id
from applier.pipeline.schema_changes.stamp import shown
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.schema_changes.whole_tables import TableDdl
from applier.pipeline.state import State
from applier.pipeline.tables import parking
from applier.pipeline.tables.target_tables import TargetTables

PARKED = "the table is parked"
"""Why a DDL of a parked table is ignored, in the audit."""

_BRINGS = say.CreateTable | say.RecoverTable | say.RenameTable
"""Actions after which a table of a name is another one than before."""


@dataclass(frozen=True, slots=True)
class ParkedDdl:
    """Passes DDL of parked tables.

    Args:
        targets: The tables.
        state: What is known of them.
        settings: Which tables are meant.
        tables: Renames them.
    """

    targets: TargetTables
    state: State
    settings: TablesSection
    tables: TableDdl

    def takes(self, change: SchemaChange, group: Sequence[say.Action]) -> bool:
        """Pass a DDL over if it is for parked tables alone; whether it is.

        Raises:
            SchemaChangeRefused: It exchanges rows of a parked table with those of another one.
        """
        is_given_up = self.is_given_up(change, group)
        if not is_given_up and not self._concerns(change, group):
            return False
        # Of a table that cannot be made nothing is known from here on.
        if not (is_given_up and isinstance(group[0], _BRINGS)):
            self._pass_by(change, group)
        return True

    def is_given_up(self, change: SchemaChange, group: Sequence[say.Action]) -> bool:
        """True if this very DDL could not be applied in this step: the audit says so already."""
        names = {name for action in group for name in touches(action)}
        return ddl_id(change) in self.state.ddl.refused and not names.isdisjoint(self.state.parked)

    def _concerns(self, change: SchemaChange, group: Sequence[say.Action]) -> bool:
        """True if a DDL is passed over, as it changes parked tables alone and ends none of them.

        Raises:
            SchemaChangeRefused: It exchanges rows of a parked table with those of another one.
        """
        match group[0]:
            case say.CreateTable() | say.DropTable():
                return False
            case say.RenameTable(table):
                return table in self.state.parked
            case say.ExchangePartition(table, _, other) if len({table, other} & self.state.parked) == 1:
                what = f"Tables {table} and {other} exchange rows, and one of them is parked: {shown(change.sql)}."
                raise SchemaChangeRefused(what, "Both resume together.")
        names = {name for action in group for name in touches(action)}
        return bool(names) and names <= self.state.parked

    def _pass_by(self, change: SchemaChange, group: Sequence[say.Action]) -> None:
        """Let parked tables keep what they are, and know what their upstream is; a rename frees the former name."""
        rename = group[0] if isinstance(group[0], say.RenameTable) else None
        if rename is not None:
            self.tables.rename_parked(change, rename)
        move_past(change, group, self.state, self.targets)
        if rename is not None:
            is_wanted = TableFilter(self.settings.include).admits(rename.to)
            parking.follow_include(self.state, rename.to, is_wanted=is_wanted)
