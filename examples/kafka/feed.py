"""A recording of the Simple protocol in, a changefeed that goes on out: the same messages as of now, then new ones.

The new transactions move money between accounts and log it, so the total of `bank.accounts` stays what it was.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parents[1] / "quickstart" / "topic" / "bank.jsonl.gz"
PARTITIONS = 4
"""Partitions of the recorded topic."""

Message = dict[str, Any]
Record = tuple[int, bytes]
"""Partition and value."""


def now() -> int:
    """The timestamp that TiDB's clock shows: milliseconds, and 18 bits that count within one."""
    return time.time_ns() // 1_000_000 << 18


def recorded() -> list[tuple[int, Message]]:
    """The messages of the recording with their partitions, in the order of sending."""
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [(record["partition"], json.loads(base64.b64decode(record["value"]))) for record in records]


@dataclass(slots=True)
class Feed:
    """The database as the messages so far leave it, and the next ones.

    Attributes:
        ts: Highest commit ts or resolved ts so far; 0 before `history`.
    """

    ts: int = 0
    _accounts: dict[str, tuple[int, Message]] = field(default_factory=dict)
    _log: tuple[int, Message] = (0, {})
    _count: int = 0

    def history(self) -> Iterator[Record]:
        """The recording, moved in time so that its last message is as of now; all of it before anything else."""
        messages, end = recorded(), now()
        shift = end - max(message["commitTs"] for _, message in messages)
        for partition, message in messages:
            _move(message, shift)
            self._learn(partition, message)
            yield partition, _value(message)
        self.ts = end

    def transaction(self) -> Iterator[Record]:
        """Some money goes from one account to another, and a row of `audit.log` tells of it."""
        self.ts = max(self.ts + 1, now())
        accounts = sorted(key for key, (_, last) in self._accounts.items() if last["type"] != "DELETE")
        giver, taker = (accounts[(self._count + place) % len(accounts)] for place in (0, 7))
        amount, clock = Decimal(self._count % 97 + 1) / 4, datetime.fromtimestamp((self.ts >> 18) / 1000, tz=UTC)
        self._count += 1
        for key, change in ((giver, -amount), (taker, amount)):
            yield self._updated(key, change, clock)
        partition, last = self._log
        entry = {"id": str(self.ts), "msg": f"{amount} from {giver} to {taker}", "f": str(amount), "d": f"{clock:%F}"}
        yield partition, _value(last | {"commitTs": self.ts, "data": entry})

    def resolved(self) -> Iterator[Record]:
        """A resolved ts at the clock, to each partition."""
        self.ts = max(self.ts + 1, now())
        for partition in range(PARTITIONS):
            yield partition, _value({"version": 1, "type": "WATERMARK", "commitTs": self.ts})

    def _updated(self, key: str, change: Decimal, clock: datetime) -> Record:
        partition, last = self._accounts[key]
        old = last["data"]
        data = old | {
            "bal": str(Decimal(old["bal"]) + change),
            "upd": {"location": "UTC", "value": f"{clock:%F %T.%f}"[:-3]},
        }
        update = last | {"type": "UPDATE", "commitTs": self.ts, "old": old, "data": data}
        self._accounts[key] = partition, update
        return partition, _value(update)

    def _learn(self, partition: int, message: Message) -> None:
        """Keep the newest row of each account, and an INSERT of the log to make others from."""
        if message.get("table") == "log" and message["type"] == "INSERT":
            self._log = partition, message
        if message.get("table") != "accounts":
            return
        key = (message.get("data") or message["old"])["id"]
        known = self._accounts.get(key)
        # A restart of TiCDC sends older messages again.
        if known is None or message["commitTs"] >= known[1]["commitTs"]:
            self._accounts[key] = partition, message


def _move(message: Message, shift: int) -> None:
    """Move every timestamp of TiDB in a message."""
    for holder, name in (
        (message, "commitTs"),
        (message, "schemaVersion"),
        (message.get("tableSchema"), "version"),
        (message.get("preTableSchema"), "version"),
    ):
        if holder and holder.get(name):
            holder[name] += shift


def _value(message: Message) -> bytes:
    return json.dumps(message | {"buildTs": time.time_ns() // 1_000_000}).encode()
