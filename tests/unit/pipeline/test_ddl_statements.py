"""DDL messages become actions in the names that the tables have, and in the order in which a statement makes them."""

from __future__ import annotations

from itertools import permutations

import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.ddl.actions import CreateTable, DropPartitions, NoRows, RenameTable, TruncateTable
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.errors import RangeRefused
from applier.order.barrier import Barrier, in_order
from applier.order.feed_order import OffsetOrder
from applier.pipeline.jobs.own_ddl import OwnDdl
from applier.pipeline.scan.statements import Ddl, read_all

ORDERS = TableName("shop", "orders")


def barrier(sql: str, database: str = "shop", *, topic: str = "t", offset: int = 0, at: int = 5) -> Barrier:
    """A DDL message."""
    return Barrier(SchemaChange(at, sql, database), topic, Position(0, offset, 0))


def one(item: Barrier, *tables: TableName) -> Ddl:
    """The DDL of a message, where these tables are there."""
    return read_all([item], Spelling(tables))[0]


@pytest.mark.parametrize(
    ("sql", "database", "action"),
    [
        ("TRUNCATE TABLE `Orders`", "SHOP", TruncateTable(ORDERS)),
        ("RENAME TABLE `SHOP`.`ORDERS` TO `Shop`.`Done`", "shop", RenameTable(ORDERS, TableName("shop", "Done"))),
        ("ALTER TABLE `ORDERS` DROP PARTITION `p0`", "shop", DropPartitions(ORDERS, ("p0",))),
        ("ALTER TABLE `Orders` AUTO_INCREMENT = 5", "shop", NoRows(ORDERS)),
    ],
)
def test_names_are_found_in_any_letters(sql: str, database: str, action: object) -> None:
    """A table is called as its rows call it; a new name keeps the letters of the text."""
    assert list(one(barrier(sql, database), ORDERS).actions) == [action]


def test_an_exact_name_wins_over_other_letters() -> None:
    """Two tables whose names differ in case were there one after the other: the text names its own."""
    names = Spelling([TableName("shop", "Orders")], [ORDERS])

    assert names.of(TableName("SHOP", "ORDERS")) == TableName("shop", "Orders")


def test_dropping_a_database_in_other_letters_sweeps_its_tables() -> None:
    """DROP DATABASE names no table, and takes all."""
    assert one(barrier("DROP DATABASE `SHOP`"), ORDERS).names == (ORDERS,)


@pytest.mark.parametrize("before", ["Shop", "SHOP"])
def test_a_new_table_has_the_letters_that_the_message_gives_its_database(before: str) -> None:
    """Its rows have them too; those of the statement are anyone's, and those of another table may be of a database
    that was dropped since.
    """
    name = TableName(before, "old")

    (created,) = one(barrier("CREATE TABLE sHOP.t (id INT PRIMARY KEY)", "shop"), name).actions

    assert isinstance(created, CreateTable)
    assert created.table == TableName("shop", "t")


@pytest.mark.parametrize("topics", list(permutations(range(3))))
def test_parts_of_a_swap_over_topics_are_put_in_order(topics: tuple[int, ...]) -> None:
    """Offsets of three topics do not show which part is first; TiCDC up to v8.5.4 shuffles even one topic."""
    parts = ["RENAME TABLE a TO tmp", "RENAME TABLE b TO a", "RENAME TABLE tmp TO b"]
    found = in_order([barrier(sql, topic=sql, offset=topics[at]) for at, sql in enumerate(parts)], 0)

    ddl = read_all(found, Spelling([TableName("shop", "a"), TableName("shop", "b")]))

    assert [item.barrier.change.sql for item in ddl] == parts


def test_an_order_that_is_open_is_refused_by_name() -> None:
    """`b` may be a table that the feed has not shown yet, or a name on the way."""
    parts = [barrier("RENAME TABLE b TO c", topic="b"), barrier("RENAME TABLE a TO b", topic="a", offset=1)]
    refused = read_all(parts, Spelling([TableName("shop", "a")]))[0].refused

    assert refused is not None
    assert refused.what == (
        "The tables that are known do not determine the order of the renames of one statement: "
        "shop.b TO shop.c, shop.a TO shop.b."
    )


def test_no_later_statement_counts_on_a_name_that_renames_of_an_open_order_may_have_left() -> None:
    """Another table may have it: a swap ordered by it would give a live table the name of another one."""
    of_name = {name: TableName("shop", name) for name in ("a", "b", "c", "x")}
    parts = [
        barrier("RENAME TABLE b TO c", topic="b"),
        barrier("RENAME TABLE a TO b", topic="a", offset=1),
        *(
            Barrier(SchemaChange(6, sql, "shop"), "t", Position(0, place, 0))
            for place, sql in enumerate(["RENAME TABLE x TO a", "RENAME TABLE b TO x", "RENAME TABLE a TO b"], 2)
        ),
        Barrier(SchemaChange(7, "CREATE TABLE A (id INT PRIMARY KEY)", "shop"), "t", Position(0, 5, 0)),
    ]

    ddl = read_all(parts, Spelling([of_name["a"], of_name["x"]]))

    assert [item.refused is not None for item in ddl] == [True] * 5 + [False]
    assert ddl[0].misnamed == (of_name["b"], of_name["c"])
    assert str(ddl[-1].names[0]) == "shop.A", "the table is another one, in letters of its own"


