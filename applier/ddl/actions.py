"""The actions of a DDL statement; an ALTER with several specifications has several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias, get_args

from applier.changefeed.table import Column, Index, Partition, Partitioning, TableName, TableVersion, fold


@dataclass(frozen=True, slots=True)
class OnDatabase:
    """An action on a database."""

    database: str


@dataclass(frozen=True, slots=True)
class OnTable:
    """An action on a table, as the statement names it."""

    table: TableName


class CreateDatabase(OnDatabase):
    """CREATE DATABASE."""


class AlterDatabase(OnDatabase):
    """ALTER DATABASE: options only, no rows."""


class DropDatabase(OnDatabase):
    """DROP DATABASE: all its tables go, without messages of their own."""


@dataclass(frozen=True, slots=True)
class CreateTable(OnTable):
    """CREATE TABLE; `version` has columns and keys as far as the SQL says, `like` is set for CREATE TABLE … LIKE.

    Where the text leaves the database of the source open, it is `among` some tables, the first of which is `like`, and
    the `rows` that follow show which.
    """

    version: TableVersion | None = None
    like: TableName | None = None
    partitioning: Partitioning | None = None
    among: tuple[TableName, ...] = ()
    rows: tuple[TableVersion, ...] = ()


class DropTable(OnTable):
    """DROP TABLE."""


class TruncateTable(OnTable):
    """TRUNCATE TABLE: all rows go, without row events."""


@dataclass(frozen=True, slots=True)
class RenameTable(OnTable):
    """RENAME TABLE, or ALTER TABLE … RENAME TO; with the name that later parts of the statement `then` give it."""

    to: TableName
    then: TableName | None = None

    @property
    def last(self) -> TableName:
        """The name that the table has after the statement."""
        return self.then or self.to


@dataclass(frozen=True, slots=True)
class RecoverTable(OnTable):
    """RECOVER or FLASHBACK TABLE: rows come back without row events."""

    to: TableName | None = None


@dataclass(frozen=True, slots=True)
class AddColumn(OnTable):
    """ADD COLUMN. `first` and `after` give its place; neither means last."""

    column: Column
    first: bool = False
    after: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn(OnTable):
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn(OnTable):
    """RENAME COLUMN."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class ModifyColumn(OnTable):
    """MODIFY or CHANGE COLUMN: column `name` becomes `column`, which may have another name."""

    name: str
    column: Column
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class SetDefault(OnTable):
    """ALTER COLUMN … SET DEFAULT or DROP DEFAULT (None)."""

    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class AddIndex(OnTable):
    """ADD INDEX, UNIQUE, PRIMARY KEY, or CREATE INDEX."""

    index: Index


@dataclass(frozen=True, slots=True)
class DropIndex(OnTable):
    """DROP INDEX or, with name `primary`, DROP PRIMARY KEY."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameIndex(OnTable):
    """RENAME INDEX."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class SetComment(OnTable):
    """The table's COMMENT."""

    comment: str


class NoRows(OnTable):
    """A change that touches neither rows nor columns: charset, auto id, TiFlash replica, TTL, statistics, …."""


