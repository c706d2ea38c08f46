"""Databases with one kind of past each, and how their changefeed is sent: what a crash in the middle may damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from applier.sink.control.rows import TableRequest
from tests.lab import Lab
from tests.ticdc import Changefeed, Habits
from tests.upstream import Change, Column, Database, Name, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, ITEMS, SPARE = Name("shop", "orders"), Name("shop", "items"), Name("mart", "spare")
LEDGER = Name("shop", "ledger")
_COLUMNS = (Column("id"), Column("v", "varchar(20)"))


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of past.

    Attributes:
        past: Makes it.
        habits: How it is sent.
        messages: Messages a step: so many that several steps are needed.
        order: As in the configuration.
        parked: Tables that are parked for a part of it.
        between: Shares of the past after which they are parked, and resume.
        stays: See `Lab`.
    """

    past: Callable[[Database], None]
    habits: Habits = field(default_factory=lambda: Habits(resolve=0.6))
    messages: int = 60
    order: str = "resolved"
    parked: tuple[Name, ...] = ()
    between: tuple[float, float] = (0, 0)
    stays: bool = False

    def lab(self, spark: SparkSession, name: str) -> Lab:
        """The changefeed of the case."""
        database = Database()
        self.past(database)
        feed = Changefeed(database, self.habits, seed=1)
        feed.send()
        lab = Lab(spark, name, database, feed.records, self.messages, self.order, stays=self.stays)
        if self.parked:
            park, resume = (database.log[int(len(database.log) * share)].ts for share in self.between)
            rules = tuple(f"{name.database}.{name.table}" for name in self.parked)
            lab.may_lack = _any
            lab.requests = [
                (park, TableRequest("one", "park", rules, "a look", "me")),
                (resume, TableRequest("two", "resume", ("*.*",), "", "me")),
            ]
        return lab


def _any(name: Name) -> bool:
    del name
    return True


def _row(key: int, value: object) -> Row:
    return {"id": key, "v": f"v{value}"}


def _rows(database: Database, name: Name, keys: range, value: object = "") -> None:
    database.insert(name, *(_row(key, f"{key}{value}") for key in keys))


def _inserts(database: Database) -> None:
    database.create(ORDERS, _COLUMNS, ["id"])
    for start in range(0, 80, 10):
        _rows(database, ORDERS, range(start, start + 10))


def _hot_keys(database: Database) -> None:
    """Three keys that are inserted, updated, deleted and inserted again."""
    database.create(ORDERS, _COLUMNS, ["id"])
    for turn in range(20):
        _rows(database, ORDERS, range(3), f"-{turn}")
        database.transact({ORDERS: [Change(_row(1, f"1-{turn}"), _row(1, f"again-{turn}"))]})
        rows = list(database.tables[ORDERS].rows.values())
        if turn < 19:
            database.transact({ORDERS: [Change(row, None) for row in rows]})


def _key_swaps(database: Database) -> None:
    """Rows that exchange their keys, whole and as a delete and an insert, beside rows that move to another key."""
    database.create(ORDERS, _COLUMNS, ["id"])
    _rows(database, ORDERS, range(6))
    for turn in range(20):
        rows = list(database.tables[ORDERS].rows.values())
        one, two = rows[turn % 6], rows[(turn + 1) % 6]
        swapped = [Change(one, {**two, "v": one["v"]}), Change(two, {**one, "v": two["v"]})]
        database.transact({ORDERS: swapped})
        first = next(iter(database.tables[ORDERS].rows.values()))
        database.transact({ORDERS: [Change(first, _row(100 + turn, turn))]})


def _columns(database: Database) -> None:
    """Columns that come, go, and are called as another one was."""
    database.create(ORDERS, _COLUMNS, ["id"])
    _rows(database, ORDERS, range(5))
    database.add_column(ORDERS, Column("c", "int", 7))
    database.insert(ORDERS, {**_row(10, "c"), "c": 1})
    database.rename_column(ORDERS, "v", "w")
    database.insert(ORDERS, {"id": 11, "w": "new name", "c": 2})
    database.drop_column(ORDERS, "c")
    database.insert(ORDERS, {"id": 12, "w": "no c"})
    database.add_column(ORDERS, Column("c", "varchar(20)", "again"), first=True)
    database.insert(ORDERS, {"id": 13, "w": "another c", "c": "x"})
    database.add_index(ORDERS, "w")
    database.insert(ORDERS, {"id": 14, "w": "last", "c": None})


