"""The contract of the protocols: rows of one kind in, one message body each out, and the messages between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from bench.topic import pieces
from bench.topic.events import START_MS, Ints
from bench.topic.pieces import Piece
from bench.topic.schema import table_name

TABLE_ID = 112
"""TiDB's id of the first table; the others follow in steps of 2."""


class Record(NamedTuple):
    """A Kafka record. TiCDC sends rows with an empty key where the protocol has none, other messages with no key."""

    key: bytes | None
    value: bytes | None
    everywhere: bool = True
    """False: to partition 0 only."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Row events of one kind.

    Attributes:
        table: Number of each row's table.
        tables: Tables of the workload.
        commit_ts: TSO of each row.
        before: Old images of updates and deletes.
        after: New images of inserts and updates.
    """

    table: Ints
    tables: int
    commit_ts: Ints
    before: pa.Table | None
    after: pa.Table | None

    @property
    def names(self) -> Piece:
        """Table names, one constant where there is one table."""
        if self.tables == 1:
            return table_name(0, 1)
        return pieces.each([table_name(number, self.tables) for number in range(self.tables)], self.table)

    @property
    def ids(self) -> Ints:
        """TiDB's table ids."""
        return TABLE_ID + 2 * self.table

    @property
    def wall_ms(self) -> Piece:
        """Upstream clock of the commits, Unix milliseconds, as text."""
        return pieces.text(pa.array(self.commit_ts >> 18))

    @property
    def sent_ms(self) -> Piece:
        """When TiCDC encoded them: a second later."""
        return pieces.text(pa.array((self.commit_ts >> 18) + 1000))


class Encoder(Protocol):
    """One protocol. Needs no state between calls."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """The message of a DDL; `table` is None for one on the database."""

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """The message that repeats a table's schema, for protocols that have one."""

    def watermark(self, commit_ts: int) -> Record:
        """The message that says that all rows up to here have been sent."""

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """Keys and values of row messages; no keys where the protocol sends empty ones."""


def schema_version(table: int) -> int:
    """TiDB's schema version of a table, a TSO just below the commit ts of its CREATE TABLE."""
    return ddl_ts(table) - 2


def ddl_ts(table: int) -> int:
    """Commit ts of a table's CREATE TABLE; the database is made at that of table -1."""
    return ((START_MS - 60_000 + 50 * (table + 1)) << 18) + 3
