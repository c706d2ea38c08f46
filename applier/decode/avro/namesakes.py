"""When each upstream table had its name, as all DDL of a feed show it, those of tables that are left out included.

Avro gives `my-db.t` and `my_db.t` one name. The time of a row shows which of them it is of, or its topic where each
table has its own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from applier.changefeed.table import TableName
from applier.ddl.actions import RenameTable, effect, touches
from applier.ddl.parser import parse
from applier.ddl.statement_head import head
from applier.errors import SchemaChangeRefused

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]")
"""Characters that Avro allows in no name: TiCDC writes `_` for each."""

FOREVER = ((0, True),)
"""The changes of a table that no DDL made or removed."""


_WORD = r"`(?:[^`]|``)+`|[^\s`.,;()'\"=]+"
_NAME = re.compile(rf"(?:({_WORD})\s*\.\s*)?({_WORD})")


def sanitised(name: str) -> str:
    """A name as TiCDC writes it: one `_` for each character that Avro forbids, one more before a leading digit."""
    clean = _FORBIDDEN.sub("_", name)
    return f"_{clean}" if clean[:1].isdigit() else clean


def sanitised_table(name: TableName) -> TableName:
    """The same for the name of a table."""
    return TableName(sanitised(name.database), sanitised(name.table))


class Namesake(NamedTuple):
    """One table that an Avro name may stand for.

    Attributes:
        name: The table.
        changes: Commit ts after which the name was (True) or was not (False) of a table, ascending.
        topics: Topics in which its DDL or its rows came.
    """

    name: TableName
    changes: tuple[tuple[int, bool], ...] = FOREVER
    topics: frozenset[str] = frozenset()

    def is_alive(self, ts: int) -> bool:
        """Whether a row of a commit ts can be of it; a row at the ts of a DDL comes before it."""
        place = bisect_left(self.changes, (ts, False))
        return place > 0 and self.changes[place - 1][1]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a feed shows beside its rows.

    Attributes:
        namesakes: By the name in Avro all tables that it may stand for; none for a name that is its own.
        settled: Commit ts up to which a row that carries none lies behind every DDL.
        has_watermarks: TiCDC sends watermarks and DDL.
    """

    namesakes: Mapping[TableName, tuple[Namesake, ...]] = field(default_factory=dict)
    settled: int = 0
    has_watermarks: bool = True


@dataclass(slots=True)
class Lives:
    """The names that DDL give and take, in any order of asking.

    Attributes:
        newest: Commit ts of the newest DDL; 0 without any.
        topics: Topics in which DDL of a table came, save renames to its name.
    """

    newest: int = 0
    topics: dict[TableName, set[str]] = field(default_factory=lambda: defaultdict(set))
    _changes: dict[TableName, list[tuple[int, bool]]] = field(default_factory=dict)
    _names: dict[TableName, TableName] = field(default_factory=dict)

    def settle(self, homes: Mapping[TableName, Iterable[str]]) -> None:
        """Take topics that `homes` gave before a restart, or that DDL of a window came in."""
        for name, topics in homes.items():
            self.topics[name].update(topics)

    def homes(self, known: Mapping[TableName, str]) -> dict[TableName, tuple[str, ...]]:
        """Topics of tables that DDL alone show, for a restart: where `known`, the topics of rows, lack them.

        One topic for all shows nothing, and a name without `_` in Avro is no other's.
        """
        if len({topic for found in self.topics.values() for topic in found}) < 2:
            return {}
        return {
            name: tuple(sorted(found))
            for key, found in sorted(self.topics.items())
            if (name := self._names.get(key)) is not None
            and "_" in str(sanitised_table(name))
            and not found <= {known.get(name)}
        }

    def copy(self) -> Lives:
        """An independent copy."""
        changes = {name: list(found) for name, found in self._changes.items()}
        topics = defaultdict(set, {name: set(found) for name, found in self.topics.items()})
        return Lives(self.newest, topics, changes, dict(self._names))

    def again(self) -> Lives:
        """The same names for messages that are read again: those without a commit ts may lie before any DDL."""
        return Lives(0, self.topics, self._changes, self._names)

    def take(self, commit_ts: int, sql: str, database: str, topic: str = "") -> None:
        """Take one DDL; those of one commit ts in their order.

        A name is proven to be free only by a statement that is read, and that has a commit ts.
        """
        self.newest = max(self.newest, commit_ts)
        try:
            actions = parse(sql, database)
        except SchemaChangeRefused:
            perhaps = _perhaps(sql, database)
            self.meet(perhaps)
            for name in perhaps:
                self._note(name, commit_ts, is_there=True)
            return
        for action in actions:
            done = effect(action)
            for name in done.leaving(self._names.values()) if commit_ts else ():
                self._note(name, commit_ts, is_there=False)
            for name in done.brought:
                self._note(name, commit_ts, is_there=True)
            named = touches(action)
            self.meet(named)
            if topic and not isinstance(action, RenameTable):  # It comes in the topic of the former name.
                for name in named[:1]:
                    self.topics[name].add(topic)

    def meet(self, names: Iterable[TableName]) -> None:
        """Take tables that are there and that no DDL has made."""
        for name in names:
            if name not in self._changes:
                self._names[name] = name
                self._changes[name] = list(FOREVER)

    def shown(
        self, topics: Mapping[TableName, str], tables: Iterable[TableName], *, settled: int, has_watermarks: bool
    ) -> Shown:
        """What a row pass needs to know: rows show the topics of tables, which are given as they are spelt."""
        spelt, homes = dict(self._names), {name: {topic} for name, topic in topics.items() if topic}
        spelt |= {name: name for name in tables}
        alike: dict[TableName, list[Namesake]] = defaultdict(list)
        for key, name in sorted(spelt.items()):
            changes = tuple(sorted(self._changes.get(key, FOREVER), key=lambda change: change[0]))
            home = frozenset({*self.topics.get(key, ()), *homes.get(key, ())})
            alike[sanitised_table(name)].append(Namesake(name, changes, home))
        own = {key for key, found in alike.items() if len(found) == 1 and found[0].name == key}
        namesakes = {key: tuple(found) for key, found in alike.items() if key not in own}
        return Shown(namesakes, settled, has_watermarks)

    def _note(self, name: TableName, commit_ts: int, *, is_there: bool) -> None:
        if not is_there:
            self.meet([name])
        self._names.setdefault(name, name)
        self._changes.setdefault(name, []).append((commit_ts, is_there))


def _perhaps(sql: str, database: str) -> tuple[TableName, ...]:
    """Tables that may be there after a statement that cannot be read: it may have made each that it could name."""
    if tables := head(sql, database).tables:
        return tables
    found = (tuple(word.strip("`").replace("``", "`") for word in match) for match in _NAME.findall(sql))
    return tuple(dict.fromkeys(TableName(first or database, table) for first, table in found))
