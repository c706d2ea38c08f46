"""What is known of the tables, moved past a DDL."""

from __future__ import annotations

from collections.abc import Sequence

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.actions import Action, CreateTable, touches
from applier.ddl.schema_tracker import Tables
from applier.pipeline.state import State
from applier.pipeline.tables import completeness
from applier.pipeline.tables.target_tables import TargetTables


def after_of(change: SchemaChange, name: TableName) -> TableVersion | None:
    """The table after a DDL, as its message describes it; None if it does not."""
    return change.after if change.after is not None and change.after.name == name else None


def declared(change: SchemaChange, create: CreateTable) -> TableVersion | None:
    """A new table as the message describes it or the statement declares it; None if neither does."""
    after = after_of(change, create.table)
    return create.version if after is None else after.declared(create.version)


def move_past(
    change: SchemaChange, group: Sequence[Action], state: State, targets: TargetTables, *, ignored: bool = False
) -> None:
    """Move the columns and the completeness of tables past a DDL, which the configuration may have `ignored`."""
    state.tables.move(change, group)
    for action in group:
        completeness.follow(action, state, targets, ignored=ignored)
        state.ddl.pass_by(change.id, touches(action))
    state.keep_versions()


def altered(tables: Tables, change: SchemaChange, group: Sequence[Action]) -> TableVersion | None:
    """The table of an ALTER TABLE after it; None if neither the tables before nor the message show it."""
    name, later = touches(group[0])[0], tables.copy()
    for action in group:
        later.apply(action, change.commit_ts)
    after, derived = after_of(change, name), later.get(name)
    return derived if after is None else after.declared(derived)
