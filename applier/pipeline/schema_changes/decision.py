"""What became of a DDL, as the audit keeps it and as a refusal says it."""

from __future__ import annotations

from collections.abc import Sequence

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName
from applier.ddl import actions as say
from applier.ddl.actions import kind, touches
from applier.errors import SchemaChangeRefused
from applier.pipeline.schema_changes.stamp import shown
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision


def decided(change: SchemaChange, group: Sequence[say.Action], decision: Decision, reason: str = "") -> SchemaDecision:
    """The row of the audit for actions that are applied together."""
    names = [name for action in group for name in touches(action)]
    table = names[0] if names else TableName(change.database, "")
    kinds = ", ".join(dict.fromkeys(kind(action) for action in group))
    return SchemaDecision(change.commit_ts, table, change.sql, kinds, decision, reason)


def at_its_place(refusal: SchemaChangeRefused, change: SchemaChange, config: str) -> SchemaChangeRefused:
    """The refusal with the statement and its commit ts, and with the command that lets it pass."""
    text = shown(change.sql)
    which = f"commit ts {change.commit_ts}" if text in refusal.what else f"commit ts {change.commit_ts}: {text}"
    skip = f"Or pass this statement without its effect: applier ddl skip {change.commit_ts} -c {config} --why TEXT."
    return type(refusal)(f"{refusal.what} ({which})", f"{refusal.hint.rstrip()} {skip}".strip())
