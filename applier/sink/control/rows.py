"""Control tables: what their rows say, as nouns and as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.ts import wall_clock
from applier.sink.control.checkpoint_form import to_json
from applier.sink.control.requests import REQUESTS

Decision = Literal["applied", "rewritten", "refused", "ignored", "without a table", "to skip", "skipped"]

RESUMED = "resume "
"""How the reason of a decision begins that a job made which brought its table back; the job follows."""

_UTC = pa.timestamp("us", tz="UTC")


def _schema(fields: list[pa.Field[Any]]) -> pa.Schema:
    return pa.schema(fields)


CHECKPOINTS = _schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("resolved_ts", pa.int64(), nullable=False),
        pa.field("resolved_at", _UTC),
        pa.field("written_at", _UTC, nullable=False),
        pa.field("holder", pa.string(), nullable=False),
        pa.field("released", pa.bool_(), nullable=False),
        pa.field("checkpoint", pa.string(), nullable=False),
    ]
)
"""One row a step; `checkpoint` is the whole of it as JSON (`schemas/checkpoint/v3.json`)."""

TABLE_VERSIONS = _schema(
    [
        pa.field("database", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seen_at", _UTC, nullable=False),
        pa.field("description", pa.string(), nullable=False),
    ]
)
"""One row for each table version met; `description` is `TableVersion.to_json`."""

SCHEMA_CHANGES = _schema(
    [
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("committed_at", _UTC),
        pa.field("database", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("decision", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.int64()),
        pa.field("schema_id", pa.int32()),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("decided_at", _UTC, nullable=False),
    ]
)
"""One row for each decision on a DDL; a restart may decide again, then the newest counts."""

DEAD_LETTERS = _schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", _UTC),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("error", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("buried_at", _UTC, nullable=False),
    ]
)
"""One row for each message that was passed over, whole, so that it can be replayed."""


LEDGERS = {
    "checkpoints": CHECKPOINTS,
    "table_versions": TABLE_VERSIONS,
    "schema_changes": SCHEMA_CHANGES,
    "dead_letters": DEAD_LETTERS,
    "requests": REQUESTS,
}
"""The control tables and their columns."""

ORDERS = {"checkpoints": "step"}
"""Columns whose values only grow, of the control tables that need not keep all rows."""


@dataclass(frozen=True, slots=True)
class SchemaDecision:
    """What became of one DDL.

    Attributes:
        commit_ts: TSO at which it finished.
        table: Upstream table that it was for; an empty table name for a DDL on a database.
        sql: Its text.
        kind: Kind as `docs/ddl.md` names it.
        decision: `applied` in place, `rewritten` with the table's files, `refused`, `ignored`, `without a table` where
            the table that it changes is not here; `to skip` is what a person asked for, `skipped` what came of it.
        reason: Why, as one sentence; "" where there is nothing to say.
        snapshot_id: Snapshot that carries it.
        schema_id: Iceberg schema from there on.
    """

    commit_ts: int
    table: TableName
    sql: str
    kind: str
    decision: Decision
    reason: str = ""
    snapshot_id: int | None = None
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was passed over.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        timestamp: The record's time.
        key: The record's key.
        value: The record's value.
        error: Why, as one sentence.
        step: Step that passed over it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    error: str
    step: int


def checkpoint_row(checkpoint: Checkpoint) -> pa.Table:
    """Row of `CHECKPOINTS`."""
    row = {
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        "resolved_ts": checkpoint.resolved_ts,
        "resolved_at": wall_clock(checkpoint.resolved_ts) if checkpoint.resolved_ts else None,
        "written_at": datetime.fromtimestamp(checkpoint.written_at / 1000, tz=UTC),
        "holder": str(checkpoint.holder),
        "released": checkpoint.released,
        "checkpoint": to_json(checkpoint),
    }
    return pa.Table.from_pylist([row], schema=CHECKPOINTS)


def version_rows(versions: Iterable[TableVersion], epoch: int) -> pa.Table:
    """Rows of `TABLE_VERSIONS`."""
    rows = [
        {
            "database": version.name.database,
            "table": version.name.table,
            "version": version.version,
            "epoch": epoch,
            "seen_at": _now(),
            "description": version.to_json(),
        }
        for version in versions
    ]
    return pa.Table.from_pylist(rows, schema=TABLE_VERSIONS)


def decision_rows(decisions: Iterable[SchemaDecision], epoch: int) -> pa.Table:
    """Rows of `SCHEMA_CHANGES`."""
    rows = [
        {
            "commit_ts": decision.commit_ts,
            "committed_at": wall_clock(decision.commit_ts),
            "database": decision.table.database,
            "table": decision.table.table,
            "sql": decision.sql,
            "kind": decision.kind,
            "decision": decision.decision,
            "reason": decision.reason,
            "snapshot_id": decision.snapshot_id,
            "schema_id": decision.schema_id,
            "epoch": epoch,
            "decided_at": _now(),
        }
        for decision in decisions
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA_CHANGES)


def letter_rows(letters: Iterable[DeadLetter], epoch: int) -> pa.Table:
    """Rows of `DEAD_LETTERS`."""
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": letter.timestamp,
            "key": letter.key,
            "value": letter.value,
            "error": letter.error,
            "step": letter.step,
            "epoch": epoch,
            "buried_at": _now(),
        }
        for letter in letters
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


def read_decision(row: Mapping[str, Any]) -> SchemaDecision:
    """A row of `SCHEMA_CHANGES` as it was written."""
    return SchemaDecision(
        commit_ts=row["commit_ts"],
        table=TableName(row["database"], row["table"]),
        sql=row["sql"],
        kind=row["kind"],
        decision=row["decision"],
        reason=row["reason"],
        snapshot_id=row["snapshot_id"],
        schema_id=row["schema_id"],
    )


def read_letter(row: Mapping[str, Any]) -> DeadLetter:
    """A row of `DEAD_LETTERS` as it was written."""
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "error", "step")
    return DeadLetter(**{name: row[name] for name in names})


def _now() -> datetime:
    return datetime.now(tz=UTC)
