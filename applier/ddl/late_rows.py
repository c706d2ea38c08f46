"""Rows of a feed in offset order that come behind a DDL of an earlier step, from a partition that lags.

The DDL has ended the table that such a row is of, or has changed places of rows, and the row is not in it. A commit ts
shows that, and whose the row would be now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, TypeAlias

from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName
from applier.changefeed.ts import LOGICAL
from applier.ddl.actions import Effect, effect, touches
from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused


class PastDdl(NamedTuple):
    """A DDL that the tables have taken, and that has ended one of those that it names, or changed places of rows."""

    commit_ts: int
    sql: str
    names: tuple[TableName, ...]
    effects: tuple[Effect, ...]


class Late(NamedTuple):
    """What shows that a row of a table is late.

    Attributes:
        points: Commit ts of such DDL of the table, sorted.
        ended: At or below this commit ts a row is of a table that has gone, or has another name now; 0 for none.
    """

    points: Sequence[int]
    ended: int

    def point(self, commit_ts: int) -> int | None:
        """The first of these DDL that a row lies before; None for a row that is not late.

        A commit ts that is only a millisecond shows nothing.
        """
        if not commit_ts & LOGICAL or commit_ts > self.points[-1]:
            return None
        return self.points[bisect_left(self.points, commit_ts)]


Lates: TypeAlias = Mapping[TableName, Late]


def past(commit_ts: int, sql: str, table: TableName) -> PastDdl | None:
    """A DDL that the tables have taken, where rows that lie before it may not be applied behind it as they are.

    The table is that of the part that was taken; its name is empty for a DDL on a database.
    """
    # A commit ts that is only a millisecond places no row.
    own = table if table.table else None
    with suppress(SchemaChangeRefused):
        actions = parse(sql, table.database, own, own) if commit_ts & LOGICAL else []
        actions = [action for action in actions if own is None or own in touches(action)[:1]] or actions
        effects = tuple(done for action in actions if (done := effect(action)).empties or done.is_silent)
        if effects:
            names = tuple(dict.fromkeys(name for action in actions for name in touches(action)))
            return PastDdl(commit_ts, sql, names, effects)
    return None


def lates(ddl: Iterable[PastDdl], applied: Collection[DdlId], names: Iterable[TableName]) -> Lates:
    """What shows late rows of each table.

    A DDL that is not among those `applied`, of the checkpoint, is yet to come: a step that failed has taken it. A DROP
    DATABASE names no table, so it takes the `names` of all that are known.
    """
    known, mine = list(names), {(item.commit_ts, item.sql) for item in applied}
    points: dict[TableName, set[int]] = {}
    ended: dict[TableName, int] = {}
    for one in ddl:
        for done in one.effects if (one.commit_ts, one.sql) in mine else ():
            gone = (*done.leaving(known), *done.created, *done.emptied, *(to for _, to in done.moved))
            for name in gone:
                ended[name] = max(one.commit_ts, ended.get(name, 0))
            for name in (*gone, *done.thinned, *chain(*done.exchanged)):
                points.setdefault(name, set()).add(one.commit_ts)
    return {name: Late(sorted(found), ended.get(name, 0)) for name, found in points.items()}


def losing(name: TableName, point: int, ddl: Iterable[PastDdl]) -> list[TableName]:
    """The tables that may lack a late row, or may hold it wrongly, by the names of now; [] where it has gone upstream.

    It came for the table `name`, and `point` is the first of the DDL, which are in order, that it lies before.
    """
    places, gone = {name}, set[TableName]()
    for done, named in ((done, item.names) for item in ddl if item.commit_ts >= point for done in item.effects):
        moved = dict(done.moved)
        ended = {*done.leaving(places), *done.created, *done.emptied, *moved.values()}
        came = {moved[one] for one in places if one in moved}
        gone |= (places & ended) - moved.keys()
        places = (places - ended) | came
        for pair in done.exchanged:
            places |= set() if places.isdisjoint(pair) else set(pair)
        if not gone.isdisjoint(named):
            places |= set(done.restored)  # It comes back as it was dropped.
    return sorted(places)
