"""Tables whose rows may differ from upstream on purpose: changes of theirs were set aside, or a DDL was passed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from applier.changefeed.table import TableName
from applier.ddl import actions as say
from applier.ddl.actions import touches
from applier.ddl.schema_tracker import Tables
from applier.pipeline.scan.task_result import BadMessage

FILTERED = "applier.filtered"
"""Table property: deletes of the table may have been left out, so no key may be taken for new."""

Doubted: TypeAlias = frozenset[TableName] | None
"""Tables; None for all."""

_REMOVES: TypeAlias = (
    say.DropTable
    | say.TruncateTable
    | say.RenameTable
    | say.DropPartitions
    | say.TruncatePartitions
    | say.ExchangePartition
    | say.RecoverTable
)
"""Actions after which a table that does not follow them holds rows that upstream does not hold under its name."""


def owners(bad: Iterable[BadMessage]) -> Doubted:
    """The tables that messages which were set aside may belong to.

    A delete among them leaves its row in the table, and the next INSERT of the key finds it there.
    """
    found = [item.tables for item in bad]
    return frozenset(name for names in found for name in names) if all(found) else None


def left_behind(actions: Iterable[say.Action], tables: Tables) -> frozenset[TableName]:
    """The tables that keep rows which actions remove upstream, where these are passed over.

    Args:
        actions: The actions.
        tables: Each table as it was before.
    """
    found: set[TableName] = set()
    for action in actions:
        if isinstance(action, say.DropDatabase):
            found.update(tables.of_database(action.database))
        elif isinstance(action, _REMOVES):
            found.update(touches(action))
    return frozenset(found)