def _rebuilds(database: Database) -> None:
    """Types that are widened in place, and types for which every row is written anew."""
    database.create(ORDERS, [*_COLUMNS, Column("n")], ["id"])
    database.insert(ORDERS, *({**_row(key, key), "n": key} for key in range(5)))
    database.modify_column(ORDERS, "n", "bigint")
    database.insert(ORDERS, {**_row(10, "long"), "n": 1 << 40})
    database.modify_column(ORDERS, "n", "varchar(20)")
    database.insert(ORDERS, {**_row(11, "text"), "n": "text"})
    row = next(row for row in database.tables[ORDERS].rows.values() if row["id"] == 10)
    database.transact({ORDERS: [Change(row, {**row, "n": "other"})]})


def _tables(database: Database) -> None:
    """Tables that are emptied, take each other's names, go, and come back under a name that another one had."""
    for name in (ORDERS, ITEMS):
        database.create(name, _COLUMNS, ["id"])
        _rows(database, name, range(4), name.table)
    database.truncate(ORDERS)
    _rows(database, ORDERS, range(2, 5), "after")
    database.rename((ORDERS, SPARE), (ITEMS, ORDERS), (SPARE, ITEMS))
    _rows(database, ORDERS, range(10, 13), "swapped")
    database.rename((ITEMS, SPARE))
    _rows(database, SPARE, range(20, 22), "moved")
    database.drop(ORDERS)
    database.create(ORDERS, [Column("id"), Column("v", "varchar(20)"), Column("n")], ["id"])
    database.insert(ORDERS, {**_row(1, "made anew"), "n": 1})


def _names(database: Database) -> None:
    """Statements that free names and give them away: circles, over databases, beside CREATE and DROP of such a name."""
    tables = (ORDERS, ITEMS, LEDGER)
    for name in tables:
        database.create(name, _COLUMNS, ["id"])
        _rows(database, name, range(3), name.table)
    _rows(database, ORDERS, range(10, 12), "before")
    database.rename((ORDERS, SPARE), (ITEMS, ORDERS), (SPARE, ITEMS))
    for name in tables:
        _rows(database, name, range(20, 22), f"{name.table}-swapped")
    database.rename((ORDERS, SPARE), (ITEMS, ORDERS), (LEDGER, ITEMS), (SPARE, LEDGER))
    for name in tables:
        _rows(database, name, range(30, 32), f"{name.table}-turned")
    database.rename((ORDERS, SPARE))
    database.create(ORDERS, [Column("id"), Column("n")], ["id"])
    database.insert(ORDERS, {"id": 1, "n": 1})
    _rows(database, SPARE, range(40, 42), "gone")
    database.drop(ITEMS)
    database.rename((SPARE, ITEMS))
    database.rename((LEDGER, SPARE), (ORDERS, LEDGER), (SPARE, ORDERS))
    _rows(database, ITEMS, range(50, 52), "last")
    _rows(database, ORDERS, range(50, 52), "last")
    database.insert(LEDGER, {"id": 50, "n": 50})


def _partitions(database: Database) -> None:
    """A partition that is emptied, and one that changes places with a table."""
    database.create(ORDERS, _COLUMNS, ["id"], [("p0", 10), ("p1", 20), ("p2", 30)])
    database.create(ITEMS, _COLUMNS, ["id"])
    _rows(database, ORDERS, range(0, 30, 3), "in")
    _rows(database, ITEMS, range(10, 14), "out")
    database.exchange_partition(ORDERS, "p1", ITEMS)
    _rows(database, ITEMS, range(40, 42), "more")
    database.truncate_partition(ORDERS, "p0")
    _rows(database, ORDERS, range(2), "again")


def _many_tables(database: Database) -> None:
    """Transactions over ten tables, which a step commits one by one."""
    names = [Name("shop", f"t{number}") for number in range(10)]
    for name in names:
        database.create(name, _COLUMNS, ["id"])
    for turn in range(8):
        database.transact({name: [Change(None, _row(turn, turn))] for name in names})


def _bag(database: Database) -> None:
    """Equal rows of a table without a key."""
    database.create(ORDERS, _COLUMNS)
    for turn in range(10):
        database.insert(ORDERS, _row(1, "same"), _row(1, "same"), _row(turn, turn))
        database.transact({ORDERS: [Change(_row(1, "same"), None)]})


