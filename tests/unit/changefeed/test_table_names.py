"""A table is one in whatever letters each door writes its name, as TiDB compares names."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import msgspec
import pytest

import applier
from applier.changefeed.filter import TableFilter, TablePattern, exactly
from applier.changefeed.route import Route
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion, fold
from applier.changefeed.types import TypeRules
from applier.ddl.actions import CreateTable, DropDatabase, DropTable, NoRows, RenameTable, TruncateTable, effect
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.pipeline.tables.loads import LoadRecord, place_of

ROWS, STATEMENT, TYPED = TableName("Shop", "T"), TableName("shop", "t"), TableName("SHOP", "t")
ID = Column("id", ColumnType("bigint"), nullable=False)


def _version(name: TableName, number: int = 1) -> TableVersion:
    return TableVersion(name, number, (ID,), handle_key=("id",))


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        pytest.param("Shop", "shop", id="ascii"),
        pytest.param("ΟΔΟΣ", "οδοσ", id="no final sigma"),
        pytest.param("İzmir", "izmir", id="dotted capital i"),
        pytest.param("ÄÖÜ", "äöü", id="umlauts"),
        pytest.param("ß", "ß", id="no other letters"),
    ],
)
def test_names_are_folded_rune_by_rune(name: str, folded: str) -> None:
    """Go's strings.ToLower, by which TiDB compares names, knows neither final letters nor letters of two runes."""
    assert fold(name) == folded


def test_a_name_is_one_in_any_letters() -> None:
    """As a key, in a set, in an order, and in another process."""
    assert ROWS == STATEMENT == TYPED
    assert {ROWS: 1}[TYPED] == len({ROWS, STATEMENT, TYPED}) == 1
    assert not ROWS < STATEMENT
    assert not STATEMENT < ROWS
    assert pickle.loads(pickle.dumps(ROWS)) == STATEMENT  # noqa: S301 It is our own.
    assert TableName("shop", "ts") != STATEMENT
    assert tuple(ROWS) == ("Shop", "T")


@pytest.mark.parametrize("rule", ["SHOP.t", "`SHOP`.`t`", "sh?P.*", "/^SHOP$/.t", '"shop"."T"'])
def test_the_configuration_names_a_table_in_any_letters(rule: str) -> None:
    """Rules of tables.include, of layouts and of --tables."""
    assert TableFilter([rule]).admits(ROWS)
    assert not TableFilter(["*.*", f"!{rule}"]).admits(ROWS)
    assert TablePattern(rule).names(ROWS)
    assert TableFilter([rule]).admits_database("Shop")


def test_rules_and_names_fold_alike() -> None:
    """A rule that `exactly` makes for one spelling admits the other, also where Python folds otherwise."""
    assert TableFilter(exactly([TableName("İ", "ΟΔΟΣ")])).admits(TableName("i", "οδοσ"))


def test_rules_of_single_columns_are_found_in_any_letters() -> None:
    """tables.zero_dates_of."""
    assert TypeRules(zero_dates_of={"SHOP.t.At": "string"}).zero_date_policy("Shop.T.at") == "string"


def test_an_export_names_a_table_in_any_letters() -> None:
    """A load lies where it is found by the name that rows, or a command, give the table."""
    load = LoadRecord(ROWS, 7, 0, 1, _version(ROWS).to_json())
    assert LoadRecord.told_by({"applier.loaded": load.to_json()}) in (load, None)
    assert msgspec.json.decode(load.to_json())["name"] == ["Shop", "T"]
    assert place_of("feed", ROWS) == place_of("feed", STATEMENT)


