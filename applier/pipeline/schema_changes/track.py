"""What is known of the tables, moved past a DDL."""

from __future__ import annotations

from collections.abc import Sequence

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.ddl import actions as say
from applier.ddl.actions import touches
from applier.order.barrier import ddl_id
from applier.pipeline.state import State
from applier.pipeline.tables import completeness
from applier.pipeline.tables.target_tables import TargetTables


def after_of(change: SchemaChange, name: TableName) -> TableVersion | None:
    """The table after a DDL, as its message describes it; None if it does not."""
    return change.after if change.after is not None and change.after.name == name else None


def move_past(
    change: SchemaChange, group: Sequence[say.Action], state: State, targets: TargetTables, *, ignored: bool = False
) -> None:
    """Move the columns and the completeness of tables past a DDL.

    Args:
        change: The DDL.
        group: Its actions.
        state: What is known; it is changed.
        targets: The tables.
        ignored: The configuration ignores it.
    """
    for action in group:
        state.tables.apply(action, change.commit_ts)
        completeness.follow(action, state, targets, ignored=ignored)
        state.ddl.pass_by(ddl_id(change), touches(action))
    for name in dict.fromkeys(name for action in group for name in touches(action)):
        after = after_of(change, name)
        # A table may be met first by what changes it, and rows behind that are read by what it left.
        is_there = any(
            isinstance(action, say.CreateTable | say.RecoverTable | say.ColumnAction | say.IndexAction)
            for action in group
        )
        if after is not None and (name in state.tables or is_there):
            state.tables.put(after.declared(state.tables.get(name)))
    state.keep_versions()
