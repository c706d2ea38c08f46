"""Tables whose rows may differ from upstream on purpose: changes of theirs were set aside, or a DDL was passed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from applier.changefeed.table import TableName
from applier.ddl.actions import Action, effect, touches
from applier.ddl.schema_tracker import Tables
from applier.pipeline.scan.task_result import BadMessage

FILTERED = "applier.filtered"
"""Table property: deletes of the table may have been left out, so no key may be taken for new."""

Doubted: TypeAlias = frozenset[TableName] | None
"""Tables; None for all."""


def owners(bad: Iterable[BadMessage]) -> Doubted:
    """The tables that messages which were set aside may belong to.

    A delete among them leaves its row in the table, and the next INSERT of the key finds it there.
    """
    found = [item.tables for item in bad]
    return frozenset(name for names in found for name in names) if all(found) else None


def left_behind(actions: Iterable[Action], tables: Tables) -> frozenset[TableName]:
    """The tables that keep rows which actions remove upstream, where these are passed over.

    Args:
        actions: The actions.
        tables: Each table as it was before.
    """
    found: set[TableName] = set()
    for action in actions:
        done = effect(action)
        if done.is_silent or (done.empties and not done.created):
            found.update(touches(action), done.leaving(tables))
    return frozenset(found)
