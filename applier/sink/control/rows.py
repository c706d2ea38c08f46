"""Nouns of the control tables, and their rows: writing makes Arrow, reading takes rows however they were read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.ts import wall_clock
from applier.sink.control.checkpoint_form import from_json, to_json
from applier.sink.control.tables import CHECKPOINTS, DEAD_LETTERS, REQUESTS, SCHEMA_CHANGES, TABLE_VERSIONS, now

Kind = Literal["park", "resume", "forget", "load", "loaded", "reload"]

Decision = Literal["applied", "rewritten", "refused", "ignored", "without a table", "to skip", "skipped", "lost"]


class IgnoredFor(StrEnum):
    """Why a DDL is ignored."""

    LEFT_OUT = "left-out"
    """By `tables.include`."""

    PARKED = "parked"
    """Its table is parked."""

    CONFIGURED = "configured"
    """Under `[ddl]`."""

    @property
    def words(self) -> str:
        """As a clause."""
        return _IGNORED_FOR[self]


_IGNORED_FOR = {
    IgnoredFor.LEFT_OUT: "left out by tables.include",
    IgnoredFor.PARKED: "the table is parked",
    IgnoredFor.CONFIGURED: "configured under [ddl]",
}


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
            `lost`: what was decided on it is lost; without a text, on all DDL below its commit ts.
        reason: Why, as one sentence for people; "" where there is nothing to say.
        snapshot_id: Snapshot that carries it.
        schema_id: Iceberg schema from there on.
        decided_at: When it was written.
        ignored_for: Why it is ignored; None for other decisions.
        job: The job that made the decision as it brought the table back; None for the changefeed itself.
    """

    commit_ts: int
    table: TableName
    sql: str
    kind: str
    decision: Decision
    reason: str = ""
    snapshot_id: int | None = None
    schema_id: int | None = None
    decided_at: datetime = field(default_factory=now, compare=False)
    ignored_for: IgnoredFor | None = None
    job: str | None = None

    @property
    def subject(self) -> str:
        """The table for people; of a DDL on a database its name, "" where it names none."""
        return str(self.table) if self.table.table else self.table.database

    @property
    def because(self) -> str:
        """The reason for people, after the job that made the decision."""
        return self.reason if self.job is None else ": ".join(filter(None, (f"resume {self.job}", self.reason)))

    def word(self, since: int) -> str:
        """The decision for people: a refused DDL is `pending` from the commit ts on up to which every table is, and
        `solved` below it.

        `parked` for one that a parked table has not taken: the resume of the table decides on it.
        """
        if self.ignored_for is IgnoredFor.PARKED and self.decision == "ignored":
            return "parked"
        if self.decision == "refused":
            return "pending" if self.commit_ts >= since else "solved"
        return self.decision


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was passed over in a step, and why, as one sentence.

    Timestamp, key and value are those of its record; None where they were not asked for.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    error: str
    step: int
    buried_at: datetime = field(default_factory=now, compare=False)

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What a command asks of the process that holds the changefeed. Any process may ask: these rows are not fenced.

    The id distinguishes it from all others: it is carried out once, however often it is read. Tables are given by
    filter rules, those to load each by its name (`filter.exactly`), and a reload names none; the reason is that of the
    user, "" where none is asked for; who asks is the user and the host.
    """

    id: str
    kind: Kind
    tables: tuple[str, ...]
    why: str
    who: str


def checkpoint_row(checkpoint: Checkpoint) -> pa.Table:
    """Row of `CHECKPOINTS`."""
    lease = checkpoint.lease
    members = {
        "epoch": lease.epoch,
        "resolved_at": wall_clock(checkpoint.resolved_ts) if checkpoint.resolved_ts else None,
        "written_at": datetime.fromtimestamp(checkpoint.written_at / 1000, tz=UTC),
        "holder": str(lease.holder),
        "released": lease.released,
        "checkpoint": to_json(checkpoint),
    }
    return CHECKPOINTS.rows([checkpoint], lambda _: members)


def version_rows(versions: Iterable[TableVersion], epoch: int) -> pa.Table:
    """Rows of `TABLE_VERSIONS`."""
    return TABLE_VERSIONS.rows(
        versions,
        lambda item: item.name.to_dict() | {"epoch": epoch, "seen_at": now(), "description": item.to_json()},
    )


def decision_rows(decisions: Iterable[SchemaDecision], epoch: int) -> pa.Table:
    """Rows of `SCHEMA_CHANGES`."""
    return SCHEMA_CHANGES.rows(
        decisions,
        lambda item: (
            item.table.to_dict() | {"committed_at": wall_clock(item.commit_ts), "epoch": epoch, "decided_at": now()}
        ),
    )


def letter_rows(letters: Iterable[DeadLetter], epoch: int) -> pa.Table:
    """Rows of `DEAD_LETTERS`."""
    return DEAD_LETTERS.rows(letters, lambda _: {"epoch": epoch, "buried_at": now()})


def request_rows(request: TableRequest, outcome: str | None = None) -> pa.Table:
    """A row of `REQUESTS`."""
    members = {"tables": json.dumps(request.tables), "outcome": outcome, "written_at": now()}
    return REQUESTS.rows([request], lambda _: members)


Row: TypeAlias = Mapping[str, Any]
"""A row of a control table, by column."""


def newest_checkpoint(rows: Iterable[Row]) -> Checkpoint | None:
    """The newest checkpoint among rows of `CHECKPOINTS`; None if there are none.

    Raises:
        TableMismatch: It is of another form.
        TerminalError: It is damaged.
    """
    found = max(rows, key=lambda row: (row["epoch"], row["step"], row["written_at"]), default=None)
    return None if found is None else from_json(found["checkpoint"])


def table_versions(rows: Iterable[Row]) -> list[TableVersion]:
    """The versions of rows of `TABLE_VERSIONS`; a later one of the same table and number takes an earlier one's place.

    Raises:
        ValueError, KeyError, TypeError: A description cannot be read.
    """
    ordered = sorted(rows, key=lambda row: row["seen_at"])
    latest = {(row["database"], row["table"], row["version"]): row["description"] for row in ordered}
    return [TableVersion.from_json(description) for description in latest.values()]


def decisions(rows: Iterable[Row]) -> list[SchemaDecision]:
    """The decisions of rows of `SCHEMA_CHANGES`, in order of commit ts and then of time."""
    names = ("commit_ts", "sql", "kind", "decision", "reason", "snapshot_id", "schema_id", "decided_at", "job")
    return [
        SchemaDecision(
            table=TableName(row["database"], row["table"]),
            ignored_for=IgnoredFor(row["ignored_for"]) if row["ignored_for"] else None,
            **{name: row[name] for name in names},
        )
        for row in sorted(rows, key=lambda row: (row["commit_ts"], row["decided_at"]))
    ]


def last_decisions(decisions: Iterable[SchemaDecision]) -> list[SchemaDecision]:
    """The last decision on each DDL, or on each part of one, in the order in which they stand."""
    found: dict[tuple[object, ...], SchemaDecision] = {}
    for item in decisions:
        key = (item.commit_ts, item.sql, item.table, item.kind)
        found.pop(key, None)
        found[key] = item
    return list(found.values())


def dead_letters(rows: Iterable[Row], *, every: bool = False) -> list[DeadLetter]:
    """The letters of rows of `DEAD_LETTERS`, each place once, in order of offset.

    The rows may lack `timestamp`, `key` and `value`. A letter that was buried again without an error has been made up
    for, and is left out unless `every` letter is wanted.
    """
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "error", "step", "buried_at")
    found: dict[tuple[str, int, int], DeadLetter] = {}
    for row in sorted(rows, key=lambda row: row["buried_at"]):
        letter = DeadLetter(**{name: row.get(name) for name in names})  # type: ignore[arg-type]  # as it was written
        found[letter.place] = letter
    return [found[place] for place in sorted(found) if every or found[place].error]


def newest_first(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Letters in the order in which people look at them."""
    return sorted(letters, key=lambda letter: (letter.buried_at, letter.offset), reverse=True)


def open_requests(rows: Iterable[Row]) -> Sequence[TableRequest]:
    """Requests without an outcome, in the order in which they were made."""
    found: dict[str, TableRequest] = {}
    ended: set[str] = set()
    for row in sorted(rows, key=lambda row: row["written_at"]):
        if row["outcome"] is not None:
            ended.add(row["id"])
        found.setdefault(
            row["id"], TableRequest(row["id"], row["kind"], tuple(json.loads(row["tables"])), row["why"], row["who"])
        )
    return [request for request in found.values() if request.id not in ended]
