"""A seed in, a database with a past out: transactions over hot keys, keys that change places, and DDL."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tests.letters import AnyLetters, Letters
from tests.properties.elements import PLAIN, Elements
from tests.upstream import Cell, Change, Column, Database, Name, Row, Schema

KEYS = 8
"""Keys are this few, so that they are inserted, deleted and inserted again."""

_NAMES = [Name("shop", "orders"), Name("shop", "items"), Name("mart", "orders"), Name("shop", "spare")]
APART = [Name("mart", "apart"), Name("mart", "apart_too")]
"""Tables that `tables.include` leaves out and takes in. They trade names among themselves: a name that comes from
outside is refused, as docs/limitations.md says."""

_KINDS = ("insert", "update", "update", "delete", "move")
_KINDS_WITHOUT_DELETES = ("insert", "insert", "update", "delete", "delete", "delete")
"""Where the feed shows no deletes, keys go and come again more often: only then is a row in the way of another."""

_TYPES = ("int", "varchar(20)", "decimal(10,2)", "bigint")
_WIDER = {
    "int": ("bigint", "varchar(20)", "decimal(14,2)"),
    "bigint": ("varchar(20)",),
    "varchar(20)": ("varchar(40)",),
    "decimal(10,2)": ("decimal(14,2)",),
}
"""What MODIFY makes of a type: some in place, some by writing every row anew."""


@dataclass(slots=True)
class History:
    """Draws what happens to a database.

    Args:
        random: The draw.
        ddl: Share of DDL among what happens.
        swaps: Rows exchange their keys.
        elements: What happens beside.
        keyless: Share of tables without a key.
        names: Tables, in the letters in which they are made.
        types: Types of columns.

    Attributes:
        database: What it happens to.
    """

    random: random.Random
    ddl: float = 0.15
    swaps: bool = True
    elements: Elements = PLAIN
    keyless: float = 0.15
    names: Sequence[Name] = tuple(_NAMES)
    types: Sequence[str] = _TYPES
    database: Database = field(init=False)
    _value: int = 0

    def __post_init__(self) -> None:
        letters = AnyLetters(self.random) if self.elements.letters else Letters()
        self.database = Database(letters=letters, filtered=self.elements.filtered)

    def begin(self, tables: int) -> None:
        """Create the first tables."""
        for name in [*self.names[:tables], *(APART if self.elements.include else [])]:
            self._create(name)

    def go_on(self, events: int) -> None:
        """Let some more happen."""
        for number in range(events):
            if self.elements.upkeep and number in {events // 3, 2 * events // 3}:
                self._take_over_a_name()
            self.database.tick(self.random.choice([1, 1, 2, 5]))
            if self.random.random() < self.ddl or not self.database.tables:
                self._ddl()
            else:
                self._transact()

    # ---- rows

    def _transact(self) -> None:
        names = self.random.sample(sorted(self.database.tables), min(len(self.database.tables), self._few()))
        changes = {name: self._changes(name) for name in names}
        changes = {name: items for name, items in changes.items() if items}
        if changes:
            self.database.transact(changes)

    def _changes(self, name: Name) -> list[Change]:
        table = self.database.tables[name]
        rows = list(table.rows.values())
        self.random.shuffle(rows)
        if not table.schema.key:
            return self._bag_changes(table.schema, rows)
        if self.swaps and len(rows) > 1 and self.random.random() < 0.15:
            return self._swap(table.schema, rows[:2])
        taken = {row["id"] for row in rows}
        free = [key for key in range(KEYS) if key not in taken]
        self.random.shuffle(free)
        changes = []
        for _ in range(self._few()):
            kind = self.random.choice(_KINDS_WITHOUT_DELETES if self.elements.filtered else _KINDS)
            if kind == "insert" and free:
                changes.append(Change(None, self._row(table.schema, id=free.pop())))
            elif kind == "update" and rows:
                old = rows.pop()
                changes.append(Change(old, self._row(table.schema, id=old["id"])))
            elif kind == "delete" and rows:
                changes.append(Change(rows.pop(), None))
            elif kind == "move" and rows and free:
                changes.append(Change(rows.pop(), self._row(table.schema, id=free.pop())))
        return changes

    def _swap(self, schema: Schema, rows: Sequence[Row]) -> list[Change]:
        """Two rows exchange their keys."""
        one, two = rows
        return [
            Change(one, self._row(schema, id=two["id"])),
            Change(two, self._row(schema, id=one["id"])),
        ]

    def _bag_changes(self, schema: Schema, rows: list[Row]) -> list[Change]:
        changes = []
        for _ in range(self._few()):
            kind = self.random.choice(["insert", "insert", "update", "delete"])
            if kind == "insert":
                changes.append(Change(None, self._row(schema, id=self.random.randrange(3))))
            elif rows:
                new = self._row(schema, id=self.random.randrange(3)) if kind == "update" else None
                changes.append(Change(rows.pop(), new))
        return changes

    def _row(self, schema: Schema, **cells: Cell) -> Row:
        self._value += 1
        return {column.name: cells.get(column.name, self._cell(column.type)) for column in schema.columns}

    def _cell(self, kind: str) -> Cell:
        if self.random.random() < 0.15:
            return None
        # Values of a table without a key repeat, so that it holds equal rows.
        number = self._value if self.random.random() < 0.7 else 1
        if kind.startswith("varchar"):
            return f"v{number}"
        if kind.startswith("decimal"):
            return (Decimal(number) / 4).quantize(Decimal("0.01"))
        return number

    def _few(self) -> int:
        return self.random.choice([1, 1, 1, 2, 3])

    # ---- DDL

    def _ddl(self) -> None:
        names = [*self.names, *(APART if self.elements.include else [])]
        unused = [name for name in names if name not in self.database.tables]
        if not self.database.tables:
            self._create(unused[0])
            return
        name = self.random.choice(sorted(self.database.tables))
        kinds: list[Callable[[Name], None]] = [
            *[self._add_column] * 3,
            *[self._drop_column, self._rename_column, self._modify_column] * 2,
            self._add_index,
            self._truncate,
            self._rename,
            self._rename,
            self._drop,
            self._of_partition,
            *[self._rename_several] * (6 if self.elements.renames else 0),
            *[self._rename] * (3 if self.elements.upkeep else 0),
            *[self._of_partition] * (8 if self.elements.partitions else 0),
            *[self._make_database_again] * (3 if self.elements.databases else 0),
        ]
        self.random.choice(kinds)(name)
        if unused and self.random.random() < 0.3:
            self._create(self.random.choice(unused)) if unused[0] not in self.database.tables else None

    def _create(self, name: Name) -> None:
        if name in self.database.tables or name not in (*self.names, *APART):
            return  # The letters may have changed meanwhile.
        if self.elements.databases and name in self.names and self.random.random() < 0.3:
            name = self._respelt(name, Name(name.database, self._other_letters(name.table)))
        types = self.random.choice(self.types), self.random.choice(self.types)
        columns = [Column("id"), *map(Column, ("v", "c"), types)]
        key = [] if self.random.random() < self.keyless else ["id"]
        share = 0.8 if self.elements.partitions else 0.3
        bounds = [("p0", KEYS // 2), ("p1", KEYS)] if key and self.random.random() < share else []
        self.database.create(name, columns[: self.random.randint(2, 3)], key, bounds)

    def _add_column(self, name: Name) -> None:
        known = {column.name for column in self.database.tables[name].schema.columns}
        free = [column for column in ("c", "d", "e") if column not in known]
        if free:
            kind = self.random.choice(self.types)
            default = None if self.random.random() < 0.4 else self._cell(kind)
            first = self.random.random() < 0.3
            self.database.add_column(name, Column(self.random.choice(free), kind, default), first=first)

    def _drop_column(self, name: Name) -> None:
        if (column := self._column(name)) is not None and len(self.database.tables[name].schema.columns) > 2:
            self.database.drop_column(name, column.name)

    def _rename_column(self, name: Name) -> None:
        known = {column.name for column in self.database.tables[name].schema.columns}
        free = [column for column in ("v", "c", "d", "e") if column not in known]
        if free and (column := self._column(name)) is not None:
            self.database.rename_column(name, column.name, self.random.choice(free))

    def _modify_column(self, name: Name) -> None:
        column = self._column(name)
        if column is not None and column.type in _WIDER:
            wider = [kind for kind in _WIDER[column.type] if self.types is _TYPES or kind in self.types]
            if wider:
                self.database.modify_column(name, column.name, self.random.choice(wider))

    def _column(self, name: Name) -> Column | None:
        columns = [column for column in self.database.tables[name].schema.columns if column.name != "id"]
        return self.random.choice(columns) if columns else None

    def _add_index(self, name: Name) -> None:
        if (column := self._column(name)) is not None:
            self.database.add_index(name, column.name)

    def _truncate(self, name: Name) -> None:
        self.database.truncate(name)

    def _unused(self, name: Name) -> list[Name]:
        """Names that a table may take."""
        return [free for free in (APART if name in APART else self.names) if free not in self.database.tables]

    def _others(self, name: Name) -> list[Name]:
        """Tables with which a table may trade names."""
        return sorted(other for other in self.database.tables.keys() - {name} if (other in APART) == (name in APART))

    def _rename(self, name: Name) -> None:
        unused, others = self._unused(name), self._others(name)
        if others and unused and self.random.random() < 0.5:
            other, between = self.random.choice(others), unused[0]
            self.database.rename((name, between), (other, name), (between, other))
        elif unused:
            self.database.rename((name, self.random.choice(unused)))
        self._follow_up(name)

    def _rename_several(self, name: Name) -> None:
        """Tables trade names in one statement: a swap, a turn of three, a shift or a cut-over."""
        others = self._others(name)
        between = Name("mart", "apart_between") if name in APART else Name(self.names[0].database, "between")
        free = self._unused(name) if name in APART else [*self._unused(name), between]
        self.random.shuffle(others)
        self.random.shuffle(free)
        kinds: list[list[tuple[Name, Name]]] = []
        if others:
            kinds.append([(name, between), (others[0], name), (between, others[0])])
        if others and free and free[0] != between:
            kinds.append([(name, free[0]), (others[0], name)])
        if len(others) > 1:
            kinds.append([(name, between), (others[0], name), (others[1], others[0]), (between, others[1])])
        if free and free[0] != between:
            # The same table twice, or there and back: its own name is used twice.
            kinds.append([(name, between), (between, self.random.choice([free[0], name]))])
        if kinds:
            self.database.rename(*self.random.choice(kinds))
            for left in [name, *others[:1]]:
                self._follow_up(left)

    def _take_over_a_name(self) -> None:
        """A table is renamed or dropped, another one is made under its name, and both go on."""
        name = self.random.choice(sorted(self.database.tables))
        unused = self._unused(name)
        if unused and self.random.random() < 0.8:
            self.database.rename((name, self.random.choice(unused)))
        else:
            self.database.drop(name)
        self._create(name)

    def _make_database_again(self, name: Name) -> None:
        """A database goes with all its tables, and comes again with some of them; not one that runs leave out."""
        former = name.database if name not in APART and name.database != "mart" else self.names[0].database
        self.database.drop_database(former)
        database = self._other_letters(former) if self.random.random() < 0.6 else former
        self.database.create_database(database)
        again = [self._respelt(each, Name(database, each.table)) for each in self.names if each.database == former]
        for each in self.random.sample(again, self.random.randint(1, len(again))):
            self._create(each)

    def _other_letters(self, name: str) -> str:
        return self.random.choice([name.lower(), name.upper(), name.capitalize(), name.swapcase()])

    def _respelt(self, name: Name, to: Name) -> Name:
        """Give a name that no table has other letters from here on."""
        self.names = [to if known == name else known for known in self.names]
        return to

    def _follow_up(self, name: Name) -> None:
        """Make a new table under a name that a rename left."""
        if self.elements.upkeep and name not in self.database.tables and self.random.random() < 0.7:
            self._create(name)

    def _drop(self, name: Name) -> None:
        if len(self.database.tables) > 1:
            self.database.drop(name)

    def _of_partition(self, name: Name) -> None:
        schema = self.database.tables[name].schema
        if not schema.bounds:
            return
        unused = self._unused(name)
        if unused and self.random.random() < (0.8 if self.elements.partitions else 0.5):
            self._exchange(schema, self.random.choice(unused))
        else:
            self.database.truncate_partition(name, self.random.choice(schema.bounds)[0])

    def _exchange(self, schema: Schema, other: Name) -> None:
        """A partition changes places with a new table, which holds rows that belong there, or none."""
        number = self.random.randrange(len(schema.bounds))
        part, high = schema.bounds[number]
        low = schema.bounds[number - 1][1] if number else 0
        self.database.create(other, schema.columns, schema.key)
        rows = [self._row(schema, id=key) for key in self.random.sample(range(low, high), self.random.randint(0, 2))]
        if rows:
            self.database.insert(other, *rows)
        self.database.exchange_partition(schema.name, part, other)
