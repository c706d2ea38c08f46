"""DDL on columns that the user casts: what keeps the cast values is followed, the rest is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, TableName
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.ddl import actions as ddl
from applier.sink.evolve.plan import Evolution, plan
from applier.sink.evolve.steps import AddField, ConvertField, PromoteField, RenameField
from tests.unit.sink.evolve.test_plan import ID, NAME, table

ENUM = T("enum", elements=("a", "b"))


def rules(*, types: dict[str, str] | None = None, **casts: str) -> TypeRules:
    """Casts of columns, and of types, of the tables of one database."""
    return TypeRules(shapes=[(TablePattern("shop.*"), Shape("shop.*", casts=casts, types=types or {}))])


def modified(old: Column, new: Column, given: TypeRules) -> Evolution:
    """What MODIFY or CHANGE COLUMN does."""
    return plan(table(ID, old), table(ID, new), [ddl.ModifyColumn(NAME, old.name, new)], given)


@pytest.mark.parametrize(
    ("old", "new", "cast"),
    [
        (T("int"), T("bigint"), "string"),
        (T("tinyint", length=4), T("int"), "boolean"),
        (ENUM, replace(ENUM, elements=("a", "b", "c")), "int"),
        (T("time", scale=0), T("time", scale=3), "long"),
        (T("decimal", length=5, scale=2), T("decimal", length=9, scale=2), "string"),
    ],
)
def test_a_change_that_keeps_upstream_values_keeps_the_cast_ones(old: T, new: T, cast: str) -> None:
    """The column of the Iceberg table stays as it is."""
    found = modified(Column("c", old), Column("c", new), rules(c=cast))
    assert (found.steps, found.only_empty, found.refused) == ((), (), None)


@pytest.mark.parametrize(
    ("old", "new", "cast"),
    [
        (T("decimal", length=5, scale=2), T("decimal", length=9, scale=3), "string"),
        (ENUM, replace(ENUM, elements=("b", "a")), "int"),
        (T("bigint"), T("int"), "string"),
        (T("time", scale=3), T("time", scale=0), "long"),
        (T("int"), T("enum", elements=("a",)), "int"),
    ],
)
def test_a_change_of_values_is_refused_where_there_are_rows(old: T, new: T, cast: str) -> None:
    """TiDB may be asked for them; a table without rows gets its new type."""
    found = modified(Column("c", old), Column("c", new), rules(c=cast))
    (step,), (doubt,) = found.steps, found.only_empty
    assert isinstance(step, ConvertField)
    assert doubt.reason == "Column c is cast or masked, and its values in existing rows are not those of before."
    assert "applier load" in doubt.hint
    assert (doubt.column, found.lacks_values) == ("c", True)


def test_a_rename_to_a_name_without_the_cast_is_refused() -> None:
    """The other way as well; one whose new name is cast alike is a rename."""
    old, new = Column("c", T("bigint")), Column("d", T("bigint"))
    action = ddl.RenameColumn(NAME, "c", "d")
    for given in (rules(c="string"), rules(d="string")):
        found = plan(table(ID, old), table(ID, new), [action], given)
        assert [doubt.column for doubt in found.only_empty] == ["d"]
    found = plan(table(ID, old), table(ID, new), [action], rules(c="string", d="string"))
    assert (found.steps, found.only_empty) == ((RenameField("c", "d"),), ())


def test_a_table_that_leaves_its_pattern_is_refused() -> None:
    """Its rows are those of a cast that its new name does not have."""
    old = table(ID, Column("c", T("bigint")))
    found = plan(old, replace(old, name=TableName("other", "t")), (), rules(c="string"))
    assert [doubt.column for doubt in found.only_empty] == ["c"]
    found = plan(old, replace(old, name=TableName("shop", "t")), (), rules(c="string"))
    assert (found.steps, found.only_empty) == ((), ())


def test_a_type_whose_cast_is_wider_is_promoted() -> None:
    """As Iceberg does without a rewrite."""
    found = modified(Column("c", T("int")), Column("c", T("int", unsigned=True)), rules(types={"int": "int"}))
    assert isinstance(found.steps[0], ConvertField)
    small = Column("c", T("smallint"))
    found = modified(small, Column("c", T("int")), rules(types={"int": "long"}))
    assert (found.steps, found.only_empty) == ((PromoteField("c", pa.int64()),), ())


@pytest.mark.parametrize(
    ("kind", "default", "cast", "wanted"),
    [
        (T("bigint"), "5", "string", "5"),
        (ENUM, "b", "int", 2),
        (ENUM, None, "long", 1),
        (T("time", scale=0), "-01:00:00", "long", -3_600_000_000),
        (T("int"), None, "boolean", False),
        (T("decimal", length=5, scale=2), "1.5", "string", "1.50"),
    ],
)
def test_a_new_column_has_its_default_cast(kind: T, default: str | None, cast: str, wanted: object) -> None:
    """The zero value of its type, too, where it is NOT NULL."""
    new = Column("c", kind, nullable=False, default=default)
    found = plan(table(ID), table(ID, new), [ddl.AddColumn(NAME, new)], rules(c=cast))
    (step,) = found.steps
    assert isinstance(step, AddField)
    assert (step.default.as_py(), step.type, found.only_empty) == (wanted, step.default.type, ())


def test_a_default_that_the_cast_does_not_hold_is_not_known() -> None:
    """The rows that have it could not be written either."""
    new = Column("c", T("int"), default="7")
    found = plan(table(ID), table(ID, new), [ddl.AddColumn(NAME, new)], rules(c="boolean"))
    (doubt,) = found.only_empty
    assert doubt.reason.endswith("its default does not fit the type that the column is cast to.")
