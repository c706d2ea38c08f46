"""Records of the Simple protocol in, some of them spoilt out: bad messages, and tables that no DDL makes.

Most are drawn where a mistake costs most: the first row of a table behind the DDL that brings it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.ticdc import Record
from tests.upstream import Ddl, Name, Rows

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


def _claimed(message: Payload, item: Rows) -> bytes:
    return _bytes({**json.loads(_without_row(message, item)), "claimCheckLocation": "s3://claims/one.json"})


def _broken(message: Payload, _: Rows) -> bytes:
    return _bytes(message)[:-9]


def _bytes(message: Payload) -> bytes:
    return json.dumps(message).encode()


KINDS: Mapping[str, Callable[[Payload, Rows], bytes]] = {
    "key alone": _key_alone,
    "without its row": _without_row,
    "out of range": _out_of_range,
    "claimed": _claimed,
    "broken": _broken,
}


def spoil(records: Sequence[Record], chance: random.Random, most: int) -> Iterator[tuple[str, Rows]]:
    """Spoil up to so many rows, in all their copies or in one; what was done to which."""
    firsts, all_rows = list(_first_rows(records)), [record for record in records if record["change"] is not None]
    for _ in range(min(most, len(all_rows))):
        record = chance.choice(firsts if firsts and chance.random() < 0.6 else all_rows)
        item, change = record["change"]
        # Of broken bytes nobody knows the table, so that no table is true behind them.
        kind = chance.choice([kind for kind in KINDS for _ in range(1 if kind == "broken" else 3)])
        is_whole = chance.random() < 0.7
        for other in [other for other in all_rows if is_whole and other["change"] == (item, change)] or [record]:
            try:
                other["value"] = KINDS[kind](json.loads(other["value"]), item)
            except ValueError:
                continue  # It is spoilt already.
        yield kind, item


def _first_rows(records: Sequence[Record]) -> Iterator[Record]:
    """The first row of each table behind a DDL that brings it."""
    new: set[Name] = set()
    for record in records:
        if record["change"] is not None:
            name = record["change"][0].schema.name
            if name in new:
                new.discard(name)
                yield record
            continue
        message = json.loads(record["value"])
        if message["type"] in ("CREATE", "RENAME", "TRUNCATE"):
            new.add(Name(message["tableSchema"]["schema"], message["tableSchema"]["table"]))


def hide(records: Sequence[Record], made: Ddl) -> None:
    """Let rows alone show a table: in place of its CREATE TABLE comes what a session describes that begins later."""
    for record in records:
        message = json.loads(record["value"]) if record["change"] is None else {}
        if message.get("type") == "CREATE" and message["commitTs"] == made.ts:
            record["value"] = _bytes(
                {
                    "version": 1,
                    "type": "BOOTSTRAP",
                    "commitTs": 0,
                    "buildTs": 0,
                    "tableSchema": message["tableSchema"],
                }
            )
