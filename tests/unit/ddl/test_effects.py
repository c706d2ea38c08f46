"""What a DDL does to whole tables and their rows."""

from __future__ import annotations

import pytest

from applier.changefeed.table import TableName
from applier.ddl.actions import Effect, effect
from applier.ddl.parser import parse

A, B, C = (TableName("shop", name) for name in "abc")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("CREATE TABLE a (id INT)", Effect(created=(A,))),
        ("CREATE TABLE a LIKE b", Effect(created=(A,))),
        ("DROP TABLE a", Effect(removed=(A,))),
        ("DROP DATABASE shop", Effect(database="shop")),
        ("RENAME TABLE a TO b", Effect(moved=((A, B),))),
        ("ALTER TABLE a RENAME TO b", Effect(moved=((A, B),))),
        ("TRUNCATE TABLE a", Effect(emptied=(A,))),
        ("ALTER TABLE a DROP PARTITION p0", Effect(thinned=(A,))),
        ("ALTER TABLE a TRUNCATE PARTITION p0", Effect(thinned=(A,))),
        ("ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE b", Effect(exchanged=((A, B),))),
        ("RECOVER TABLE a", Effect(restored=(A,))),
        ("FLASHBACK TABLE a TO b", Effect(restored=(B,))),
        ("ALTER TABLE a ADD COLUMN x INT", Effect()),
        ("CREATE VIEW a AS SELECT 1", Effect()),
    ],
)
def test_effect_of_a_statement(sql: str, found: Effect) -> None:
    """Tables come, go, get other names, or change rows; columns, views and options have no effect on them."""
    [action] = parse(sql, "shop")
    assert effect(action) == found


def test_a_database_takes_its_tables_along_in_any_letters() -> None:
    """Only those of it are among the names that are left."""
    other = TableName("else", "a")
    assert Effect(database="Shop").leaving([A, other, B]) == [A, B]
    assert Effect(moved=((A, B),)).leaving([A, B, C]) == [A]