def _missed(database: Database) -> None:
    """Tables whose columns, types, rows and names change while two of them are parked; the third goes on."""
    columns = [*_COLUMNS, Column("n")]
    database.create(ORDERS, columns, ["id"])
    for name in (ITEMS, LEDGER):
        database.create(name, _COLUMNS, ["id"])
    for turn in range(3):
        keys = range(turn * 3, turn * 3 + 3)
        database.insert(ORDERS, *({**_row(key, key), "n": key} for key in keys))
        for name in (ITEMS, LEDGER):
            _rows(database, name, keys, "before")
    database.add_column(ORDERS, Column("c", "int", 7))
    database.insert(ORDERS, {**_row(20, "c"), "n": 20, "c": 1})
    _rows(database, ITEMS, range(20, 23), "missed")
    database.modify_column(ORDERS, "n", "varchar(20)")
    database.rename_column(ORDERS, "v", "w")
    row = next(iter(database.tables[ORDERS].rows.values()))
    database.transact({ORDERS: [Change(row, {**row, "n": "text"})]})
    _rows(database, LEDGER, range(20, 26), "meanwhile")
    database.truncate(ITEMS)
    _rows(database, ITEMS, range(3), "emptied")
    database.rename((ITEMS, SPARE))
    database.create(ITEMS, [Column("id"), Column("other", "int")], ["id"])
    database.insert(ITEMS, {"id": 1, "other": 1}, {"id": 2, "other": 2})
    database.drop_column(ORDERS, "c")
    _rows(database, SPARE, range(30, 33), "moved")
    rows = list(database.tables[ORDERS].rows.values())
    database.transact({ORDERS: [Change(rows[1], None), Change(rows[2], {**rows[2], "id": 50})]})
    for turn in range(4):
        database.insert(ORDERS, {"id": 60 + turn, "w": "later", "n": None})
        database.insert(ITEMS, {"id": 60 + turn, "other": turn})
        for name in (SPARE, LEDGER):
            _rows(database, name, range(60 + turn, 61 + turn), "later")
    database.add_column(ORDERS, Column("d", "int", 3))
    database.insert(ORDERS, {"id": 70, "w": "last", "n": "n", "d": 4})


def _bag_changes(database: Database) -> None:
    """Tables without a key that get columns, take each other's names, and are emptied."""
    for name in (ORDERS, ITEMS):
        database.create(name, _COLUMNS)
        database.insert(name, _row(1, name.table), _row(1, name.table), _row(2, name.table))
    database.add_column(ORDERS, Column("c", "int", 7))
    with_c: Row = {**_row(1, "c"), "c": 7}
    database.insert(ORDERS, with_c, with_c)
    database.transact({ORDERS: [Change({**_row(1, "orders"), "c": 7}, with_c)]})
    database.rename_column(ORDERS, "v", "w")
    with_w: Row = {"id": 1, "w": "vc", "c": 7}
    database.insert(ORDERS, with_w, with_w)
    database.insert(ITEMS, _row(3, "out"), _row(3, "out"))
    database.rename((ORDERS, SPARE), (ITEMS, ORDERS), (SPARE, ITEMS))
    database.insert(ORDERS, _row(3, "out"), _row(3, "out"))
    database.transact({ITEMS: [Change(with_w, None)]})
    database.truncate(ORDERS)
    database.insert(ORDERS, _row(3, "out"), _row(3, "out"), _row(3, "out"))


def _everything(database: Database) -> None:
    _tables(database)
    database.add_column(SPARE, Column("c", "int", 1))
    database.transact({SPARE: [Change({**_row(21, "21moved"), "c": 1}, None)]})
    (row,) = database.tables[ORDERS].rows.values()
    database.transact({ORDERS: [Change(row, {**row, "id": 50})]})


_BAD_DAYS = Habits(partitions=3, dispatcher="scatter", twice=0.3, resolve=0.4, restart=0.1)

CASES = {
    "inserts": Case(_inserts),
    "hot-keys": Case(_hot_keys),
    "key-swaps": Case(_key_swaps),
    "key-swaps-raw": Case(_key_swaps, Habits(raw=True, resolve=0.6)),
    "columns": Case(_columns, messages=12),
    "rebuilds": Case(_rebuilds, messages=12),
    "tables": Case(_tables, messages=20),
    "names": Case(_names, Habits(resolve=0.15), messages=1000),
    "names-parked": Case(_names, Habits(resolve=0.3), 40, parked=(ITEMS,), between=(0.25, 0.75), stays=True),
    "partitions": Case(_partitions, messages=20),
    "many-tables": Case(_many_tables),
    "bag": Case(_bag, Habits(dispatcher="table", resolve=0.6), messages=20),
    "replays": Case(_everything, _BAD_DAYS, messages=30),
    "parked": Case(_missed, messages=16, parked=(ORDERS, ITEMS), between=(0.2, 0.6), stays=True),
    "parked-elsewhere": Case(
        _missed,
        Habits(partitions=3, dispatcher="scatter", resolve=0.5),
        24,
        parked=(ORDERS, ITEMS),
        between=(0.2, 0.6),
    ),
    "bag-by-offset": Case(_bag, Habits(dispatcher="table", resolve=0.6), messages=20, order="offset"),
    "bag-changes-by-offset": Case(_bag_changes, Habits(partitions=1, resolve=0.2), messages=14, order="offset"),
    "tables-by-offset": Case(_tables, Habits(partitions=1, resolve=0.2), messages=20, order="offset"),
}
"""By name."""
