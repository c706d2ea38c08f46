"""Statements that are not understood whole: each is refused, none is passed over."""

from __future__ import annotations

from contextlib import suppress

import pytest

from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused

REFUSED = [
    ("", "the statement is empty"),
    (" ; -- nothing\n;", "the statement is empty"),
    ("SELECT 1", "no DDL that TiCDC sends"),
    ("`ALTER` TABLE t ADD a INT", "no DDL that TiCDC sends"),
    ("CREATE USER u", "`VIEW` is missing"),
    ("CREATE TABLE t", "`(` is missing"),
    ("CREATE TABLE t ()", "a name is missing"),
    ("CREATE TABLE t (INDEX (a))", "a table has no columns"),
    ("CREATE TABLE t (a INT", "ends too early"),
    ("CREATE TABLE t (a INT) SELECT 1", "goes on where it should end"),
    ("CREATE TABLE t (a GEOMETRY)", "TiDB has no column type GEOMETRY"),
    ("CREATE TABLE t (a INT b INT)", "an attribute of a column is not known"),
    ("CREATE TABLE t (a INT NEW_ATTRIBUTE)", "an attribute of a column is not known"),
    ("CREATE TABLE t (a INT) NEW_OPTION = 1", "goes on where it should end"),
    ("CREATE TABLE t (a INT) ENGINE = x,", "an option is missing"),
    ("CREATE TABLE t (a INT) ENGINE = x, NEW_OPTION = 1", "goes on where it should end"),
    ("CREATE TABLE t (a INT) PARTITION BY SYSTEM (a)", "a way of partitioning is not known"),
    ("CREATE TABLE t (a INT) PARTITION BY RANGE (a) INTERVAL (10) FIRST PARTITION LESS THAN (0)", "by interval"),
    ("CREATE TABLE t (a INT) PARTITION BY HASH (a) PARTITIONS 99999", "more than TiDB allows"),
    ("CREATE TABLE t (a VARCHAR(99999999999999999999999))", "no whole number"),
    ("CREATE TABLE t (a BIT(8) DEFAULT x'112233445566778899')", "too long for its type"),
    ("ALTER TABLE t ADD COLUMN a VARBINARY(9) DEFAULT x'FF'", "no UTF-8 text"),
    ("ALTER TABLE t FROBNICATE", "a specification is not known"),
    ("ALTER TABLE t ADD COLUMN a INT, FROBNICATE", "a specification is not known"),
    ("ALTER TABLE t ADD COLUMN a INT,", "a specification is missing"),
    ("ALTER TABLE t ADD COLUMN a INT ADD COLUMN b INT", "an attribute of a column is not known"),
    ("ALTER TABLE t DROP COLUMN a b", "`,` is missing"),
    ("ALTER TABLE t ALTER COLUMN a SET", "`SET DEFAULT` is missing"),
    ("ALTER TABLE t FIRST PARTITION LESS THAN (10)", "a specification is not known"),
    ("ALTER TABLE t SPLIT MAXVALUE PARTITION LESS THAN (10)", "a specification is not known"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET binary", "makes bytes of text"),
    ("ALTER TABLE t /* AlterTableType(99) is not supported */", "did not print all of the statement"),
    ("ALTER TABLE t /* AlterTableType(99) is not supported */ , ADD COLUMN a INT", "did not print all"),
    ("DROP USER u", "what is dropped is not known"),
    ("RENAME USER a TO b", "what is renamed is not known"),
    ("RENAME TABLE a", "`TO` is missing"),
    ("RENAME TABLE a TO `shop`.`b`", "the database of table a is not known, as the message names another table's"),
    ("RECOVER TABLE BY JOB 53", "the number of a job does not show"),
    ("FLASHBACK DATABASE d", "rows of whole databases came back"),
    ("FLASHBACK CLUSTER TO TIMESTAMP '2024-01-01'", "rows of whole databases came back"),
    ("TRUNCATE t; DROP", "what is dropped is not known"),
    ("TRUNCATE `t", "cut off"),
    ("TRUNCATE t /* open", "cut off"),
    ("TRUNCATE t /*T![x] open", "a comment is not closed"),
    ("TRUNCATE t */", "comments are nested"),
    ("TRUNCATE ``", "a name is empty"),
    ("TRUNCATE t 'x", "cut off"),
]


@pytest.mark.parametrize(("sql", "why"), REFUSED)
def test_statement_is_refused(sql: str, why: str) -> None:
    """A statement that is not understood whole is an error that says where and what to do."""
    with pytest.raises(SchemaChangeRefused) as caught:
        parse(sql, "shop")
    assert why in caught.value.what
    assert caught.value.hint


def test_a_name_without_any_database_is_refused() -> None:
    """A name that belongs to no database could be that of any table."""
    with pytest.raises(SchemaChangeRefused, match="the message does not name one"):
        parse("TRUNCATE TABLE t", "")


def test_a_long_statement_is_shown_in_part() -> None:
    """An error shows the beginning of the statement only, however long it is."""
    with pytest.raises(SchemaChangeRefused) as caught:
        parse("ALTER TABLE t FROBNICATE " + "x" * 10000, "shop")
    assert len(caught.value.what) < 600


def test_deep_parentheses_are_no_danger() -> None:
    """Nesting does not recurse."""
    deep = "(" * 20_000 + "1" + ")" * 20_000
    assert parse(f"CREATE TABLE t (a INT GENERATED ALWAYS AS {deep})", "shop")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["'", "`", "/*", "a'", "1", "(", "\\'", "1.", ".1", "1e", "--", "x''", "_a"])
def test_long_texts_take_no_longer_than_their_length(text: str) -> None:
    """No text makes the reader go over it again and again."""
    for sql in (f"ALTER TABLE t ADD c INT DEFAULT {text * 50_000}", f"ALTER TABLE t ADD c ENUM('{text * 50_000}"):
        with suppress(SchemaChangeRefused):
            assert parse(sql, "shop")
