"""Transactions and DDL in, their log and the contents of every table at every commit ts out: a TiDB in plain Python.

It shares nothing with the applier, not even its nouns: what it says of a table is what a test may believe.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from tests.letters import Letters

Cell = int | str | Decimal | None
Row = dict[str, Cell]


FROBNICATE = "FROBNICATE"
"""What an ALTER TABLE does that no parser knows."""


class Name(NamedTuple):
    """Name of a table."""

    database: str
    table: str

    @property
    def quoted(self) -> str:
        """The name in a statement."""
        return f"`{self.database}`.`{self.table}`"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Its name.
        type: `int`, `bigint`, `varchar(20)` or `decimal(10,2)`.
        default: What rows that exist get when it is added.
    """

    name: str
    type: str = "int"
    default: Cell = None

    @property
    def sql(self) -> str:
        """Its definition."""
        literal = f"_UTF8MB4'{self.default}'" if isinstance(self.default, str | Decimal) else str(self.default)
        default = "" if self.default is None else f" DEFAULT {literal}"
        return f"`{self.name}` {self.type.upper()}{default}"


@dataclass(frozen=True, slots=True)
class Schema:
    """A table between two DDL.

    Attributes:
        name: Its name.
        id: Changes with TRUNCATE.
        version: TSO of the DDL that made it.
        columns: Columns in order.
        key: Primary key; () for a table without one.
        bounds: Range partitions on the first key column: names and upper bounds (exclusive); () if not partitioned.
    """

    name: Name
    id: int
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    bounds: tuple[tuple[str, int], ...] = ()


