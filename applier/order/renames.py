"""Puts the renames of one statement into the order in which the statement makes them.

TiCDC sends each rename of `RENAME TABLE a TO tmp, b TO a, tmp TO b` as a message of its own, all with one commit ts.
With a topic per table their offsets count different messages, and the old architecture up to v8.5.4 sends them in any
order even in one topic. So the names decide: a rename into a name that is taken waits for the rename out of it.
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
