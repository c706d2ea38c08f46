"""What commands ask of the process that holds a changefeed. Any process may ask: these rows are not fenced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

Kind = Literal["park", "resume", "forget"]

REQUESTS = pa.schema(
    [  # type: ignore[arg-type]  # the stubs know no list of fields of several types
        pa.field("id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("tables", pa.string(), nullable=False),
        pa.field("why", pa.string(), nullable=False),
        pa.field("who", pa.string(), nullable=False),
        pa.field("outcome", pa.string()),
        pa.field("written_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""One row when a command asks, without an outcome, and one when it was carried out or withdrawn, with it."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What a command asks for.

    Attributes:
        id: Distinguishes it from all others: it is carried out once, however often it is read.
        kind: What is to be done.
        tables: Filter rules of the tables.
        why: The reason that the user gave; "" where none is asked for.
        who: The user and the host.
    """

    id: str
    kind: Kind
    tables: tuple[str, ...]
    why: str
    who: str


def request_rows(request: TableRequest, outcome: str | None = None) -> pa.Table:
    """A row of `REQUESTS`."""
    row = {
        "id": request.id,
        "kind": request.kind,
        "tables": json.dumps(request.tables),
        "why": request.why,
        "who": request.who,
        "outcome": outcome,
        "written_at": datetime.now(tz=UTC),
    }
    return pa.Table.from_pylist([row], schema=REQUESTS)


def open_requests(rows: Iterable[Mapping[str, Any]]) -> Sequence[TableRequest]:
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
