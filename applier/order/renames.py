"""Puts the renames of one statement into the order in which the statement makes them.

TiCDC sends each rename of `RENAME TABLE a TO tmp, b TO a, tmp TO b` as a message of its own, all with one commit ts.
With a topic per table their offsets count different messages, and the old architecture up to v8.5.4 sends them in any
order even in one topic. So the names decide: a rename into a name that is taken waits for the rename out of it.
Each message also names the last name of its table, which tells the renames of one table from those of another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from applier.changefeed.table import TableName


def sequence(renames: Sequence[tuple[TableName, TableName]], there: AbstractSet[TableName]) -> list[int] | None:
    """Places of the renames in the order of the statement; None where the names do not determine it.

    A rename is the old and the new name; `there` are the tables that are known before the statement.
    """
    sources, targets = {old for old, _ in renames}, {new for _, new in renames}
    if not sources & there:
        # None of the tables is known, so no order changes anything.
        return list(range(len(renames)))
    if len(sources) < len(renames) or len(targets) < len(renames):
        return None
    between = {name for name in sources & targets if name not in there}
    if _is_open(renames, between, there):
        return None
    taken = sources - between
    left, found = dict(enumerate(renames)), []
    while left:
        ready = [place for place, (old, new) in left.items() if old in taken and new not in taken]
        if not ready:
            return None
        old, new = left.pop(ready[0])
        taken = (taken - {old}) | {new}
        found.append(ready[0])
    return found


def followed(
    renames: Sequence[tuple[TableName, TableName]],
    lasts: Sequence[TableName | None],
    there: AbstractSet[TableName],
) -> list[int] | None:
    """Places of the renames in an order of the statement; None where their messages do not prove one.

    Args:
        renames: The old and the new name of each.
        lasts: The name that the message of each names: the one that its table has after the statement.
        there: The tables that are known before it.
    """
    if all(last == new for last, (_, new) in zip(lasts, renames, strict=True)):
        # It may be the name of the part, whatever the table is called in the end.
        return None
    of_tables: dict[TableName, list[int]] = {}
    for place, last in enumerate(lasts):
        if last is None:
            return None
        of_tables.setdefault(last, []).append(place)
    paths = [_path(renames, places, last) for last, places in of_tables.items()]
    left = [path for path in paths if path]
    if len(left) < len(paths):
        return None
    taken, found = {renames[path[0]][0] for path in left} | there, list[int]()
    while left:
        path = next((path for path in left if renames[path[0]][1] not in taken), None)
        if path is None:
            return None
        place = path.pop(0)
        old, new = renames[place]
        taken = (taken - {old}) | {new}
        found.append(place)
        left = [path for path in left if path]
    return found


def _path(renames: Sequence[tuple[TableName, TableName]], places: Sequence[int], last: TableName) -> list[int]:
    """The renames of one table from its first name to its last; [] where they lead elsewhere, or one is missing."""
    into = {renames[place][1]: place for place in places}
    path, at = list[int](), last
    while (place := into.pop(at, None)) is not None:
        path.insert(0, place)
        at = renames[place][0]
    return path if len(path) == len(places) else []


def _is_open(
    renames: Sequence[tuple[TableName, TableName]], between: Collection[TableName], there: Collection[TableName]
) -> bool:
    """Whether a name that is both left and taken may belong to an unknown table, or be one in between."""
    comes_from = {new: old for old, new in renames}
    goes_to = dict(renames)
    for name in between:
        cycle, at = [name], goes_to[name]
        while at in goes_to and at != name:
            cycle.append(at)
            at = goes_to[at]
        if at != name and comes_from[name] in there:
            return True  # A chain: `b` of `a TO b, b TO c` is on the way, or an unknown table.
        if at == name and len([one for one in cycle if one not in there]) > 1:
            return True
    return False
