"""Reads the control tables of a changefeed with PyIceberg, without Spark; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import Lake
from applier.sink.control.checkpoint_form import from_json

STEP = "applier.step"
"""Property of the control table `checkpoints`: the newest step, so that a reader looks for that one alone."""


class Decision(NamedTuple):
    """What became of one DDL, or of a part of one; see `sink.control_row.SchemaDecision`."""

    commit_ts: int
    table: TableName
    kind: str
    decision: str
    reason: str
    sql: str
    decided_at: datetime


class Letter(NamedTuple):
    """A message that was passed over, without its bytes."""

    topic: str
    partition: int
    offset: int
    error: str
    step: int
    buried_at: datetime


class ControlView:
    """What the control tables of one changefeed say now. No method writes anything.

    Every method raises TransientError if the catalog or its storage does not answer.

    Args:
        lake: The catalog.
        changefeed: Name of the changefeed.
    """

    def __init__(self, lake: Lake, changefeed: str) -> None:
        self._lake = lake
        self.namespace = f"applier_{changefeed}"

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint; None for a changefeed that never ran.

        Raises:
            TerminalError: It is damaged, or of a newer format.
        """
        table = self._lake.table((self.namespace, "checkpoints"))
        if table is None or not table.rows:
            return None
        newest = table.properties.get(STEP, "")
        only = f"step = {int(newest)}" if newest.isdecimal() else "true"
        rows = self._lake.rows(table.identifier, ("epoch", "step", "written_at", "checkpoint"), only)
        if not rows:
            return None
        row = max(rows, key=lambda row: (row["epoch"], row["step"], row["written_at"]))
        return from_json(row["checkpoint"])

    def epoch(self) -> int:
        """The highest epoch that any other control table is stamped with; 0 if there is none."""
        tables = [self._lake.table((self.namespace, name)) for name in ("table_versions", "schema_changes")]
        return max((int(table.properties.get("applier.epoch", 0)) for table in tables if table), default=0)

    def decisions(self, last: int) -> tuple[list[Decision], int]:
        """The newest decisions on DDL, newest first, and how many DDL were decided on; the last decision on each."""
        columns = ("commit_ts", "database", "table", "kind", "decision", "reason", "sql", "decided_at")
        found: dict[tuple[Any, ...], Decision] = {}
        for row in sorted(self._rows("schema_changes", columns), key=lambda row: row["decided_at"]):
            table = TableName(row.pop("database"), row.pop("table"))
            decision = Decision(table=table, **row)
            found[decision.commit_ts, decision.sql, decision.table, decision.kind] = decision
        ordered = sorted(found.values(), key=lambda item: (item.commit_ts, item.decided_at), reverse=True)
        return ordered[:last], len(ordered)

    def letters(self, last: int) -> tuple[list[Letter], int]:
        """The dead letters that were buried last, newest first, and how many there are; each place counts once.

        One that was buried again without an error has been made up for.
        """
        columns = ("topic", "partition", "offset", "error", "step", "buried_at")
        found: dict[tuple[str, int, int], Letter] = {}
        for row in sorted(self._rows("dead_letters", columns), key=lambda row: row["buried_at"]):
            found[row["topic"], row["partition"], row["offset"]] = Letter(**row)
        open_ones = (item for item in found.values() if item.error)
        ordered = sorted(open_ones, key=lambda item: (item.buried_at, item.offset), reverse=True)
        return ordered[:last], len(ordered)

    def letter_rows(self, letter: Letter) -> list[dict[str, Any]]:
        """The rows of one dead letter that hold its message: `timestamp`, `key`, `value` and `buried_at`."""
        columns = ("topic", "partition", "offset", "timestamp", "key", "value", "error", "buried_at")
        place = (letter.topic, letter.partition, letter.offset)
        rows = self._rows("dead_letters", columns)
        return [row for row in rows if (row["topic"], row["partition"], row["offset"]) == place and row["error"]]

    def _rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        return self._lake.rows((self.namespace, table), tuple(columns))


def stamped_ts(properties: Mapping[str, str]) -> int | None:
    """Resolved ts that a table's properties say; None for a table that no applier has written, or a damaged stamp."""
    text = properties.get("applier.resolved-ts", "")
    return int(text) if text.isdecimal() else None
