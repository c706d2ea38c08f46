"""A DDL with what its statement says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from applier.changefeed.ddl import Action, CreateTable, DropDatabase, DropTable, RenameTable, touches
from applier.changefeed.table import TableName
from applier.decode.ddl import parse
from applier.order.barrier import Barrier


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL to apply, with what its statement says.

    Attributes:
        barrier: The DDL.
        actions: What it does.
        swept: Tables of a database that it drops.
    """

    barrier: Barrier
    actions: Sequence[Action]
    swept: Sequence[TableName] = ()

    @staticmethod
    def of(barrier: Barrier, tables: Iterable[TableName] = ()) -> Ddl:
        """Read the statement; `tables` are those that it may sweep.

        Raises:
            SchemaChangeRefused: It cannot be understood.
        """
        change = barrier.change
        before = change.before.name if change.before else None
        after = change.after.name if change.after else None
        actions = parse(change.sql, change.database, before, after)
        dropped = {action.database.lower() for action in actions if isinstance(action, DropDatabase)}
        return Ddl(barrier, actions, sorted(name for name in tables if name.database.lower() in dropped))

    @property
    def commit_ts(self) -> int:
        """Its place among the rows."""
        return self.barrier.change.commit_ts

    @property
    def names(self) -> tuple[TableName, ...]:
        """Tables that it concerns."""
        named = (name for action in self.actions for name in touches(action))
        return tuple(dict.fromkeys([*named, *self.swept]))

    def frees(self, parked: frozenset[TableName]) -> bool:
        """True if it ends one of the parked tables, so that the name is free for another table."""
        ends = CreateTable | DropTable | DropDatabase | RenameTable
        return any(isinstance(action, ends) for action in self.actions) and not parked.isdisjoint(self.names)