@pytest.mark.parametrize(
    "names",
    [
        [("a__b", "c"), ("a", "b__c")],
        [("a_", "b"), ("a", "_b"), ("a", "b")],
        [("_", "_"), ("__", ""), ("", "__")],
        [("a__b", "c"), ("4_a__b", "c"), ("_4_a", "b__c"), ("__4_a", "b__c")],
        [("_a", "b"), ("__a", "b"), ("", "_a__b")],
    ],
)
def test_no_two_tables_are_loaded_or_copied_in_one_place(names: list[tuple[str, str]]) -> None:
    """The rows of one would be shown as the other."""
    found = [TableName(*name) for name in names]
    assert len({place_of("feed", name) for name in found}) == len(found)
    assert len({Route("copies.{both}__12345678").identifier(name) for name in found}) == len(found)


def test_the_place_of_a_load_is_plain_where_no_other_table_has_it() -> None:
    """Loads that an older version has begun are found."""
    assert place_of("feed", TableName("my_shop", "t__x"))[-1] == "my_shop__t__x"
    assert place_of("feed", TableName("my__shop", "t"))[-1] == "__8_my__shop__t"


def test_a_table_keeps_the_letters_in_which_it_was_made() -> None:
    """They decide where its rows lie: no later message or row moves them."""
    tables = Tables([_version(STATEMENT)])
    tables.put(_version(ROWS, 2))
    found = tables.spelt(TYPED)
    assert found is not None
    assert Route("{database}.{table}").identifier(found) == ("shop", "t")
    assert tables.get(ROWS) == _version(STATEMENT, 2)


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE shop.t", "DROP TABLE SHOP.T", "ALTER TABLE t ADD COLUMN a INT"])
def test_a_statement_concerns_the_table_of_the_rows(sql: str) -> None:
    """The rows say `Shop.T`."""
    (action,) = parse(sql, "shop")
    assert Spelling([], [ROWS]).spelt(action).table == ROWS  # type: ignore[union-attr]


@pytest.mark.parametrize("gone", [DropDatabase("SHOP"), DropTable(TYPED)], ids=lambda action: type(action).__name__)
def test_the_letters_of_what_was_dropped_are_forgotten(gone: DropDatabase | DropTable) -> None:
    """The next table has the letters of its own message."""
    names = Spelling([ROWS])
    names.follow(gone)
    assert TYPED not in names
    if isinstance(gone, DropDatabase):
        names.meet_database("shop")
    made = names.spelt(CreateTable(STATEMENT, _version(STATEMENT)))
    assert isinstance(made, CreateTable)
    assert tuple(made.table)[1] == "t"
    assert made.table.database == ("shop" if isinstance(gone, DropDatabase) else "Shop")
    tables = Tables([_version(ROWS)])
    tables.apply(gone, 2)
    tables.apply(made, 3)
    assert [tuple(name) for name in tables] == [tuple(made.table)]


def test_a_rename_of_letters_alone_moves_nothing() -> None:
    """The table lies where it lay; one by way of another name has the new letters."""
    names = Spelling([ROWS])
    assert names.spelt(RenameTable(STATEMENT, TableName("shop", "T"))) == NoRows(ROWS)
    for action in (RenameTable(STATEMENT, TableName("shop", "x")), RenameTable(TableName("shop", "X"), STATEMENT)):
        names.follow(names.spelt(action))
    assert tuple(names.of(TYPED)) == ("Shop", "t")


def test_a_database_takes_along_what_any_letters_name() -> None:
    """DROP DATABASE names no table."""
    assert effect(DropDatabase("SHOP")).leaving([ROWS, TableName("other", "t")]) == [STATEMENT]
    assert effect(TruncateTable(STATEMENT)).emptied == (ROWS,)


def test_no_name_is_folded_by_hand() -> None:
    """A name is compared through `TableName` or `fold`: `str.lower` has other letters for some runes."""
    calls = [
        (path.name, node.func.value)
        for path in sorted(Path(applier.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("lower", "casefold") and isinstance(node.func.value, ast.Attribute)
    ]
    names = [(file, ast.unparse(of)) for file, of in calls if of.attr in ("table", "database", "column", "name")]
    assert [name for name in names if not name[1].endswith("op.name")] == []
