"""One-line constructors of the nouns, for tests."""

from __future__ import annotations

from typing import Any

from applier.changefeed.event import Op, RowChange
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.sink.write.stage import StagedBatch

ACCOUNT = TableName("shop", "account")


def version(
    *columns: tuple[str, str], name: TableName = ACCOUNT, key: tuple[str, ...] = ("id",), number: int = 1
) -> TableVersion:
    """A table version from pairs of column name and type; key columns are NOT NULL."""
    made = tuple(Column(column, ColumnType(kind), nullable=column not in key) for column, kind in columns)
    indexes = (Index("PRIMARY", key, unique=True, primary=True),) if key else ()
    return TableVersion(name, number, made, indexes)


def insert(at: int, *, name: TableName = ACCOUNT, number: int = 1, **row: Any) -> RowChange:
    """An inserted row."""
    return RowChange(name, number, at, Op.INSERT, None, row)


def update(at: int, *, name: TableName = ACCOUNT, number: int = 1, before: Any = None, **row: Any) -> RowChange:
    """An updated row; `before` is its old image where the feed has one."""
    return RowChange(name, number, at, Op.UPDATE, before, row)


def upsert(at: int, *, name: TableName = ACCOUNT, number: int = 1, **row: Any) -> RowChange:
    """An inserted or updated row: nothing shows which."""
    return RowChange(name, number, at, Op.UPSERT, None, row)


def delete(at: int, *, name: TableName = ACCOUNT, number: int = 1, **row: Any) -> RowChange:
    """A deleted row."""
    return RowChange(name, number, at, Op.DELETE, row, None)


def added(staged: StagedBatch) -> int:
    """Rows of the files that a batch has become."""
    return sum(file.records for file in staged.rows or ())
