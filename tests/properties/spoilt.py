"""A feed in, some of its messages spoilt: bad ones, and DDL that do not come.

Most are drawn where a mistake costs most: the first row of a table behind the DDL that brings it.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ticdc import Changefeed, Record
from tests.upstream import Change, Ddl, Name, Rows

Payload = dict[str, Any]


def _key_alone(message: Payload, item: Rows) -> bytes:
    found = {**message, "handleKeyOnly": True}
    for member in {"data", "old"} & message.keys():
        found[member] = {column: message[member][column] for column in item.schema.key}
    return _bytes(found)


def _without_row(message: Payload, _: Rows) -> bytes:
    return _bytes({name: value for name, value in message.items() if name not in ("data", "old")})


def _out_of_range(message: Payload, item: Rows) -> bytes:
    numbers = [column.name for column in item.schema.columns if "int" in column.type and column.name != "id"]
    member = "data" if "data" in message else "old"
    return _bytes({**message, member: {**message[member], (numbers or ["id"])[0]: "9" * 30}})


def _bytes(message: Payload) -> bytes:
    return json.dumps(message).encode()


KINDS: Mapping[str, Callable[[Payload, Rows], bytes]] = {
    "key alone": _key_alone,
    "without its row": _without_row,
    "out of range": _out_of_range,
}
"""What becomes of a row of the Simple protocol that nothing mends."""

_OF_SIMPLE = (*[kind for kind in (*KINDS, "claimed", "claimed") for _ in range(3)], "broken")
"""Of broken bytes nobody knows the table, so that no table is true behind them."""

_OF_ALL = (*["of another type"] * 9, "broken")


def spoil(feed: Changefeed, chance: random.Random, most: int, claims: Path) -> Iterator[tuple[str, Record]]:
    """Spoil up to so many rows, in all their copies or in one; what was done to which, and the first copy.

    Args:
        feed: The feed; its records are changed.
        chance: The draw.
        most: How many.
        claims: Where rows go of which a message gives the file alone.
    """
    records = feed.records
    firsts, all_rows = list(_first_rows(records)), [record for record in records if record["change"] is not None]
    done: set[int] = set()
    for _ in range(min(most, len(all_rows))):
        record = chance.choice(firsts if firsts and chance.random() < 0.6 else all_rows)
        item, change = record["change"]
        kind = chance.choice(_OF_SIMPLE if b'"version"' in record["value"][:12] else _OF_ALL)
        is_whole = chance.random() < 0.7
        for other in [other for other in all_rows if is_whole and other["change"] == (item, change)] or [record]:
            if id(other) not in done:
                done.add(id(other))
                _spoil(other, kind, feed, claims)
        yield kind, record


def _spoil(record: Record, kind: str, feed: Changefeed, claims: Path) -> None:
    (item, change), value = record["change"], record["value"]
    if kind == "broken":
        record["value"] = value[:-9]
    elif kind == "of another type":
        found = feed.messages.row(item, Change(*(row and {**row, "id": "not a number"} for row in change)))
        record["value"] = None if found is None else found[1]
    elif kind == "claimed":
        name = f"{uuid.uuid4()}.json"
        (claims / name).write_bytes(value)
        stub = json.loads(_without_row(json.loads(value), item))
        record["value"] = _bytes({**stub, "claimCheckLocation": f"s3://claims/{name}"})
    else:
        record["value"] = KINDS[kind](json.loads(value), item)


def _first_rows(records: Sequence[Record]) -> Iterator[Record]:
    """The first row of each table behind a DDL that brings it."""
    new: set[Name] = set()
    for record in records:
        of = record["of"]
        if record["change"] is not None:
            name = record["change"][0].schema.name
            if name in new:
                new.discard(name)
                yield record
        elif isinstance(of, Ddl) and of.schema is not None and of.kind in ("CREATE", "RENAME", "TRUNCATE"):
            new.add(of.schema.name)


def hide(feed: Changefeed, ddl: Ddl) -> None:
    """Let a DDL not come; of a table that is there behind it comes what a session describes that begins later."""
    told = None if ddl.kind == "ERASE" or ddl.schema is None else feed.messages.bootstrap(ddl.schema)
    if told is None:
        feed.records[:] = [record for record in feed.records if record["of"] != ddl]
        ends = Counter[tuple[str, int]]()
        for record in feed.records:
            place = record["topic"], record["partition"]
            record["offset"] = ends[place]
            ends[place] += 1
        return
    for record in [record for record in feed.records if record["of"] == ddl]:
        record["key"], record["value"] = told
