"""Reads DDL messages: what their statements say, in the names that the tables have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from applier.changefeed.table import TableName
from applier.ddl.actions import Action, CreateDatabase, CreateTable, Effect, RenameTable, effect, named, touches
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.ddl.statement_head import head
from applier.errors import RELOAD, SchemaChangeRefused
from applier.order.barrier import Barrier
from applier.order.renames import followed, sequence

_RENAME = "rename-table"


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL to apply, with what its statement says.

    Attributes:
        barrier: The DDL.
        actions: What it does; () where that is not known.
        swept: Tables of a database that it drops, or that a statement names which is not understood.
        kind: Kind of a statement that is not understood, as far as its head says; else "".
        refused: Why it cannot be applied, whatever the tables hold. It is raised when its turn comes, and not before:
            the rows before it in the tables that it names are applied, and the policies are asked first.
        is_loose: It renames a table that is not there, or into a name that is taken: another part of its statement may
            be missing.
    """

    barrier: Barrier
    actions: Sequence[Action]
    swept: Sequence[TableName] = ()
    kind: str = ""
    refused: SchemaChangeRefused | None = None
    is_loose: bool = False

    @staticmethod
    def of(barrier: Barrier, names: Spelling) -> Ddl:
        """Read the statement; `names` are those of the tables before it."""
        change = barrier.change
        before = change.before.name if change.before else None
        after = change.after.name if change.after else None
        if change.database:
            names.meet_database(change.database)
        try:
            read = parse(change.sql, change.database, before, after, known=names.of_table)
            actions = [names.spelt(action) for action in read]
        except SchemaChangeRefused as error:
            found = head(change.sql, change.database)
            if found.databases:
                what = f"FLASHBACK DATABASE brings back rows of all tables of database {found.databases[0]}"
                refused = SchemaChangeRefused(f"{what}, which no message holds.", RELOAD)
                return Ddl(barrier, (), names.of_dropped(*found.databases), found.kind, refused)
            return Ddl(barrier, (), [names.of(name) for name in found.tables], found.kind, error)
        dropped = [database for action in actions if (database := effect(action).database)]
        return Ddl(barrier, actions, names.of_databases(dropped))

    @property
    def commit_ts(self) -> int:
        """Its place among the rows."""
        return self.barrier.change.commit_ts

    @property
    def names(self) -> tuple[TableName, ...]:
        """Tables that it concerns."""
        concerned = (name for action in self.actions for name in touches(action))
        return tuple(dict.fromkeys([*concerned, *self.swept]))

    @property
    def effects(self) -> list[Effect]:
        """What its actions do to whole tables, in order."""
        return [effect(action) for action in self.actions]

    @property
    def done(self) -> list[tuple[Action, Effect]]:
        """Its actions in order, each with what it does to whole tables."""
        return [*zip(self.actions, self.effects, strict=True)]

    @property
    def brought(self) -> set[TableName]:
        """Names that belong to another table behind it."""
        return {name for done in self.effects for name in done.brought}

    @property
    def rename(self) -> RenameTable | None:
        """The rename that is all it does; None if there is none."""
        action = self.actions[0] if len(self.actions) == 1 else None
        return action if isinstance(action, RenameTable) else None

    @property
    def made(self) -> CreateTable | None:
        """The CREATE TABLE that is all it does, and that needs no other table; None if there is none."""
        match self.actions:
            case [CreateTable(like=None) as create] if self.refused is None:
                return create
        return None

    @property
    def is_making(self) -> bool:
        """Whether it makes a table or a database, needs no other table, and changes none."""
        match self.actions:
            case [CreateDatabase()] if self.refused is None:
                return True
        return self.made is not None

    @property
    def misnamed(self) -> tuple[TableName, ...]:
        """Tables that may have other names behind it: it renames them, and is not understood."""
        return self.names if self.kind == _RENAME else ()

    def parts(self, known: Tables | None = None) -> tuple[TableName, ...]:
        """Tables whose rows at or below it must be applied first: its own, and a source of LIKE that is not `known`.

        Rows alone describe such a source; the rows of others lie where they would without the DDL.
        """
        every = (name for action in self.actions for name in named(action))
        return tuple(dict.fromkeys([*self.names, *(name for name in every if known is None or name not in known)]))

    def is_in(self, loaded: Mapping[TableName, int]) -> bool:
        """True if one of its tables was loaded from an export of its commit ts or later, by the TSO of these."""
        return any(self.commit_ts <= loaded.get(name, 0) for name in self.names)

    def frees(self, parked: frozenset[TableName]) -> bool:
        """True if it ends one of the parked tables, so that the name is free for another table."""
        ends = any(done.created or done.removed or done.database or done.moved for done in self.effects)
        return ends and not parked.isdisjoint(self.names)

    def takes(self, names: Collection[TableName]) -> bool:
        """True if a table loses one of these names by it."""
        return any(name in names for done in self.effects for name in done.leaving(names))


