"""The key of a table is what TiCDC takes for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from applier.changefeed.table import Index, TableName, TableVersion
from applier.ddl.actions import CreateTable
from applier.ddl.parser import parse


def version(elements: str) -> TableVersion:
    """The table of a CREATE TABLE."""
    (action,) = parse(f"CREATE TABLE shop.t ({elements})", "shop")
    assert isinstance(action, CreateTable)
    assert action.version is not None
    return action.version


V = "a INT NOT NULL, b INT NOT NULL, c VARCHAR(9) NOT NULL, n INT, v INT AS (a + 1) VIRTUAL NOT NULL"
S = "s INT AS (a + 1) STORED NOT NULL"


@pytest.mark.parametrize(
    ("elements", "key"),
    [
        (f"{V}, UNIQUE (v)", ()),
        (f"{V}, UNIQUE (v), UNIQUE (b)", ("b",)),
        (f"{V}, UNIQUE (v), UNIQUE (a, b)", ("a", "b")),
        (f"{V}, UNIQUE (a, v), UNIQUE (a, b, c)", ("a", "b", "c")),
        (f"{V}, {S}, UNIQUE (v), UNIQUE (s)", ("s",)),
        (f"{V}, UNIQUE (v), PRIMARY KEY (a, b)", ("a", "b")),
        (f"{V}, UNIQUE (n), UNIQUE (a, b)", ("a", "b")),
        (f"{V}, UNIQUE (a, b), UNIQUE (c(3))", ("c",)),
        (f"{V}, UNIQUE ((LOWER(c))), UNIQUE (a, b)", ("a", "b")),
        (f"{V}, UNIQUE (a) INVISIBLE, UNIQUE (a, b)", ("a",)),
        (f"{V}, UNIQUE (a) WHERE b > 1, UNIQUE (a, b)", ("a", "b")),
        (f"{V}, UNIQUE (b), UNIQUE (a)", ("b",)),
    ],
)
def test_the_key_is_the_narrowest_index_that_rows_have_values_for(elements: str, key: tuple[str, ...]) -> None:
    """Not one over a virtual column, NULL, an expression or a part of the rows; a prefix is as good as its column."""
    assert version(elements).key == key


def _described(told: TableVersion) -> TableVersion:
    return replace(told, columns=tuple(replace(column, generated=None) for column in told.columns))


def test_a_message_that_takes_a_virtual_column_for_the_key_is_corrected_by_the_statement() -> None:
    """Simple lists all indexes without saying that a column is virtual; Debezium lists one as if it were primary."""
    told = version(f"{V}, UNIQUE (v), UNIQUE (a, b)")
    simple = _described(told)
    debezium = replace(simple, indexes=(Index("PRIMARY", ("v",), unique=True, primary=True),))

    assert (simple.key, debezium.key) == (("v",), ("v",))
    assert (simple.declared(told).key, debezium.declared(told).key) == (("a", "b"), ("a", "b"))
    assert debezium.declared(None).key == ("v",)


def test_a_primary_key_of_a_column_that_the_version_lacks_stays_the_key() -> None:
    """Rows without it are refused; they are not taken for rows of a table without a key."""
    lacking = TableVersion(TableName("shop", "t"), 1, (), (Index("PRIMARY", ("id",), unique=True, primary=True),))

    assert lacking.key == ("id",)


@pytest.mark.parametrize(("shown", "key"), [("(b)", ("b",)), ("(b, a)", ("a", "b")), ("", ("a", "b"))])
def test_rows_behind_the_drop_of_their_key_show_the_next_one(shown: str, key: tuple[str, ...]) -> None:
    """Where rows alone showed the key, no DDL says that its index goes: rows that are equal in it would be merged."""
    told = version(f"{V}, PRIMARY KEY (a, b)")
    row = version(f"{V}, PRIMARY KEY {shown}" if shown else V)

    assert row.refined(told).key == key
