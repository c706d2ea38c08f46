"""The upstream table of the benchmark: an `orders` table with eleven columns of the usual types."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

DATABASE = "shop"
STATUSES = ("new", "paid", "packed", "sent", "done")


@dataclass(frozen=True, slots=True)
class Column:
    """A column as TiDB describes it.

    Attributes:
        name: Its name.
        sql: Type and options as TiCDC prints them in DDL.
        type: TiDB's name of the type, without length.
        arrow: The type that the lake must give it.
        length: TiDB's length: display width, characters, precision, or width with fraction digits.
        scale: Decimal places or fraction digits; 0 for none.
    """

    name: str
    sql: str
    type: str
    arrow: pa.DataType
    length: int
    scale: int = 0

    @property
    def is_text(self) -> bool:
        """Has a character set."""
        return self.type in {"varchar", "enum"}

    @property
    def is_key(self) -> bool:
        """The primary key."""
        return self.name == "id"


_LABELS = ",".join(f"'{label}'" for label in STATUSES)

COLUMNS = (
    Column("id", "BIGINT PRIMARY KEY", "bigint", pa.int64(), 20),
    Column("customer_id", "BIGINT", "bigint", pa.int64(), 20),
    Column("product_id", "INT", "int", pa.int32(), 11),
    Column("quantity", "INT", "int", pa.int32(), 11),
    Column("price", "DECIMAL(12,2)", "decimal", pa.decimal128(12, 2), 12, 2),
    Column("status", f"ENUM({_LABELS})", "enum", pa.string(), max(map(len, STATUSES))),
    Column("flag", "TINYINT", "tinyint", pa.int32(), 4),
    Column("email", "VARCHAR(64)", "varchar", pa.string(), 64),
    Column("note", "VARCHAR(200)", "varchar", pa.string(), 200),
    Column("created_at", "DATETIME(3)", "datetime", pa.timestamp("us"), 23, 3),
    Column("updated_at", "TIMESTAMP NULL", "timestamp", pa.timestamp("us", "UTC"), 19),
)

ARROW = pa.schema([pa.field(column.name, column.arrow, nullable=not column.is_key) for column in COLUMNS])


def table_name(number: int, tables: int) -> str:
    """Name of table `number` of a workload with so many tables."""
    return "orders" if tables == 1 else f"orders_{number:03d}"


def create_database() -> str:
    """The DDL that makes the database, as TiCDC prints it."""
    return f"CREATE DATABASE `{DATABASE}`"


def create_table(name: str) -> str:
    """The DDL that makes a table, as TiCDC prints it."""
    columns = ",".join(f"`{column.name}` {column.sql}" for column in COLUMNS)
    return f"CREATE TABLE `{DATABASE}`.`{name}` ({columns})"
