"""The log of a database in, Kafka records of the Simple protocol as JSON out: a TiCDC in plain Python, on its bad days.

What it keeps is what TiCDC promises: rows of a table come in order of commit ts; a DDL comes to every partition after
all rows of its tables at or below its commit ts; a resolved ts comes after everything at or below it, but for a DDL of
that very ts. All else is drawn: tables run ahead of each other, rows of a transaction are spread, messages come twice,
and a restart sends again what lies above some resolved ts that was sent before.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from tests.upstream import Cell, Change, Column, Database, Ddl, Name, Row, Rows, Schema

Record = dict[str, Any]
"""One Kafka record: topic, partition, offset, key, value."""

TOPIC = "feed"
"""The only topic, or with a topic for each table the default topic."""

Place = tuple[str, int]
"""Topic and partition."""

_MOST_PARTITIONS = 7
"""A topic grows no further."""

_STRUCTURAL = frozenset({"CREATE", "ERASE", "RENAME", "TRUNCATE", "QUERY"})


Message = tuple[bytes | None, bytes | None]
"""Key and value."""


class Messages(Protocol):
    """Writes the messages of one protocol; None for what a feed of it does not show."""

    def row(self, item: Rows, change: Change) -> Message | None:
        """A row."""

    def ddl(self, item: Ddl) -> Message | None:
        """A DDL."""

    def bootstrap(self, schema: Schema) -> Message | None:
        """A table as a session finds it."""

    def watermark(self, ts: int) -> Message | None:
        """A resolved ts."""


class SimpleMessages:
    """Simple as JSON."""

    def row(self, item: Rows, change: Change) -> Message:
        """See `Messages`."""
        return _json(_row(item, change))

    def ddl(self, item: Ddl) -> Message:
        """See `Messages`."""
        return _json(_ddl(item))

    def bootstrap(self, schema: Schema) -> Message:
        """See `Messages`."""
        return _json(_bootstrap(schema))

    def watermark(self, ts: int) -> Message:
        """See `Messages`."""
        return _json({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 0})


def _json(message: Record) -> Message:
    return None, json.dumps(message).encode()


@dataclass(frozen=True, slots=True)
class Habits:
    """How a changefeed is set up, and how bad its days are; the chances are per message or per transaction.

    Attributes:
        partitions: Partitions of the topic.
        dispatcher: `table`, `index-value`, `ts` or `scatter`: what the partition of a row is computed from.
        raw: An UPDATE that changes the key stays one message, instead of a DELETE and an INSERT.
        twice: Chance that a row comes twice in its partition.
        resolve: Chance of a resolved ts between two transactions.
        edges: Share of those that are the commit ts of a transaction.
        restart: Chance of a restart.
        leaps: A restart may begin at a resolved ts that only an earlier session reached, after a session that was set
            back and stopped before it came there. No TiCDC does that unless an operator moves it.
        topics: Each table has a topic of its own, to which DDL come under the name that the table had before.
        shuffled: The parts of a statement that renames several tables come in any order, as the old architecture up to
            v8.5.4 sends them.
        grows: The topic gets another partition before a restart that sends rows of a table without a key again, a
            session may end within a transaction, and `scatter` places such rows by their values.
    """

    partitions: int = 2
    dispatcher: str = "index-value"
    raw: bool = False
    twice: float = 0.0
    resolve: float = 0.3
    edges: float = 0.0
    restart: float = 0.0
    leaps: bool = True
    topics: bool = False
    shuffled: bool = False
    grows: bool = False


@dataclass(slots=True)
class Changefeed:
    """Writes one topic, or one for each table.

    Args:
        database: What is replicated, from its beginning.
        habits: How.
        seed: Decides all that is left to chance.
        messages: What writes them.

    Attributes:
        records: What was sent, in the order of sending; rows with the `change` that they tell of, all others with the
            DDL or the resolved ts that they are `of`, None for a table as a session finds it.
    """

    database: Database
    habits: Habits = field(default_factory=Habits)
    seed: int = 0
    messages: Messages = field(default_factory=SimpleMessages)
    records: list[Record] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _ends: dict[Place, int] = field(default_factory=dict)
    _resolved: list[int] = field(init=False)
    _told: set[Ddl] = field(default_factory=set)
    _unique: list[Rows] = field(default_factory=list)
    _partitions: int = field(init=False)
    _last: dict[tuple[Name, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._partitions = self.habits.partitions
        self._resolved = [min((item.ts for item in self.database.log), default=1) - 1]

    def send(self) -> Sequence[Record]:
        """Send what the database has done since the last call, up to a resolved ts at its newest commit ts."""
        known, begin = len(self.records), self._resolved[-1]
        while (again := self._session(begin)) is not None:
            begin = again
        return self.records[known:]

    def _session(self, begin: int) -> int | None:
        """Send from a resolved ts on; the resolved ts from which a restart sends again, None if it came to its end."""
        log = [item for item in self.database.log if not self._is_behind(item, begin)]
        session = _Session(self._shuffled(log) if self.habits.shuffled else log, self._random)
        for schema in known_at(item for item in self.database.log if self._is_behind(item, begin)):
            self._everywhere(self._topic(schema), self.messages.bootstrap(schema))
        told = begin
        while (item := session.next()) is not None:
            if isinstance(item, Ddl):
                self._everywhere(self._topic(item.before or item.schema), self.messages.ddl(item), item)
                self._told.add(item)
            else:
                self._rows(item)
                if not item.schema.key:
                    self._unique.append(item)
            if session.ceiling > told and self._random.random() < self.habits.resolve:
                told = self._next_mark(told, session.ceiling)
                self._resolve(told)
            known = [ts for ts in self._resolved if self.habits.leaps or ts <= told]
            again = [ts for ts in known[-3:] if self._may_grow or self._is_plain(ts)]
            if again and self._random.random() < self.habits.restart:
                if session.ceiling > told:
                    # The last resolved ts came to some partitions only.
                    self._resolve(session.ceiling, self._random.random())
                begin = self._random.choice(again)
                if self._may_grow:
                    self._end_within(session.next())
                    self._partitions += not self._is_plain(begin)
                return begin
        self._resolve(self.database.ts)
        return None

    def _next_mark(self, told: int, ceiling: int) -> int:
        """A resolved ts above the last one, and up to the highest that may be sent."""
        if self.habits.edges and self._random.random() < self.habits.edges:
            rows = [item.ts for item in self.database.log if isinstance(item, Rows) and told < item.ts <= ceiling]
            if rows:
                return self._random.choice(rows)
        return self._random.randint(told + 1, ceiling)

    @property
    def _may_grow(self) -> bool:
        return self.habits.grows and self._partitions < _MOST_PARTITIONS

    def _end_within(self, item: Rows | Ddl | None) -> None:
        """Send some of the next rows of a table without a key, before all of them are sent again."""
        if isinstance(item, Rows) and not item.schema.key:
            self._unique.append(item)
            self._rows(item, self._random.randrange(len(item.changes)))

    def _is_plain(self, begin: int) -> bool:
        """Whether a restart sends no row of a table without a key again.

        Such a row can be told from an equal one of the same transaction only by rows of its table that come between.
        """
        return not any(item.ts > begin for item in self._unique)

    def _is_behind(self, item: Rows | Ddl, begin: int) -> bool:
        """Whether a session that begins at a resolved ts leaves something out; a DDL of that ts may come again."""
        if item.ts != begin or isinstance(item, Rows):
            return item.ts <= begin
        return item in self._told and begin % 2 == 0

    def _shuffled(self, log: Sequence[Rows | Ddl]) -> list[Rows | Ddl]:
        """The same with the parts of each statement in any order."""
        shuffled: list[Rows | Ddl] = []
        for _, parts in groupby(log, key=lambda item: (item.ts, isinstance(item, Ddl))):
            same = list(parts)
            shuffled += self._random.sample(same, len(same)) if isinstance(same[0], Ddl) else same
        return shuffled

    def _topic(self, schema: Schema | None) -> str:
        return TOPIC if schema is None or not self.habits.topics else _topic_of(schema.name)

    def _resolve(self, ts: int, share: float = 1.0) -> None:
        """Send a resolved ts to the topics of the tables that are there at that ts, or to a share of them only."""
        topics = [TOPIC, *map(_topic_of, sorted(self.database.at(ts)))] if self.habits.topics else [TOPIC]
        places = [(topic, partition) for topic in topics for partition in range(self._partitions)]
        for place in places[: int(len(places) * share)]:
            self._append(place, self.messages.watermark(ts), of=ts)
        if share == 1.0:
            self._resolved.append(ts)

    def _rows(self, item: Rows, most: int | None = None) -> None:
        changes = [change for change in item.changes if change.new is not None or not self.database.filtered]
        if not self.habits.raw and item.schema.key:
            changes = list(_split(item.schema, changes))
        # The end of one session and the beginning of the next are one run where nothing comes between.
        free = [number for number in range(self._partitions) if self._last.get((item.schema.name, number)) != item.ts]
        for change in changes[:most]:
            partition, message = free[self._partition(item, change, len(free))], self.messages.row(item, change)
            place = self._topic(item.schema), partition
            self._append(place, message, (item, change))
            if not item.schema.key:
                self._last[item.schema.name, partition] = item.ts
            if item.schema.key and self._random.random() < self.habits.twice:
                self._append(place, message, (item, change))

    def _partition(self, item: Rows, change: Change, count: int) -> int:
        name = item.schema.name
        if self.habits.dispatcher == "ts":
            return item.ts % count
        if self.habits.dispatcher == "scatter" and item.schema.key:
            return self._random.randrange(count)
        row = change.new or change.old or {}
        if self.habits.dispatcher == "scatter" and self.habits.grows:
            return zlib.crc32(repr((name, sorted(row.items()))).encode()) % count
        key = [row[column] for column in item.schema.key] if self.habits.dispatcher == "index-value" else []
        return zlib.crc32(repr((name, key)).encode()) % count

    def _everywhere(self, topic: str, message: Message | None, of: Ddl | None = None) -> None:
        for partition in range(self._partitions):
            self._append((topic, partition), message, of=of)

    def _append(
        self,
        place: Place,
        message: Message | None,
        change: tuple[Rows, Change] | None = None,
        of: Ddl | int | None = None,
    ) -> None:
        if message is None:
            return
        offset = self._ends.get(place, 0)
        self._ends[place] = offset + 1
        (topic, partition), (key, value) = place, message
        record = {"topic": topic, "partition": partition, "offset": offset, "key": key, "value": value}
        self.records.append(record | {"change": change, "of": of})


def _topic_of(name: Name) -> str:
    return f"{TOPIC}_{name.database}_{name.table}"


class _Session:
    """What is left to send, and what of it may come next."""

    def __init__(self, log: Iterable[Rows | Ddl], chance: random.Random) -> None:
        self._random = chance
        self._tables: dict[int, deque[Rows | Ddl]] = {}
        self._structural: deque[Ddl] = deque()
        for item in log:
            for number in item.ids if isinstance(item, Ddl) else (item.schema.id,):
                self._tables.setdefault(number, deque()).append(item)
            if isinstance(item, Ddl) and _is_structural(item):
                self._structural.append(item)

    @property
    def ceiling(self) -> int:
        """Highest resolved ts that may be sent; one below the next rows, and up to the next DDL."""
        heads = (queue[0] for queue in self._tables.values() if queue)
        return min((head.ts if isinstance(head, Ddl) else head.ts - 1 for head in heads), default=0)

    def next(self) -> Rows | Ddl | None:
        """Something that may come next; None if nothing is left."""
        heads = [queue[0] for queue in self._tables.values() if queue]
        ready = [head for head in heads if self._may_come(head)]
        if not ready:
            assert not heads, "a DDL waits for rows that wait for it"
            return None
        item = self._random.choice(ready)
        for queue in self._tables.values():
            if queue and queue[0] is item:
                queue.popleft()
        if self._structural and self._structural[0] is item:
            self._structural.popleft()
        return item

    def _may_come(self, head: Rows | Ddl) -> bool:
        if isinstance(head, Rows):
            return True
        if head in self._structural and self._structural[0] is not head:
            return False
        return all(self._tables[number][0] is head for number in head.ids)


def _is_structural(item: Ddl) -> bool:
    """Names come and go in one order for all tables."""
    return item.kind in _STRUCTURAL or len(item.ids) > 1


def known_at(log: Iterable[Rows | Ddl]) -> list[Schema]:
    """The tables that a log leaves."""
    schemas: dict[int, Schema] = {}
    for item in log:
        if isinstance(item, Ddl):
            if item.kind in {"ERASE", "TRUNCATE", "QUERY"}:
                for number in item.ids:
                    schemas.pop(number, None)
            if item.kind != "ERASE" and item.schema is not None:
                schemas[item.schema.id] = item.schema
    return list(schemas.values())


def _split(schema: Schema, changes: Iterable[Change]) -> Iterator[Change]:
    """Updates that change the key as the delete of the old row and the insert of the new one, all deletes first."""
    late = []
    for change in changes:
        if change.old and change.new and _key(schema, change.old) != _key(schema, change.new):
            yield Change(change.old, None)
            late.append(Change(None, change.new))
        elif change.old is None:
            late.append(change)
        else:
            yield change
    yield from late


def _key(schema: Schema, row: Row) -> list[Cell]:
    return [row[column] for column in schema.key]


# ---- messages


def _row(item: Rows, change: Change) -> Record:
    kind = "INSERT" if change.old is None else "DELETE" if change.new is None else "UPDATE"
    message: Record = {
        "version": 1,
        "database": item.schema.name.database,
        "table": item.schema.name.table,
        "tableID": item.schema.id,
        "type": kind,
        "commitTs": item.ts,
        "buildTs": 0,
        "schemaVersion": item.schema.version,
    }
    for member, row in (("data", change.new), ("old", change.old)):
        if row is not None:
            message[member] = {name: _text(value) for name, value in sorted(row.items())}
    return message


def _ddl(item: Ddl) -> Record:
    message: Record = {"version": 1, "type": item.kind, "sql": item.sql, "commitTs": item.ts, "buildTs": 0}
    if item.named is not None:
        message["tableSchema"] = _schema(item.named)
    if item.before is not None:
        message["preTableSchema"] = _schema(item.before)
    return message


def _bootstrap(schema: Schema) -> Record:
    return {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 0, "tableSchema": _schema(schema)}


def _schema(schema: Schema) -> Record:
    primary = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": list(schema.key)}
    return {
        "schema": schema.name.database,
        "table": schema.name.table,
        "tableID": schema.id,
        "version": schema.version,
        "columns": [_column(column, schema.key) for column in schema.columns],
        "indexes": [primary] if schema.key else [],
    }


def _column(column: Column, key: Sequence[str]) -> Record:
    name, _, inside = column.type.rstrip(")").partition("(")
    numbers = [int(number) for number in inside.split(",") if number]
    charset = "utf8mb4" if name == "varchar" else "binary"
    kind: Record = {"mysqlType": name, "charset": charset, "collate": "utf8mb4_bin" if name == "varchar" else "binary"}
    length = {"int": 11, "bigint": 20}.get(name) or numbers[0]
    kind["length"] = length
    if name == "decimal":
        kind["decimal"] = numbers[1]
    return {"name": column.name, "dataType": kind, "nullable": column.name not in key, "default": _text(column.default)}


def _text(value: Cell) -> str | None:
    return None if value is None else str(value)
