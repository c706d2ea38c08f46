"""What the statement of a DDL message says, with what the message says beside it."""

from __future__ import annotations

import pytest

from applier.changefeed.ddl import Action, CreateTable, RenameTable
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.ddl import Ddl
from applier.errors import SchemaChangeRefused
from applier.order.barrier import Barrier

ORDERS = TableName("shop", "orders")


def read(change: SchemaChange) -> list[Action]:
    """The actions of a message."""
    return list(Ddl.of(Barrier(change, "t", Position(0, 0, 0))).actions)


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE `orders` TO `db2`.`u`",
        "ALTER TABLE `orders` RENAME TO `db2`.`u`",
        "CREATE TABLE `db2`.`n` LIKE `orders`",
        "ALTER TABLE `db2`.`p` EXCHANGE PARTITION `p0` WITH TABLE `orders`",
    ],
)
def test_a_table_whose_database_the_message_does_not_name_is_refused(sql: str) -> None:
    """TiCDC's old architecture (v6.5 to v8.5.4) sends the text unqualified, with the database of the new name."""
    with pytest.raises(SchemaChangeRefused, match="the database of table orders is not known") as refused:
        read(SchemaChange(5, sql, "db2"))
    assert sql in refused.value.what


def test_the_table_before_the_statement_names_its_database() -> None:
    """Simple describes it."""
    before = TableVersion(ORDERS, 1, (Column("id", ColumnType("int"), nullable=False),))
    change = SchemaChange(5, "RENAME TABLE `orders` TO `db2`.`u`", "db2", before=before)

    assert read(change) == [RenameTable(ORDERS, TableName("db2", "u"))]


def test_the_table_after_the_statement_has_the_columns_of_like() -> None:
    """Which table they came from need not be known."""
    after = TableVersion(TableName("db2", "n"), 1, (Column("id", ColumnType("int"), nullable=False),))
    change = SchemaChange(5, "CREATE TABLE `db2`.`n` LIKE `orders`", "db2", after=after)

    assert read(change) == [CreateTable(TableName("db2", "n"))]


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
    assert read(SchemaChange(5, sql, "" if sql.startswith("ALTER DATABASE") else "shop"))