class Change(NamedTuple):
    """One row of a transaction: None as old is an insert, None as new a delete."""

    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class Rows:
    """What a transaction did to one table."""

    ts: int
    schema: Schema
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL.

    Attributes:
        ts: Its commit ts.
        kind: As the Simple protocol calls it.
        sql: The statement.
        database: Its database.
        schema: The table afterwards; for a DROP the table before.
        ids: Ids of the tables that it concerns.
        names: Their names, before and after.
        before: The table before a RENAME.
        last: The table after a RENAME of several, under the name that the statement leaves it: each part names that.
    """

    ts: int
    kind: str
    sql: str
    database: str
    schema: Schema | None = None
    ids: tuple[int, ...] = ()
    names: tuple[Name, ...] = ()
    before: Schema | None = None
    last: Schema | None = None

    @property
    def named(self) -> Schema | None:
        """The table that its message describes."""
        return self.last or self.schema


@dataclass(slots=True)
class Table:
    """A table and its rows by row id; rows are never changed in place.

    Attributes:
        schema: What it is.
        rows: Its rows.
        kept: Rows that are gone, and whose going the changefeed does not show.
    """

    schema: Schema
    rows: dict[int, Row] = field(default_factory=dict)
    kept: dict[int, Row] = field(default_factory=dict)


State = Mapping[Name, tuple[Schema, Sequence[Row]]]
"""All tables at one commit ts."""


class Database:
    """A database whose past can be asked for.

    Args:
        ts: The commit ts before the first.
        letters: How people type the names in their DDL.
        filtered: The changefeed leaves out deletes (`ignore-event = ["delete"]`), and TRUNCATE is ignored: as far as it
            shows, such rows stay until an insert brings their key again.

    Attributes:
        ts: The newest commit ts.
        log: Everything that was done, in order.
        tables: The tables now.
        rewrites: What an ALTER TABLE made of a row, by the version of its table behind it.
        tells_former: Messages name the table before a rename. Where they do not, and TiCDC leaves the text as it was
            typed, a former name without its database beside a new one with its own is of no known database: such a
            statement is refused, and not made here.
    """

    def __init__(
        self, ts: int = 470_000_000_000_000_000, letters: Letters | None = None, *, filtered: bool = False
    ) -> None:
        self.ts = ts
        self.filtered = filtered
        self.rewrites: dict[int, Callable[[Row], Row]] = {}
        self.tells_former = True
        self._letters = letters or Letters()
        self.log: list[Rows | Ddl] = []
        self.tables: dict[Name, Table] = {}
        self._numbers = iter(range(1, 1 << 60))
        self._past: list[tuple[int, State]] = [(0, {})]

    def at(self, ts: int) -> State:
        """All tables with every row at or below a TSO."""
        return self._past[bisect_right(self._past, ts, key=lambda entry: entry[0]) - 1][1]

    def tick(self, steps: int = 1) -> int:
        """Let time pass; the new TSO."""
        self.ts += steps
        return self.ts

    # ---- rows

    def transact(self, changes: Mapping[Name, Sequence[Change]]) -> int:
        """Commit changes of rows to any number of tables; the commit ts.

        Each old row must be there. A key may change, and keys may be exchanged.
        """
        ts = self.tick()
        for name, items in changes.items():
            table = self.tables[name]
            free = [self._take(table, item.old) for item in items]
            for number, item in zip(free, items, strict=True):
                if item.new is not None:
                    table.rows[number] = item.new
                elif self.filtered and item.old is not None:
                    table.kept[number] = item.old
            self._replace(table, [item.new for item in items if item.new is not None])
            assert self._keys_are_unique(table), f"{name} has a key twice"
            self.log.append(Rows(ts, table.schema, tuple(items)))
        self._remember(ts, changes)
        return ts

    def insert(self, name: Name, *rows: Row) -> int:
        """Insert rows."""
        return self.transact({name: [Change(None, row) for row in rows]})

    def _take(self, table: Table, old: Row | None) -> int:
        if old is None:
            return next(self._numbers)
        number = next(number for number, row in table.rows.items() if row == old)
        del table.rows[number]
        return number

    def _replace(self, table: Table, rows: Iterable[Row]) -> None:
        """Let rows take the place of kept ones of their keys; without a key nothing does."""
        if table.schema.key:
            keys = {tuple(row[column] for column in table.schema.key) for row in rows}
            kept = table.kept.items()
            table.kept = {at: row for at, row in kept if tuple(row[column] for column in table.schema.key) not in keys}

    def _keys_are_unique(self, table: Table) -> bool:
        rows = [*table.rows.values(), *table.kept.values()]
        keys = [tuple(row[column] for column in table.schema.key) for row in rows]
        return not table.schema.key or len(keys) == len(set(keys))

    # ---- databases

    def create_database(self, name: str) -> int:
        """CREATE DATABASE, in the letters that it gets."""
        return self._of_database(name, f"CREATE DATABASE `{name}`", (next(self._numbers),))

    def drop_database(self, name: str) -> int:
        """DROP DATABASE with all its tables, of which no message of their own tells."""
        names = tuple(sorted(known for known in self.tables if known.database == name))
        ids = tuple(self.tables.pop(known).schema.id for known in names)
        return self._of_database(
            name, f"DROP DATABASE {self._letters.database(name)}", (next(self._numbers), *ids), names
        )

    def _of_database(self, name: str, sql: str, ids: tuple[int, ...], names: tuple[Name, ...] = ()) -> int:
        ts = self.tick()
        self.log.append(Ddl(ts, "QUERY", self._letters.words(sql), name, None, ids, names))
        self._remember(ts, names)
        return ts

    # ---- tables

    def create(
        self, name: Name, columns: Iterable[Column], key: Sequence[str] = (), bounds: Sequence[tuple[str, int]] = ()
    ) -> int:
        """CREATE TABLE."""
        schema = Schema(name, next(self._numbers), self.tick(), tuple(columns), tuple(key), tuple(bounds))
        parts = [column.sql for column in schema.columns]
        if key:
            parts.append(f"PRIMARY KEY({', '.join(f'`{column}`' for column in key)})")
        ranges = ",".join(f"PARTITION `{part}` VALUES LESS THAN ({bound})" for part, bound in bounds)
        partition = f" PARTITION BY RANGE (`{key[0]}`) ({ranges})" if bounds else ""
        self.tables[name] = Table(schema)
        return self._ddl(
            "CREATE", f"CREATE TABLE {self._letters.new(name, name.database)} ({','.join(parts)}){partition}", schema
        )

    def drop(self, name: Name) -> int:
        """DROP TABLE."""
        return self._ddl("ERASE", f"DROP TABLE {self._text(name)}", self.tables.pop(name).schema)

    def truncate(self, name: Name) -> int:
        """TRUNCATE TABLE."""
        table = self.tables[name]
        before = table.schema.id
        table.kept = table.kept | table.rows if self.filtered else {}
        table.schema, table.rows = replace(table.schema, id=next(self._numbers)), {}
        return self._ddl("TRUNCATE", f"TRUNCATE TABLE {self._text(name)}", table.schema, ids=(before, table.schema.id))

    def rename(self, *pairs: tuple[Name, Name]) -> int:
        """RENAME TABLE of any number of tables, one after the other, at one commit ts; a swap needs three."""
        ids = tuple(self.tables[name].schema.id for name, _ in pairs if name in self.tables)
        names = tuple(name for pair in pairs for name in pair)
        ts, parts = self.tick(), list[Ddl]()
        for name, to in pairs:
            table = self.tables.pop(name)
            before = table.schema
            table.schema = replace(table.schema, name=to)
            self.tables[to] = table
            sql = f"RENAME TABLE {name.quoted} TO {to.quoted}"
            if len(pairs) == 1:
                # TiCDC writes the parts of a statement anew, and leaves the text of a single rename as it was typed.
                former, new = self._text(name), self._letters.new(to, name.database)
                if "." in new and "." not in former and not self.tells_former:
                    former = f"{self._letters.database(name.database)}.{former}"
                sql = self._letters.words(f"RENAME TABLE {former} TO {new}")
            parts.append(Ddl(ts, "RENAME", sql, to.database, table.schema, ids, names, before))
        last = {part.schema.id: part.schema for part in parts if part.schema is not None}
        self.log += [replace(part, last=part.schema and last[part.schema.id]) for part in parts]
        self._remember(ts, names)
        return ts

    def truncate_partition(self, name: Name, part: str) -> int:
        """ALTER TABLE TRUNCATE PARTITION."""
        table = self.tables[name]
        inside = self._inside(table.schema, part)
        table.rows = {number: row for number, row in table.rows.items() if not inside(row)}
        table.kept = {number: row for number, row in table.kept.items() if not inside(row)}
        return self._ddl("ALTER", f"ALTER TABLE {self._text(name)} TRUNCATE PARTITION `{part}`", table.schema)

    def exchange_partition(self, name: Name, part: str, other: Name) -> int:
        """ALTER TABLE EXCHANGE PARTITION; the other table's rows must belong in the partition."""
        table, single = self.tables[name], self.tables[other]
        inside = self._inside(table.schema, part)
        assert all(inside(row) for row in single.rows.values()), "a row does not belong in the partition"
        leaving = {number: row for number, row in table.rows.items() if inside(row)}
        staying = {number: row for number, row in table.rows.items() if number not in leaving}
        table.rows, single.rows = staying | single.rows, leaving
        leaving = {number: row for number, row in table.kept.items() if inside(row)}
        staying = {number: row for number, row in table.kept.items() if number not in leaving}
        table.kept, single.kept = staying | single.kept, leaving
        sql = f"ALTER TABLE {name.quoted} EXCHANGE PARTITION `{part}` WITH TABLE {other.quoted}"
        ids = (table.schema.id, single.schema.id)
        return self._ddl("ALTER", sql, table.schema, ids=ids, names=(name, other))

    # ---- columns

    def add_column(self, name: Name, column: Column, *, first: bool = False) -> int:
        """ALTER TABLE ADD COLUMN; rows that exist get its default."""
        columns = self.tables[name].schema.columns
        after = (column, *columns) if first else (*columns, column)
        self._alter(name, after, lambda row: {**row, column.name: column.default})
        return self._ddl_of(name, f"ADD COLUMN {column.sql}{' FIRST' if first else ''}")

    def drop_column(self, name: Name, column: str) -> int:
        """ALTER TABLE DROP COLUMN."""
        columns = [known for known in self.tables[name].schema.columns if known.name != column]
        self._alter(name, columns, lambda row: {key: value for key, value in row.items() if key != column})
        return self._ddl_of(name, f"DROP COLUMN {self._letters.column(column)}")

    def rename_column(self, name: Name, column: str, to: str) -> int:
        """ALTER TABLE RENAME COLUMN; not of the key."""
        columns = [
            replace(known, name=to) if known.name == column else known for known in self.tables[name].schema.columns
        ]
        self._alter(name, columns, lambda row: {to if key == column else key: value for key, value in row.items()})
        return self._ddl_of(name, f"RENAME COLUMN {self._letters.column(column)} TO `{to}`")

    def modify_column(self, name: Name, column: str, kind: str) -> int:
        """ALTER TABLE MODIFY COLUMN to another type; rows are rewritten without a row event."""
        wanted = next(known for known in self.tables[name].schema.columns if known.name == column)
        wanted = replace(wanted, type=kind, default=None)
        columns = [wanted if known.name == column else known for known in self.tables[name].schema.columns]
        self._alter(name, columns, lambda row: {**row, column: cast(row[column], kind)})
        return self._ddl_of(name, f"MODIFY COLUMN {wanted.sql}")

    def add_index(self, name: Name, column: str) -> int:
        """ALTER TABLE ADD INDEX: changes no row."""
        columns = self.tables[name].schema.columns
        self._alter(name, columns, lambda row: row)
        return self._ddl_of(name, f"ADD INDEX `idx_{column}_{self.ts}`({self._letters.column(column)})", "CINDEX")

    def frobnicate(self, name: Name) -> int:
        """An ALTER TABLE that no parser knows, and that changes no row."""
        self._alter(name, self.tables[name].schema.columns, lambda row: row)
        return self._ddl_of(name, FROBNICATE)

    def _alter(self, name: Name, columns: Sequence[Column], rewritten: Callable[[Row], Row]) -> None:
        table = self.tables[name]
        table.schema = replace(table.schema, version=self.tick(), columns=tuple(columns))
        self.rewrites[table.schema.version] = rewritten
        table.rows = {number: rewritten(row) for number, row in table.rows.items()}
        table.kept = {number: rewritten(row) for number, row in table.kept.items()}

    # ---- the log

    def _ddl_of(self, name: Name, change: str, kind: str = "ALTER") -> int:
        return self._ddl(kind, f"ALTER TABLE {self._text(name)} {change}", self.tables[name].schema)

    def _ddl(self, kind: str, sql: str, schema: Schema, ids: tuple[int, ...] = (), names: tuple[Name, ...] = ()) -> int:
        ts, names = self.tick(), names or (schema.name,)
        sql = self._letters.words(sql)
        self.log.append(Ddl(ts, kind, sql, schema.name.database, schema, ids or (schema.id,), names))
        self._remember(ts, names)
        return ts

    def _text(self, name: Name) -> str:
        return self._letters.known(name, name.database)

    def _remember(self, ts: int, names: Iterable[Name]) -> None:
        state = dict(self._past[-1][1])
        for name in names:
            state.pop(name, None)
            if name in self.tables:
                table = self.tables[name]
                state[name] = (table.schema, (*table.rows.values(), *table.kept.values()))
        self._past.append((ts, state))

    def _inside(self, schema: Schema, part: str) -> _Range:
        bounds = [bound for _, bound in schema.bounds]
        place = [name for name, _ in schema.bounds].index(part)
        return _Range(schema.key[0], bounds[place - 1] if place else None, bounds[place])


class _Range(NamedTuple):
    column: str
    low: int | None
    high: int

    def __call__(self, row: Row) -> bool:
        value = row[self.column]
        assert isinstance(value, int)
        return (self.low is None or value >= self.low) and value < self.high


def cast(value: Cell, kind: str) -> Cell:
    """What MODIFY makes of a value; only casts about which there is no doubt."""
    if value is None:
        return None
    if kind.startswith("varchar"):
        return str(value)
    if kind.startswith("decimal"):
        return Decimal(value).quantize(Decimal(1).scaleb(-int(kind.rstrip(")").rpartition(",")[2])))
    return int(value)
