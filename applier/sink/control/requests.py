"""What commands ask of the process that holds a changefeed. Any process may ask: these rows are not fenced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from applier.sink.control.tables import REQUESTS, now

Kind = Literal["park", "resume", "forget"]


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
    row = REQUESTS.row(request, tables=json.dumps(request.tables), outcome=outcome, written_at=now())
    return REQUESTS.arrow([row])


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