def test_a_swap_of_which_one_table_is_known_goes_in_the_order_in_which_it_was_taken_before() -> None:
    """A parked table is brought back without the other; the changefeed knew both when it came past the statement."""
    texts = ["RENAME TABLE a TO tmp", "RENAME TABLE b TO a", "RENAME TABLE tmp TO b"]
    parts = [barrier(sql, topic=sql) for sql in texts]
    names = [TableName("shop", name) for name in ("a", "b", "tmp")]

    ddl = read_all(parts[::-1], Spelling([names[0]]), taken={5: texts}.__getitem__)
    own = OwnDdl(frozenset([names[0]]), {})(ddl)

    assert [(item.barrier.change.sql, item.refused, item.is_loose) for item in ddl] == [
        (sql, None, False) for sql in texts
    ]
    assert [list(item.actions) for item in own] == [
        [RenameTable(names[0], names[2], then=names[1])],
        [],
        [RenameTable(names[2], names[1])],
    ], "the part of the other table counts as done"


@pytest.mark.parametrize(("known", "places"), [("ab", [0, 1, 2]), ("a", [0, 2]), ("b", [1])])
def test_a_swap_in_one_statement_is_followed_through_all_of_its_parts(known: str, places: list[int]) -> None:
    """The third part moves the table that the first one moved."""
    names = frozenset(TableName("shop", name) for name in known)
    (whole,) = read_all(
        [barrier("RENAME TABLE a TO t, b TO a, t TO b")], Spelling([TableName("shop", n) for n in "ab"])
    )

    (own,) = OwnDdl(names, {})([whole])

    assert list(own.actions) == [whole.actions[place] for place in places]


def test_a_table_of_which_only_rows_came_counts_in_the_order() -> None:
    """A cut-over on a table without a CREATE TABLE in the feed: its rows show that it is there."""
    parts = [
        barrier("RENAME TABLE _gho TO orders", topic="g", offset=1),
        barrier("RENAME TABLE orders TO _del", topic="o", offset=9),
    ]
    ddl = read_all(parts, Spelling([TableName("shop", "_gho")]), {ORDERS: 4})

    assert [item.barrier.topic for item in ddl] == ["o", "g"]


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE `orders` TO `db2`.`u`",
        "ALTER TABLE `orders` RENAME TO `db2`.`u`",
        "CREATE TABLE `db2`.`n` LIKE `orders_of_no_table`",
        "ALTER TABLE `db2`.`p` EXCHANGE PARTITION `p0` WITH TABLE `orders`",
    ],
)
def test_a_table_whose_database_the_message_does_not_name_is_refused(sql: str) -> None:
    """TiCDC's old architecture (v6.5 to v8.5.4) sends the text unqualified, with the database of the new name."""
    refused = one(barrier(sql, "db2"), ORDERS, TableName("db2", "orders")).refused

    assert refused is not None
    assert "the database of table orders" in refused.what
    assert " is not known, as the message names another table's" in refused.what


@pytest.mark.parametrize("others", [(), (TableName("db2", "orders"), TableName("db3", "t"))])
def test_a_source_whose_database_the_message_does_not_name_is_one_of_its_name(others: tuple[TableName, ...]) -> None:
    """TiCDC sends `CREATE TABLE db2.n LIKE orders` as it was typed, with the database of the new table."""
    (action,) = one(barrier("CREATE TABLE `db2`.`n` LIKE `Orders`", "db2"), ORDERS, *others).actions

    among = (*(name for name in others if name.table == "orders"), ORDERS)
    assert action == CreateTable(TableName("db2", "n"), like=among[0], among=among)


def test_a_table_is_not_made_like_itself() -> None:
    """A step that is repeated may know it already."""
    made = TableName("db2", "orders")
    (action,) = one(
        barrier("CREATE TABLE `db2`.`orders` LIKE `orders`", "db2"), ORDERS, TableName("db2", "orders")
    ).actions

    assert action == CreateTable(made, like=ORDERS, among=(ORDERS,))


def test_the_table_before_the_statement_names_its_database() -> None:
    """Simple describes it."""
    before = TableVersion(ORDERS, 1, (Column("id", ColumnType("int"), nullable=False),))
    change = SchemaChange(5, "RENAME TABLE `orders` TO `db2`.`u`", "db2", before=before)
    ddl = one(Barrier(change, "t", Position(0, 0, 0)), ORDERS, TableName("db2", "orders"))

    assert list(ddl.actions) == [RenameTable(ORDERS, TableName("db2", "u"))]