@dataclass(frozen=True, slots=True)
class AddPartitions(OnTable):
    """ADD PARTITION: no rows."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class DropPartitions(OnTable):
    """DROP PARTITION: their rows go, without row events."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TruncatePartitions(OnTable):
    """TRUNCATE PARTITION: their rows go, without row events; () means ALL."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExchangePartition(OnTable):
    """EXCHANGE PARTITION `partition` WITH TABLE `other`: rows swap without row events."""

    partition: str
    other: TableName


@dataclass(frozen=True, slots=True)
class ReorganizePartitions(OnTable):
    """REORGANIZE PARTITION `names` INTO `partitions`: rows move inside the table.

    No names and no partitions stand for COALESCE PARTITION and for REORGANIZE of a table by hash or key: its rows are
    spread anew over another number of partitions.
    """

    names: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class SetPartitioning(OnTable):
    """PARTITION BY (with a partitioning) or REMOVE PARTITIONING (None): rows stay."""

    partitioning: Partitioning | None


class CreateView(OnTable):
    """CREATE VIEW: not a table, nothing is kept of it."""


class DropView(OnTable):
    """DROP VIEW."""


ColumnAction: TypeAlias = AddColumn | DropColumn | RenameColumn | ModifyColumn | SetDefault
IndexAction: TypeAlias = AddIndex | DropIndex | RenameIndex
PartitionAction: TypeAlias = (
    AddPartitions | DropPartitions | TruncatePartitions | ExchangePartition | ReorganizePartitions | SetPartitioning
)
TableAction: TypeAlias = (
    CreateTable | DropTable | TruncateTable | RenameTable | RecoverTable | SetComment | NoRows | CreateView | DropView
)
Alteration: TypeAlias = ColumnAction | IndexAction | SetComment | NoRows
"""Actions that leave the rows of a table where they are."""

Action: TypeAlias = (
    CreateDatabase | AlterDatabase | DropDatabase | ColumnAction | IndexAction | PartitionAction | TableAction
)


def kind(action: Action) -> str:
    """What an action is, as policies and audit rows call it: its class, as in `create-table`, `add-column`, …."""
    return _hyphened(type(action))


def _hyphened(of: type) -> str:
    return re.sub(r"\B([A-Z])", r"-\1", of.__name__).lower()


KINDS = frozenset(_hyphened(of) for of in get_args(Action))
"""All kinds: what `[ddl]` of the configuration may name."""


def on(action: Action, table: TableName) -> Action:
    """The action with another name of its table; those on databases stay as they are."""
    return action if isinstance(action, OnDatabase) else replace(action, table=table)


def touches(action: Action) -> tuple[TableName, ...]:
    """All tables that an action concerns, as it names them; () for databases, whose tables it does not name.

    CREATE TABLE … LIKE reads its source, and does nothing to it: see `named`.
    """
    match action:
        case OnDatabase():
            return ()
        case RenameTable(table, to):
            return (table, to)
        case RecoverTable(table, to):
            return (table,) if to is None else (table, to)
        case ExchangePartition(table=table, other=other):
            return (table, other)
        case _:
            return (action.table,)


def named(action: Action) -> tuple[TableName, ...]:
    """All tables that an action names: those that it concerns, and the one that a new table is, or may be, LIKE."""
    if not isinstance(action, CreateTable) or action.like is None:
        return touches(action)
    return (*touches(action), *(action.among or (action.like,)))


def by_table(actions: Sequence[Action]) -> list[list[Action]]:
    """Runs of actions that must be applied together: the specifications of one ALTER TABLE."""
    runs = groupby(actions, key=lambda action: touches(action) if isinstance(action, Alteration) else id(action))
    return [list(run) for _, run in runs]


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action does to whole tables, or to rows without row events; columns and keys are not part of it.

    Attributes:
        created: Tables that begin without rows.
        restored: Tables that come back with their rows.
        removed: Tables that go.
        database: Database that goes with all its tables; "" if none does.
        moved: Tables that get another name: the former and the new one.
        emptied: Tables that lose all rows.
        thinned: Tables that lose the rows of partitions.
        exchanged: Tables that exchange rows.
    """

    created: tuple[TableName, ...] = ()
    restored: tuple[TableName, ...] = ()
    removed: tuple[TableName, ...] = ()
    database: str = ""
    moved: tuple[tuple[TableName, TableName], ...] = ()
    emptied: tuple[TableName, ...] = ()
    thinned: tuple[TableName, ...] = ()
    exchanged: tuple[tuple[TableName, TableName], ...] = ()

    @property
    def brought(self) -> tuple[TableName, ...]:
        """Names that belong to another table than before."""
        return (*self.created, *(to for _, to in self.moved), *self.restored)

    @property
    def empties(self) -> bool:
        """Whether no former row of the tables is left."""
        return bool(self.created or self.removed or self.database or self.emptied)

    @property
    def is_silent(self) -> bool:
        """Whether rows remain, but the feed does not show which."""
        return bool(self.moved or self.restored or self.thinned or self.exchanged)

    def leaving(self, names: Iterable[TableName]) -> list[TableName]:
        """Names that tables lose; for a dropped database, those among `names`."""
        gone = [*self.removed, *(table for table, _ in self.moved)]
        wanted = fold(self.database)
        return gone + [name for name in names if name.folded[0] == wanted] if wanted else gone


def effect(action: Action) -> Effect:
    """What an action does to whole tables and their rows."""
    match action:
        case CreateTable(table):
            return Effect(created=(table,))
        case RecoverTable(table, to):
            return Effect(restored=(to or table,))
        case DropTable(table):
            return Effect(removed=(table,))
        case DropDatabase(database):
            return Effect(database=database)
        case RenameTable(table, to):
            return Effect(moved=((table, to),))
        case TruncateTable(table):
            return Effect(emptied=(table,))
        case DropPartitions(table) | TruncatePartitions(table):
            return Effect(thinned=(table,))
        case ExchangePartition(table, _, other):
            return Effect(exchanged=((table, other),))
    return Effect()
