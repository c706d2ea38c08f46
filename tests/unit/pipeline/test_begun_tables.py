"""How tables came to be, as the audit of DDL shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from applier.changefeed.table import TableName
from applier.pipeline.state import State
from applier.pipeline.tables.completeness import begun
from applier.sink.control.rows import IgnoredFor, SchemaDecision


def _state(*statements: tuple[int, str, str]) -> State:
    """A state whose audit holds statements on tables of `shop` that were left out: commit ts, first table and text."""
    rows = [
        SchemaDecision(ts, TableName("shop", table), sql, "", "ignored", ignored_for=IgnoredFor.LEFT_OUT)
        for ts, table, sql in statements
    ]
    return cast("State", SimpleNamespace(control=SimpleNamespace(decisions=lambda: rows)))


_CREATED = ((1, "a", "CREATE TABLE a (id INT)"), (2, "b", "CREATE TABLE b (id INT)"))
_SWAP = (
    (3, "a", "RENAME TABLE `shop`.`a` TO `shop`.`x`"),
    (3, "b", "RENAME TABLE `shop`.`b` TO `shop`.`a`"),
    (3, "x", "RENAME TABLE `shop`.`x` TO `shop`.`b`"),
)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_renames_of_one_statement_are_followed_as_it_makes_them(order: tuple[int, ...]) -> None:
    """Where all their tables were left out, the audit has them in the order in which they came."""
    found = begun(_state(*_CREATED, *(_SWAP[place] for place in order)))

    assert {str(name): str(item.position.name) for name, item in found.items()} == {
        "shop.a": "shop.b",
        "shop.b": "shop.a",
    }


def test_a_table_is_unknown_after_renames_whose_order_nothing_shows() -> None:
    """One of the two was made before the audit begins."""
    assert begun(_state(_CREATED[0], *_SWAP)) == {}


def test_a_table_has_the_letters_of_its_rows_in_whatever_letters_it_was_made() -> None:
    """Its DDL of later on name it as its rows do."""
    found = begun(_state((1, "a", "CREATE TABLE `Shop`.a (id INT)"), (2, "a", "ALTER TABLE A ADD INDEX (id)")))

    assert list(found) == [TableName("shop", "a")]


def test_a_table_that_is_made_again_has_the_letters_of_its_new_database() -> None:
    """Its rows name it so; those in which the statement or the former table has it are those of no row."""
    rows = [
        SchemaDecision(ts, TableName(database, table), sql, "", "applied")
        for ts, database, table, sql in [
            (1, "shop", "a", "CREATE TABLE shop.a (id INT)"),
            (2, "shop", "", "DROP DATABASE shop"),
            (3, "Shop", "A", "CREATE TABLE SHOP.A (id INT)"),
        ]
    ]
    found = begun(cast("State", SimpleNamespace(control=SimpleNamespace(decisions=lambda: rows))))

    assert [(str(name), str(item.position.name)) for name, item in found.items()] == [("Shop.A", "Shop.A")]
