"""The DDL that a changefeed has come past."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from applier.changefeed.table import TableName
from applier.ddl.actions import Action, effect
from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused
from applier.pipeline.state import State


def taken(state: State) -> Iterator[tuple[int, Action]]:
    """Their actions with the commit ts of each, oldest first, also those that the tables did not take."""
    seen = set()
    for item in state.control.decisions():
        key = item.commit_ts, item.sql
        if item.decision in ("refused", "to skip") or item.commit_ts > state.resolved_ts or key in seen:
            continue
        seen.add(key)
        with suppress(SchemaChangeRefused):  # It was passed unread, and did nothing to any table.
            for action in parse(item.sql, item.table.database, item.table, item.table):
                yield item.commit_ts, action


def name_since(state: State, name: TableName, ts: int) -> TableName:
    """The name that a table has now, which had another one at a commit ts."""
    for commit_ts, action in taken(state):
        if commit_ts > ts:
            name = next((to for table, to in effect(action).moved if table.folded == name.folded), name)
    return name
