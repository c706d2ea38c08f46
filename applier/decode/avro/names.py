"""Restores upstream names from those that TiCDC writes into Avro schemas, as far as the DDL messages show them.

Avro allows `[A-Za-z_][A-Za-z0-9_]*`, so TiCDC writes `my-db` as `my_db` and records the original nowhere in the schema.
Only a DDL message (`avro-enable-watermark`) has it. Without one, tables and columns keep their sanitised names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from applier.changefeed.table import TableName, TableVersion
from applier.decode.avro.namesakes import Namesake, Shown, sanitised, sanitised_table
from applier.errors import AmbiguousName, DecodeError

_Typed: TypeAlias = Mapping[TableName, Sequence[TableVersion | None]]

_HINT = "give them names that differ in letters, digits and underscores too, or use another protocol."
_TABLES_HINT = (
    "rename all of these tables but one upstream, or let TiCDC send each to a topic of its own (a [sink] dispatcher); "
    "then load what is parked, with `applier load -c FILE --from DIR --tables TABLE`."
)


_UNDATED_HINT = (
    "load the table again, with `applier load -c FILE --from DIR --tables TABLE`; "
    "enable-tidb-extension and TiCDC from v8.5.7 and v26.3.4 on give rows and deletes their commit ts."
)
_LAST = (1 << 63) - 1
"""Behind every DDL."""


class OriginalNames:
    """Upstream names by the sanitised ones, learnt from table versions that come from DDL.

    Attributes:
        shown: What all DDL show.
        topic: Topic of the messages.
    """

    def __init__(self) -> None:
        self.shown = Shown()
        self.topic = ""
        self._typed: _Typed = {}
        self._cuts: Mapping[TableName, Sequence[int]] = {}
        self._tables: dict[TableName, set[TableName]] = defaultdict(set)
        self._columns: dict[tuple[TableName, str], set[tuple[str, bool]]] = defaultdict(set)

    def learn(self, version: TableVersion) -> None:
        """Take the names of one described table version."""
        self._tables[sanitised_table(version.name)].add(version.name)
        for column in version.columns:
            found = self._columns[version.name, sanitised(column.name)]
            # A column that some version holds has values there.
            is_virtual = column.generated == "virtual" and (column.name, False) not in found
            found.discard((column.name, True))
            found.add((column.name, is_virtual))

    def describe(self, shown: Shown, typed: _Typed, cuts: Mapping[TableName, Sequence[int]]) -> None:
        """Take what DDL show of all tables: who they are, and the columns of each in every segment that DDL cut."""
        self.shown, self._typed, self._cuts = shown, typed, cuts
        self._tables.clear()

    def place(self, name: TableName, ts: int) -> int | None:
        """The commit ts that stands for a row's in `table` and `columns`; None where nothing shows its place.

        The record has the table's name in Avro; the ts is 0 for a row that carries none.
        """
        changes = self.changes(name)
        if ts or not changes:
            return ts
        return _LAST if changes[-1] <= self.shown.settled else None

    def changes(self, name: TableName) -> tuple[int, ...]:
        """Commit ts of the DDL that change what a table's name in Avro, or a name of its columns, stands for."""
        found = self.shown.namesakes.get(name, ())
        points = {ts for each in found for ts, _ in each.changes if ts} if len(found) > 1 else set[int]()
        for table in [each.name for each in found] or [name]:
            points.update(self._renamings(table))
        return tuple(sorted(points))

    def table(self, name: TableName, ts: int = 0) -> TableName:
        """Upstream name of the table of a row; its commit ts counts where `changes` shows any.

        Raises:
            AmbiguousName: Several tables share the sanitised name.
        """
        known = self.shown.namesakes.get(name)
        if known is None:
            originals = self._tables.get(name, set())
            # A name that is whole has one table in any letters.
            return self._chosen(name, [Namesake(each) for each in sorted(originals) if each != name], ts)
        alive = [each for each in known if each.is_alive(ts)] or list(known)
        return self._chosen(name, alive, ts)

    def undated(self, name: TableName) -> AmbiguousName:
        """The refusal of a row without a commit ts, where DDL that were read with it change what its names mean."""
        tables = [each.name for each in self.shown.namesakes.get(name, ())] or [name]
        what = f"A row of Avro record {name} has no commit ts, so nothing shows which names a DDL beside it left."
        return AmbiguousName(what, _UNDATED_HINT, tables)

    def _chosen(self, name: TableName, alive: Sequence[Namesake], ts: int) -> TableName:
        here = [each for each in alive if self.topic in each.topics]
        if len(alive) > 1 and len(here) == 1 and all(each.topics for each in alive):
            # Every one has come in a topic of its own.
            alive = here
        if len(alive) > 1:
            tables = [each.name for each in alive]
            what = (
                f"Avro record {name} may stand for each of {', '.join(sorted(map(str, tables)))}: Avro gives them one "
                "name. One alone may have it, or each needs a topic."
            )
            raise AmbiguousName(what, _TABLES_HINT, tables, ts)
        return next((each.name for each in alive if each.name != name), name)

    def columns(self, table: TableName, names: Iterable[str], ts: int = 0) -> dict[str, str | None]:
        """Upstream names of columns, by their sanitised ones; None for virtual generated columns, which hold no value.

        Raises:
            DecodeError: Two columns that the table has, or had at another time, share a sanitised name.
        """
        versions, now = self._typed.get(table, ()), dict[str, set[tuple[str, bool]]]()
        if versions:
            segment = bisect_left(self._cuts.get(table, ()), ts)
            now = _by_sanitised(versions[min(segment, len(versions) - 1)])
        return {name: self._column(table, name, now) for name in names}

    def _column(self, table: TableName, name: str, now: Mapping[str, set[tuple[str, bool]]]) -> str | None:
        found = now.get(name) or self._columns.get((table, name)) or {(name, False)}
        if len(found) > 1:
            originals = ", ".join(sorted(column for column, _ in found))
            what = f"Field {name} of {table} may stand for each of {originals}: Avro gives them one name."
            raise DecodeError(what, _HINT, [table])
        column, is_virtual = next(iter(found))
        return None if is_virtual else column

    def _renamings(self, table: TableName) -> Iterable[int]:
        """Commit ts of the DDL of a window after which a field stands for another column."""
        versions, cuts = self._typed.get(table, ()), self._cuts.get(table, ())
        last = dict[str, set[tuple[str, bool]]]()
        for ts, version in zip((0, *cuts), versions, strict=False):
            now = _by_sanitised(version)
            if any(last.get(name, found) != found for name, found in now.items()):
                yield ts
            last |= now


def _by_sanitised(version: TableVersion | None) -> dict[str, set[tuple[str, bool]]]:
    """Columns by their sanitised names, and whether each is virtual."""
    found: dict[str, set[tuple[str, bool]]] = defaultdict(set)
    for column in version.columns if version else ():
        found[sanitised(column.name)].add((column.name, column.generated == "virtual"))
    return dict(found)