Taken: TypeAlias = Callable[[int], Sequence[str]]
"""Finds the statements of a commit ts in the order in which they were taken before; () if they were not."""


def read_all(
    barriers: Iterable[Barrier], names: Spelling, met: Mapping[TableName, int] | None = None, taken: Taken | None = None
) -> list[Ddl]:
    """Read DDL in order of their commit ts; those of one commit ts are put in order.

    Args:
        barriers: The DDL.
        names: The tables before the first; it is moved past the last.
        met: Tables known by their rows alone, with the lowest commit ts of these.
        taken: Shows the order of renames that involve tables not known here; None where it is not known.
    """
    found: list[Ddl] = []
    coming = dict(met or {})
    for commit_ts, same in groupby(barriers, key=lambda barrier: barrier.change.commit_ts):
        parts = list(same)
        for name in [name for name, first in coming.items() if first <= commit_ts]:
            del coming[name]
            names.meet(name)
        order = [Ddl.of(part, names) for part in parts] if len(parts) > 1 else []
        here: list[Ddl] = []
        texts = taken(commit_ts) if taken is not None and any(part.rename is not None for part in order) else ()
        for part in _arranged(order, names, texts) if order else parts:
            ddl = part if isinstance(part, Ddl) else Ddl.of(part, names)
            if not texts and (rename := ddl.rename) is not None:
                is_loose = rename.table not in names or rename.to in names or names.is_doubted(rename.to)
                ddl = replace(ddl, is_loose=ddl.is_loose or is_loose)
            for action in ddl.actions:
                names.follow(action)
            names.doubt(ddl.misnamed)
            here.append(ddl)
        found += _with_last_names(here)
    return found


def _with_last_names(parts: Sequence[Ddl]) -> list[Ddl]:
    """DDL of one commit ts, in order, whose renames know which name later ones give their table."""
    last: dict[TableName, TableName] = {}
    found = []
    for part in reversed(parts):
        actions = list(part.actions)
        for place, action in reversed([*enumerate(actions)]):
            if isinstance(action, RenameTable):
                then = last.pop(action.to, None)
                last[action.table] = then or action.to
                actions[place] = replace(action, then=then)
        found.append(replace(part, actions=actions))
    return found[::-1]


def _arranged(parts: Sequence[Ddl], names: Spelling, texts: Sequence[str]) -> list[Ddl | Barrier]:
    """Parts of one statement in the order in which it makes them."""
    arranged: list[Ddl | Barrier] = [part.barrier for part in parts]
    places = [place for place, part in enumerate(parts) if part.rename is not None]
    if len(places) < 2:
        return arranged
    pairs = [(rename.table, rename.to) for part in parts if (rename := part.rename) is not None]
    changes = [parts[place].barrier.change for place in places]
    there = {name for pair in pairs for name in pair if name in names}
    # As they were taken before, if all of them were.
    taken = _as_taken([change.sql for change in changes], texts)
    order = taken or followed(pairs, [change.named for change in changes], there) or sequence(pairs, there)
    renames = ", ".join(f"{table} TO {to}" for table, to in pairs)
    what = f"The tables that are known do not determine the order of the renames of one statement: {renames}."
    for place, at in zip(places, order or range(len(places)), strict=True):
        part = parts[places[at]]
        refused = Ddl(part.barrier, (), part.names, _RENAME, SchemaChangeRefused(what, RELOAD), is_loose=True)
        arranged[place] = part.barrier if order else refused
    return arranged


def _as_taken(sqls: Sequence[str], texts: Sequence[str]) -> list[int]:
    return sorted(range(len(sqls)), key=lambda at: texts.index(sqls[at])) if set(sqls) <= set(texts) else []