def test_the_table_after_the_statement_has_the_columns_of_like() -> None:
    """Which table they came from need not be known."""
    after = TableVersion(TableName("db2", "n"), 1, (Column("id", ColumnType("int"), nullable=False),))
    change = SchemaChange(5, "CREATE TABLE `db2`.`n` LIKE `orders`", "db2", after=after)

    assert list(one(Barrier(change, "t", Position(0, 0, 0)), ORDERS).actions) == [CreateTable(TableName("db2", "n"))]


@pytest.mark.parametrize(
    ("sql", "kind", "names"),
    [
        ("ALTER TABLE `Orders` FROB", "", (ORDERS,)),
        ("TRUNCATE `orders` FROB", "truncate-table", (ORDERS,)),
        ("DROP TABLE `orders`, `shop`.`u` FROB", "drop-table", (ORDERS, TableName("shop", "u"))),
        ("ALTER TABLE `orders` FROB, RENAME TO `u`", "", ()),
        ("RECOVER TABLE BY JOB 5", "recover-table", ()),
        ("FLASHBACK CLUSTER TO TIMESTAMP '2024-01-01'", "", ()),
        ("FROB `orders`", "", ()),
        ("ALTER TABLE `orders", "", ()),
    ],
)
def test_head_of_a_statement_that_is_not_understood_names_what_is_certain(
    sql: str, kind: str, names: tuple[TableName, ...]
) -> None:
    """The refusal waits for the statement's turn; until then its kind and tables let the policies be asked."""
    ddl = one(barrier(sql), ORDERS)

    assert ddl.refused is not None
    assert (ddl.kind, ddl.names) == (kind, names)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER DATABASE CHARACTER SET = utf8mb4",
        "CREATE TABLE `n` (`id` BIGINT PRIMARY KEY) SPLIT BETWEEN (0) AND (1000000) REGIONS 4",
        "CREATE TABLE `n` (`id` BIGINT PRIMARY KEY) SPLIT BY (10), (20)",
        "CREATE HYBRID INDEX `i` ON `orders` (`b`, `c`) PARAMETER 'x'",
    ],
)
def test_what_concerns_no_row_passes(sql: str) -> None:
    """Charsets of databases, regions of tables and hybrid indexes."""
    assert one(barrier(sql, "" if sql.startswith("ALTER") else "shop"), ORDERS).refused is None


def test_the_source_of_a_like_is_no_table_of_the_ddl() -> None:
    """Its load, its parking and its rows have nothing to do with the copy; only where rows alone describe it they come
    first.
    """
    copy = TableName("shop", "copy")
    ddl = one(barrier("CREATE TABLE copy LIKE orders"), ORDERS)

    assert ddl.names == (copy,)
    assert ddl.parts(Tables([TableVersion(ORDERS, 1, ())])) == (copy,)
    assert ddl.parts() == (copy, ORDERS)
    assert not ddl.is_in({ORDERS: ddl.commit_ts + 1})
    assert not ddl.frees(frozenset({ORDERS}))


def test_ddl_in_offset_order_are_refused_with_the_last_of_each_topic() -> None:
    """A range that begins after the first would be refused for the second."""
    places = [("t", 4), ("u", 9), ("t", 7)]
    texts = [f"ALTER TABLE orders ADD COLUMN c{at} INT" for _, at in places]
    ddl = [one(barrier(text, topic=topic, offset=at), ORDERS) for text, (topic, at) in zip(texts, places, strict=True)]

    with pytest.raises(RangeRefused, match="with --from t:0:8,u:0:10 and an offset for each other partition"):
        OwnDdl(frozenset([ORDERS]), {}, OffsetOrder(), {ORDERS: 0})(ddl)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_chain_over_databases_goes_by_the_last_names_that_its_messages_name(order: tuple[int, ...]) -> None:
    """Two tables swap names by way of two others, and the known tables alone leave open which goes first."""
    a, c, x = TableName("d1", "a"), TableName("d1", "c"), TableName("d2", "x")
    parts = [("d1.a", "d2.b", x), ("d2.b", "d1.c", x), ("d2.x", "d1.a", a), ("d1.c", "d2.x", x)]
    barriers = [
        Barrier(
            SchemaChange(5, f"RENAME TABLE {parts[at][0]} TO {parts[at][1]}", last.database, table=last.table),
            "t",
            Position(0, offset, 0),
        )
        for offset, at in enumerate(order)
        for last in [parts[at][2]]
    ]

    found = read_all(barriers, Spelling([a, x]))

    assert all(ddl.refused is None and not ddl.is_loose for ddl in found)
    tables = Tables([TableVersion(name, 1, ()) for name in (a, x)])
    for ddl in found:
        for action in ddl.actions:
            assert isinstance(action, RenameTable)
            assert action.table in tables
            assert action.to not in tables
            tables.apply(action, 5)
    assert sorted(tables) == [a, x]
    assert c not in tables
