"""Rows behind several renames of one statement have the columns that the last of them left."""

from __future__ import annotations

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.order.barrier import Barrier, cut
from applier.pipeline.scan.statements import read_all
from applier.pipeline.scan.window_tables import typed_by

A, B, BETWEEN = TableName("db", "a"), TableName("db", "b"), TableName("db", "between")
NUMBERS, TEXTS = ColumnType("bigint"), ColumnType("varchar", length=20)


def test_renames_of_one_statement_end_one_segment() -> None:
    """Otherwise rows of a table that took another's name are read in the columns of the one that left it."""
    tables = Tables(TableVersion(name, 1, (Column("v", kind),)) for name, kind in ((A, NUMBERS), (B, TEXTS)))
    pairs = [(A, BETWEEN), (B, A), (BETWEEN, B)]
    barriers = [
        Barrier(SchemaChange(ts, f"RENAME TABLE {old} TO {new}", "db"), "topic", Position(0, offset, 0))
        for ts in (5, 9)
        for offset, (old, new) in enumerate(pairs, ts)
    ]
    ddl = read_all(barriers, Spelling(tables))

    typed = typed_by(ddl, tables)
    cuts = cut((item.commit_ts, item.parts(tables)) for item in ddl)

    assert cuts[A] == [5, 9]
    assert [version and version.columns[0].type for version in typed[A]] == [NUMBERS, TEXTS, NUMBERS]
    assert [version and version.columns[0].type for version in typed[B]] == [TEXTS, NUMBERS, TEXTS]
    assert typed[BETWEEN] == [None, None, None]


def test_rows_behind_renames_of_an_open_order_have_no_known_columns() -> None:
    """They may be of another table: read in the columns of the one before, they would park it needlessly."""
    tables = Tables([TableVersion(A, 1, (Column("v", TEXTS),))])
    pairs = [(A, BETWEEN), (B, A), (BETWEEN, B)]
    barriers = [
        Barrier(SchemaChange(5, f"RENAME TABLE {old} TO {new}", "db"), "topic", Position(0, offset, 0))
        for offset, (old, new) in enumerate(pairs)
    ]

    typed = typed_by(read_all(barriers, Spelling(tables)), tables)

    assert [version and version.columns[0].type for version in typed[A]] == [TEXTS, None]
