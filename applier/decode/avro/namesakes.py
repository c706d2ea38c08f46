"""When each upstream table had its name, as all DDL of a feed show it, those of tables that are left out included.

Avro gives `my-db.t` and `my_db.t` one name. The time of a row shows which of them it is of, or its topic where each
table has its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from applier.changefeed.table import TableName
from applier.ddl.actions import RenameTable, effect, touches
from applier.ddl.parser import parse
from applier.decode.avro.sanitised import sanitised_table
from applier.errors import SchemaChangeRefused

_Folded: TypeAlias = tuple[str, str]

FOREVER = ((0, True),)
"""The changes of a table that no DDL made or removed."""


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
        namesakes: By the folded name in Avro all tables that it may stand for; none for a name that is its own.
        settled: Commit ts up to which a row that carries none lies behind every DDL.
        has_watermarks: TiCDC sends watermarks and DDL.
    """

    namesakes: Mapping[_Folded, tuple[Namesake, ...]] = field(default_factory=dict)
    settled: int = 0
    has_watermarks: bool = True


@dataclass(slots=True)
class Lives:
    """The names that DDL give and take, in any order of asking.

    Attributes:
        newest: Commit ts of the newest DDL; 0 without any.
    """

    newest: int = 0
    _changes: dict[_Folded, list[tuple[int, bool]]] = field(default_factory=dict)
    _names: dict[_Folded, TableName] = field(default_factory=dict)
    _topics: dict[_Folded, set[str]] = field(default_factory=lambda: defaultdict(set))

    def copy(self) -> Lives:
        """An independent copy."""
        changes = {name: list(found) for name, found in self._changes.items()}
        topics = defaultdict(set, {name: set(found) for name, found in self._topics.items()})
        return Lives(self.newest, changes, dict(self._names), topics)

    def again(self) -> Lives:
        """The same names for messages that are read again: those without a commit ts may lie before any DDL."""
        return Lives(0, self._changes, self._names, self._topics)

    def take(self, commit_ts: int, sql: str, database: str, topic: str = "") -> None:
        """Take one DDL; those of one commit ts in their order. A statement that cannot be read shows no name."""
        try:
            actions = parse(sql, database)
        except SchemaChangeRefused:
            return
        self.newest = max(self.newest, commit_ts)
        for action in actions:
            done = effect(action)
            for name in done.leaving(self._names.values()):
                self._note(name, commit_ts, is_there=False)
            for name in done.brought:
                self._note(name, commit_ts, is_there=True)
            self.meet(touches(action))
            if topic and not isinstance(action, RenameTable):  # It comes in the topic of the former name.
                for name in touches(action)[:1]:
                    self._topics[name.folded].add(topic)

    def meet(self, names: Iterable[TableName]) -> None:
        """Take tables that are there and that no DDL has made."""
        for name in names:
            if name.folded not in self._changes:
                self._names[name.folded] = name
                self._changes[name.folded] = list(FOREVER)

    def shown(
        self, topics: Mapping[TableName, str], tables: Iterable[TableName], *, settled: int, has_watermarks: bool
    ) -> Shown:
        """What a row pass needs to know.

        Args:
            topics: The topics of tables, as rows show them.
            tables: Tables as they are spelt.
            settled: See `Shown`.
            has_watermarks: See `Shown`.
        """
        spelt, homes = dict(self._names), {name.folded: {topic} for name, topic in topics.items() if topic}
        spelt |= {name.folded: name for name in tables}
        alike: dict[_Folded, list[Namesake]] = defaultdict(list)
        for key, name in sorted(spelt.items()):
            changes = tuple(sorted(self._changes.get(key, FOREVER), key=lambda change: change[0]))
            home = frozenset({*self._topics.get(key, ()), *homes.get(key, ())})
            alike[sanitised_table(name).folded].append(Namesake(name, changes, home))
        own = {key for key, found in alike.items() if len(found) == 1 and found[0].name.folded == key}
        namesakes = {key: tuple(found) for key, found in alike.items() if key not in own}
        return Shown(namesakes, settled, has_watermarks)

    def _note(self, name: TableName, commit_ts: int, *, is_there: bool) -> None:
        if not is_there:
            self.meet([name])
        self._names.setdefault(name.folded, name)
        self._changes.setdefault(name.folded, []).append((commit_ts, is_there))
