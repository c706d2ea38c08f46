"""Schema files in, the tables that they declare out, or one sentence that names the file."""

from __future__ import annotations

import pytest

from applier.changefeed.table import ColumnType, TableName
from applier.ddl.schema_files import is_schema_file, read_schemas
from applier.errors import SchemaChangeRefused

BOAT = """/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET NAMES binary*/;
CREATE TABLE `boat` (
  `id` bigint unsigned NOT NULL,
  `hull` enum('wood','it''s; steel') DEFAULT NULL COMMENT 'SET a;',
  `flags` set('a','b') DEFAULT NULL,
  `draft` decimal(6,3) DEFAULT NULL,
  `lights` bit(12) DEFAULT NULL,
  `stamp` varbinary(16) DEFAULT NULL,
  `double_draft` decimal(7,3) GENERATED ALWAYS AS (`draft` * 2) VIRTUAL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
"""


def test_a_file_of_dumpling_declares_its_table_in_the_database_of_its_name() -> None:
    """Members, digits, bits, the sign, the key and the virtual column are all there."""
    tables = read_schemas({"harbour.boat-schema.sql": BOAT, "harbour-schema-create.sql": "CREATE DATABASE `harbour`;"})

    (boat,) = tables.values()
    assert boat.name == TableName("harbour", "boat")
    assert boat.key == ("id",)
    kinds = {column.name: column.type for column in boat.columns}
    assert kinds["hull"].elements == ("wood", "it's; steel")
    assert kinds["flags"].elements == ("a", "b")
    assert kinds["draft"] == ColumnType("decimal", length=6, scale=3)
    assert (kinds["lights"].name, kinds["lights"].length) == ("bit", 12)
    assert kinds["id"].unsigned
    assert kinds["stamp"].name == "varbinary"
    assert [column.generated for column in boat.columns] == [None] * 6 + ["virtual"]


def test_one_file_may_hold_several_tables() -> None:
    """Names with a database count as they are, whatever the name of the file."""
    texts = {"all.sql": "CREATE TABLE a.x (id INT PRIMARY KEY); CREATE TABLE `b`.`y` (v INT);"}

    assert sorted(map(str, read_schemas(texts))) == ["a.x", "b.y"]


def test_escapes_in_file_names_are_undone() -> None:
    """Dumpling writes a point in a name as %2E."""
    (name,) = read_schemas({"a%2Eb.boat-schema.sql": BOAT})

    assert name == TableName("a.b", "boat")


@pytest.mark.parametrize(
    ("file", "holds"),
    [
        ("shop.orders-schema.sql", True),
        ("tables.sql", True),
        ("shop-schema-create.sql", False),
        ("shop.totals-schema-view.sql", False),
        ("shop.numbers-schema-sequence.sql", False),
        ("shop.orders.000000000.sql", False),
        ("shop.orders.000000000.csv", False),
        ("metadata", False),
    ],
)
def test_files_of_rows_views_and_databases_are_left_out(file: str, holds: bool) -> None:
    """Only files that may hold CREATE TABLE are read."""
    assert is_schema_file(file) is holds


def test_the_table_that_stands_in_for_a_view_is_left_out() -> None:
    """Dumpling writes a table of the view's name beside the view."""
    stand_in = "CREATE TABLE `totals`(\n`n` int\n)ENGINE=MyISAM;\n"

    assert not len(read_schemas({"shop.totals-schema.sql": stand_in, "shop.totals-schema-view.sql": ""}))


def test_the_same_table_may_be_there_twice() -> None:
    """Two files that agree are no contradiction."""
    assert len(read_schemas({"harbour.boat-schema.sql": BOAT, "harbour.boat.sql": BOAT})) == 1


@pytest.mark.parametrize(
    ("texts", "what", "hint"),
    [
        (
            {"harbour.boat-schema.sql": BOAT, "later.sql": "CREATE TABLE harbour.Boat (id INT PRIMARY KEY)"},
            "Files harbour.boat-schema.sql and later.sql of upstream.schemas declare table harbour.Boat differently.",
            "Keep the one of the moment at which the changefeed starts, and remove the other.",
        ),
        (
            {"boat.sql": BOAT},
            "File boat.sql of upstream.schemas does not name the database of table boat.",
            "Rename the file to DATABASE.boat-schema.sql, or name the database in its text.",
        ),
        (
            {"a.b-schema.sql": "CREATE TABLE b LIKE c"},
            "File a.b-schema.sql of upstream.schemas holds a statement that declares no columns of a table.",
            "Write the text of SHOW CREATE TABLE into the file, or remove the file.",
        ),
        (
            {"a.b-schema.sql": "/*!40101 SET NAMES binary*/;"},
            "File a.b-schema.sql of upstream.schemas cannot be read: Cannot read a DDL: the statement is empty, in: ",
            "Write the text of SHOW CREATE TABLE into the file, or remove the file.",
        ),
        (
            {"a.b-schema.sql": "CREATE TABLE b (id BIGNIT)"},
            "File a.b-schema.sql of upstream.schemas cannot be read: Cannot read a DDL: ",
            "Write the text of SHOW CREATE TABLE into the file, or remove the file.",
        ),
    ],
)
def test_a_file_that_declares_no_table_clearly_is_refused(texts: dict[str, str], what: str, hint: str) -> None:
    """One sentence names the file, and the hint one action."""
    with pytest.raises(SchemaChangeRefused) as refusal:
        read_schemas(texts)

    assert refusal.value.what.startswith(what)
    assert refusal.value.hint == hint
