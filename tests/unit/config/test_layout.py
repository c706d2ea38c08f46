"""How the configuration says that tables lie."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.config.settings import parse
from applier.config.table_layout import LayoutSection, PartitionField, SortField, TableLayout
from applier.config.tables import TablesSection
from tests.unit.config.test_settings import minimal, problems


def test_texts_are_read_as_fields() -> None:
    """Every transform, with names in backquotes where they hold what parts fields; ascending where nothing is said."""
    by = ["day(created)", "BUCKET( 16,id )", "region", "truncate(4, `a, ``b``)`)", "identity(x)", "`c d`", "hour(y)"]
    section = {"partition_by": by, "sort_by": ["created", "id DESC", "`c d` asc"], "properties": {"a": "b"}}

    layout = parse(minimal(tables={"shop.*": section})).tables.layout_of(TableName("shop", "a"))

    assert layout == TableLayout(
        (
            PartitionField("created", "day"),
            PartitionField("id", "bucket[16]"),
            PartitionField("region"),
            PartitionField("a, `b`)", "truncate[4]"),
            PartitionField("x"),
            PartitionField("c d"),
            PartitionField("y", "hour"),
        ),
        (SortField("created"), SortField("id", descending=True), SortField("c d")),
        {"a": "b"},
        pattern="shop.*",
    )


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["shop.orders", "shop.order*", "*.*"], "shop.orders"),
        (["*.*", "shop.*"], "shop.*"),
        (["shop.order?", "shop.*"], "shop.order?"),
        (["*.orders", "shop.*"], "*.orders"),
        (["shop.*", "*hop.*"], "shop.*"),
        (["sho?.*", "?hop.*"], "?hop.*"),
        (["/.*/./orders/", "*.o*"], "*.o*"),
        (["`SHOP`.orders", "shop.order[s]"], "`SHOP`.orders"),
        (["other.*", "shop.x"], None),
    ],
)
def test_the_most_specific_pattern_counts_alone(patterns: list[str], chosen: str | None) -> None:
    """An exact name, then the pattern with more letters, then the last; nothing of the others is taken."""
    sections = {pattern: {"properties": {"pattern": pattern}} for pattern in patterns}
    layout = parse(minimal(tables=sections)).tables.layout_of(TableName("shop", "orders"))
    assert (None if layout is None else layout.properties["pattern"]) == chosen


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"inclde": ["a.b"]}, "tables.inclde: unknown key, did you mean include?"),
        (
            {"orders": {"partition_by": ["id"]}},
            'tables.orders: unknown key; a pattern names the database, too: write [tables."DATABASE.orders"].',
        ),
        ({"propertis": {"a": "b"}}, "tables.propertis: unknown key, did you mean properties?"),
        (
            {"xyz": 3},
            (
                f"tables.xyz: unknown key; known keys are {', '.join(TablesSection.model_fields)}, and patterns of "
                'tables, as in [tables."db.table"].'
            ),
        ),
        ({"shop.a": {"partiton_by": ["x"]}}, "tables.shop.a.partiton_by: unknown key, did you mean partition_by?"),
        ({"shop.a": 3}, "tables.shop.a: must be a table."),
        ({"!shop.a": {}}, "tables.!shop.a: the pattern '!shop.a' must not begin with !."),
        ({"shop.a.b": {}}, "tables.shop.a.b: the filter rule 'shop.a.b' is not of the form database.table."),
    ],
)
def test_what_is_no_layout_is_refused(tables: dict[str, Any], problem: str) -> None:
    """By name, with the key that was meant."""
    assert problems(minimal(tables=tables)) == [problem]


def test_a_pattern_without_quotes_is_explained() -> None:
    """TOML reads it as tables inside tables."""
    (problem,) = problems(minimal(tables={"shop": {"orders": {"sort_by": ["a"]}}}))
    assert problem.endswith('; a pattern needs quotes: [tables."shop.…"].')


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"partition_by": ["days(a)"]}, "'days(a)' has the unknown transform days, did you mean day?"),
        ({"partition_by": ["zorder(a)"]}, "unknown transform zorder, transforms are identity, year"),
        ({"partition_by": ["bucket(a)"]}, "'bucket(a)' must be bucket(N, column) with N from 1"),
        ({"partition_by": ["truncate(0, a)"]}, "must be truncate(N, column)"),
        ({"partition_by": ["day(3, a)"]}, "must be day(column)"),
        ({"partition_by": ["day(a"]}, "'day(a' is not of the form"),
        ({"partition_by": ["a b"]}, "'a b' is not of the form"),
        ({"partition_by": [""]}, "'' is not of the form"),
        ({"partition_by": ["day(a)", "hour(A)"]}, "says the same twice: day(a), hour(A)"),
        ({"partition_by": ["a", "bucket(2, a)", "a"]}, "says the same twice: a, a"),
        ({"sort_by": ["a up"]}, "'a up' is not of the form"),
        ({"sort_by": ["a", "A desc"]}, "says the same twice: a, A desc"),
        ({"properties": {"applier.epoch": "1"}}, "applier.epoch is set by applier alone"),
        ({"where": "a = "}, "cannot be read from character 1 on"),
        ({"where": "A = 1", "columns": {"exclude": ["a"]}}, "names column a, which columns.exclude leaves out"),
        ({"where": "A = 1", "columns": {"mask": {"a": "redact"}}}, "names column a, whose values columns.mask hides"),
        ({"columns": {"exclude": ["A"], "mask": {"a": "redact"}}}, "mask.a: is excluded as well"),
        ({"columns": {"exclude": ["A"], "cast": {"a": "string"}}}, "cast.a: is excluded as well"),
        ({"where": "a = 1", "deletes": "soft"}, "deletes: is soft, and `where` deletes rows that upstream has"),
        ({"where": "a = 1", "history": "changes"}, "history: keeps every change, and does not go with `where` or soft"),
        ({"deletes": "soft", "history": "images"}, "history: keeps every change, and does not go with `where` or soft"),
        ({"history_days": 3}, "history_days: counts the days of the changes that `history` keeps: set that, or remove"),
        ({"history": "changes", "history_days": 0}, "history_days: must be greater than or equal to 1"),
    ],
)
def test_malformed_layouts_are_refused_when_the_file_is_read(section: dict[str, Any], problem: str) -> None:
    """With the pattern and the text as they were written."""
    (found,) = problems(minimal(tables={"shop.*": section}))
    assert found.startswith("tables.shop.*.")
    assert problem in found


def test_days_that_no_task_removes_are_refused() -> None:
    """A key that would do nothing, with the way out."""
    section = {"history": "changes", "history_days": 3}
    (found,) = problems(minimal(tables={"shop.*": section}, maintenance={"tasks": ["compact"]}))
    assert found == (
        'tables.shop.*.history_days: is what the task "changes" goes by: add it to maintenance.tasks, or remove '
        "history_days."
    )
    parse(minimal(tables={"shop.*": section}, maintenance={"tasks": ["changes"]}))


def test_other_days_are_no_other_shape() -> None:
    """A living table follows."""
    one, other = (LayoutSection(history="changes", history_days=days).shape("") for days in (3, 4))
    assert (one, one.record) == (other, other.record)
    assert (one.history_days, other.history_days) == (3, 4)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"columns": {"exclude": [""]}}, "has an empty name of a column"),
        ({"columns": {"exclude": ["A"]}, "sort_by": ["a desc"]}, "names column a, which columns.exclude leaves out"),
        ({"columns": {"exclude": ["a"]}, "partition_by": ["day(A)"]}, "names column A, which columns.exclude leaves"),
        ({"columns": {"exlude": ["a"]}}, "did you mean exclude?"),
    ],
)
def test_columns_that_cannot_be_left_out_so_are_refused(section: dict[str, Any], problem: str) -> None:
    """By the key that is wrong."""
    (found,) = problems(minimal(tables={"shop.*": section}))
    assert problem in found


def test_a_shape_keeps_what_it_leaves_out_in_any_letters() -> None:
    """So that other letters in the file do not count as another shape."""
    (shape, other) = (
        parse(minimal(tables={"shop.*": {"columns": {"exclude": names}}})).type_rules.shape_of(TableName("shop", "a"))
        for names in (["Secret", "b"], ["B", "SECRET", "c"])
    )
    assert shape.record == '{"exclude": ["b", "secret"]}'
    assert other.is_reached_from(shape.record)
    assert not shape.is_reached_from(other.record)
    assert not shape.is_reached_from(shape.record)
    assert not shape.is_reached_from('{"exclude": ["b"], "later": 1}')
