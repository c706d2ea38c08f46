"""Finds tables that the checkpoint lists where no table goes any more, as their route was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.errors import ConfigError

Place: TypeAlias = tuple[str, ...]

_HINT = (
    "Set it back; or, with `run` stopped, give each of these tables the name that its route says now, in your engine "
    "(ALTER TABLE … RENAME TO …)."
)


class RouteChanged(ConfigError):
    """The tables of a checkpoint are not where their routes send them: begun anew there, they would lack rows."""


def settled(last: Checkpoint, place: Callable[[TableName], Place], holds: Callable[[Place, int], bool]) -> Checkpoint:
    """A checkpoint whose cut lists each table where its route sends it, also one that was renamed to there since.

    Args:
        last: The checkpoint.
        place: Where a table goes.
        holds: Whether the table at a place has a snapshot.

    Raises:
        RouteChanged: A table is somewhere else.
        TransientError: The catalog does not answer.
    """
    heads, places = last.cut.heads, {place(name): tracked for name, tracked in last.tables.items()}
    left = {at: head for at, head in heads.items() if at not in places}
    # One whose identity is known was there.
    free = [at for at, tracked in places.items() if at not in heads and tracked.identity]
    if not left or not free:
        return last
    moved = {at: next((new for new in free if holds(new, head)), None) for at, head in left.items()}
    if lost := sorted(".".join(at) for at, new in moved.items() if new is None):
        names = ", ".join(lost)
        what = f"The checkpoint lists {names}, where no table goes any more: a route under [tables] was changed."
        raise RouteChanged([f"{what} {_HINT}"])
    return replace(last, cut=replace(last.cut, heads={moved.get(at) or at: head for at, head in heads.items()}))
