"""Matches the columns of two versions of a table, and finds the fewest moves between two orders."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from applier.changefeed.table import Column, TableVersion, fold
from applier.ddl import actions as ddl
from applier.ddl.actions import Action


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Which column became which. TiDB compares names without regard to case.

    Attributes:
        pairs: Each column after, in order, with what it was before; None for a new one.
        unexplained_added: Names of new columns that no action adds.
        unexplained_dropped: Names of columns that are gone although no action drops them.
    """

    pairs: tuple[tuple[Column | None, Column], ...]
    dropped: tuple[Column, ...]
    unexplained_added: tuple[str, ...]
    unexplained_dropped: tuple[str, ...]
    actions: tuple[ddl.AddColumn | ddl.ModifyColumn, ...]

    def written(self, column: Column) -> Column | None:
        """The column as the statement writes it, if it does."""
        for action in self.actions:
            if fold(action.column.name) == fold(column.name):
                return action.column
        return None


def lineage(before: TableVersion, after: TableVersion, actions: Sequence[Action]) -> ColumnMapping:
    """Determine which column became which; without actions, equal names are the same column."""
    known = {fold(column.name): column for column in before.columns}
    dropped = {fold(action.name) for action in actions if isinstance(action, ddl.DropColumn)}
    sources = {  # What an action names by both names: the old one by the new one.
        fold(action.to if isinstance(action, ddl.RenameColumn) else action.column.name): fold(action.name)
        for action in actions
        if isinstance(action, ddl.RenameColumn | ddl.ModifyColumn)
    }
    moved = {old for new, old in sources.items() if new != old}
    taken = dropped | moved
    # ADD COLUMN IF NOT EXISTS names a column that stays what it is.
    named = {fold(action.column.name) for action in actions if isinstance(action, ddl.AddColumn)}
    added = {key for key in named if key not in known or key in taken}

    def source(column: Column) -> Column | None:
        key = fold(column.name)
        if key in added:
            return None
        return known.get(sources[key]) if key in sources else known.get(key) if key not in taken else None

    pairs = tuple((source(column), column) for column in after.columns)
    kept = {old.name for old, _ in pairs if old is not None}
    gone = tuple(column for column in before.columns if column.name not in kept)
    return ColumnMapping(
        pairs=pairs,
        dropped=gone,
        unexplained_added=tuple(new.name for old, new in pairs if old is None and fold(new.name) not in added),
        unexplained_dropped=tuple(column.name for column in gone if fold(column.name) not in dropped),
        actions=tuple(action for action in actions if isinstance(action, ddl.AddColumn | ddl.ModifyColumn)),
    )


def moves(current: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Fewest moves from the current order of some names to the wanted one, to be made one after the other.

    Yields:
        A name and the one behind which it goes; None for the front.
    """
    place = {name: index for index, name in enumerate(current)}
    staying = set(_longest_rising([place[name] for name in wanted]))
    for index, name in enumerate(wanted):
        if place[name] not in staying:
            yield name, wanted[index - 1] if index else None


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """A longest subsequence whose numbers rise."""
    runs: list[list[int]] = []  # Of each length the one that ends in the smallest number.
    for number in numbers:
        longer = bisect_left(runs, number, key=lambda run: run[-1])
        runs[longer : longer + 1] = [[*(runs[longer - 1] if longer else ()), number]]
    return runs[-1] if runs else []
