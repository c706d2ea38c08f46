"""Events: the contents of decoded messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import msgspec

from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName, TableVersion


class Op(IntEnum):
    """Kind of a row change. At one commit ts a delete comes before an upsert of the same key.

    Before a DELETE and an UPDATE the row was there, before an INSERT it was not. An UPSERT is an INSERT or an UPDATE:
    the message does not show which. Of the first events of a key at one commit ts the smallest kind counts.
    """

    DELETE = 0
    UPDATE = 1
    UPSERT = 2
    INSERT = 3

    @property
    def one(self) -> str:
        """With its article, as a sentence begins."""
        return ("A delete", "An update", "An insert or update", "An insert")[self]


Image: TypeAlias = Mapping[str, Any]
"""A row: column name to wire value (see `decode/values.py`). An absent column is not NULL: nothing is known of it."""


class RowChange(msgspec.Struct, frozen=True, gc=False):
    """One row inserted, updated or deleted.

    A msgspec struct and not a dataclass: one is made for each message, and this is ten times cheaper.

    Attributes:
        name: The table's upstream name when the row changed.
        version: The `TableVersion.version` its images are written in.
        commit_ts: TSO at which its transaction committed; 0 where the protocol carries none.
        op: Kind of the change, as far as the message shows it.
        before: Old image of an update or delete, as far as the message holds it; None if it does not.
        after: New image of an insert, update or upsert; None for a delete.
        is_reduced: Its images hold the key alone, and TiDB has the row as of the commit ts.
    """

    name: TableName
    version: int
    commit_ts: int
    op: Op
    before: Image | None
    after: Image | None
    is_reduced: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One DDL.

    Attributes:
        commit_ts: TSO at which the DDL finished.
        sql: As TiCDC sends it: restored text, names not always qualified.
        database: Database that unqualified names in `sql` belong to; "" where the message does not say.
        after: The table after the DDL, where the message carries it.
        before: The table before the DDL, where the message carries it.
        table: Table that the message names beside the statement, in `database`; "" where it names none.
    """

    commit_ts: int
    sql: str
    database: str
    after: TableVersion | None = None
    before: TableVersion | None = None
    table: str = ""

    @property
    def named(self) -> TableName | None:
        """The table that the message names beside the statement, or that it describes; None if it does neither.

        Of a RENAME of several tables each part names the last name of its table, also where later parts give it that.
        """
        if self.after is not None:
            return self.after.name
        return TableName(self.database, self.table) if self.database and self.table else None

    @property
    def id(self) -> DdlId:
        """Its identity."""
        return DdlId(self.sql, str(self.after.name) if self.after else self.database, self.commit_ts)


@dataclass(frozen=True, slots=True)
class Resolved:
    """All rows with a commit ts at or below `resolved_ts` have been sent to the partition it was read from."""

    resolved_ts: int


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A table version that rows refer to. It is known from here on; it is no change of the table.

    Simple sends it as a message. Decoders of protocols whose rows describe themselves emit one before the first row of
    each version they meet, so that the versions of all protocols travel the same way.
    """

    version: TableVersion


Event: TypeAlias = RowChange | SchemaChange | Resolved | Bootstrap
