"""What rows leave open in their types is what the loaded table has."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.errors import SchemaChangeRefused, TableMismatch
from applier.sink.evolve.row_columns import fitted, refuse_retyped, supplied
from applier.sink.format.types import TableSchema, schema_json

NAME = TableName("bank", "account")
FIELDS = [
    pa.field("id", pa.int64()),
    pa.field("bal", pa.decimal128(10, 2)),
    pa.field("b", pa.int64()),
    pa.field("d", pa.float64()),
]
SCHEMA = TableSchema.parse(schema_json(pa.schema(FIELDS)))  # type: ignore[arg-type]  # the stubs know no mixed list
"""A table that was loaded with `bal DECIMAL(10,2), b BIT(8)`."""


def of(name: str, kind: T) -> TableVersion:
    """A version with one column, as rows describe it."""
    return TableVersion(NAME, 1, (Column(name, kind),))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("bal", T("decimal", scale=2), T("decimal", length=10, scale=2)),
        ("bal", T("decimal"), T("decimal", length=10, scale=2)),
        ("bal", T("decimal", scale=3), T("decimal", scale=3)),
        ("bal", T("decimal", length=12, scale=2), T("decimal", length=12, scale=2)),
        ("b", T("bit"), T("bit", length=63)),
        ("b", T("bit", length=8), T("bit", length=8)),
        ("d", T("decimal", scale=2), T("decimal", scale=2)),
        ("other", T("decimal"), T("decimal")),
    ],
)
def test_the_table_supplies_only_what_is_open(name: str, kind: T, expected: T) -> None:
    """What rows or DDL say counts, and a type that contradicts them stays a mismatch."""
    assert supplied(of(name, kind), SCHEMA).columns[0].type == expected


@pytest.mark.parametrize(
    ("name", "kind", "arrow", "value"),
    [
        ("bal", T("decimal", scale=2), pa.decimal128(38, 2), Decimal("99999999.99")),
        ("b", T("bit"), pa.decimal128(20, 0), Decimal(255)),
    ],
)
def test_values_get_the_digits_and_bits_of_the_table(name: str, kind: T, arrow: pa.DataType, value: Any) -> None:
    """They are the same numbers in the type that the column has."""
    rows = pa.table({"\0ts": pa.array([5, 5]), name: pa.array([value, None], arrow)})

    found = fitted(rows, of(name, kind), SCHEMA, "bank.account")

    field = SCHEMA.field(name)
    assert field is not None
    assert found.schema.field(name).type == field.arrow
    assert [None if cell is None else Decimal(cell) for cell in found[name].to_pylist()] == [value, None]


def test_a_value_that_needs_more_digits_is_refused() -> None:
    """The table was loaded with another type than upstream has."""
    rows = pa.table({"bal": pa.array([Decimal("100000000.00")], pa.decimal128(38, 2))})

    with pytest.raises(TableMismatch) as refusal:
        fitted(rows, of("bal", T("decimal", scale=2)), SCHEMA, "bank.account")

    assert refusal.value.what == "A value of column bal of table bank.account does not fit decimal(10, 2)."
    assert "100000000" not in str(refusal.value)


def test_an_excluded_column_may_change_its_type_unseen() -> None:
    """Without a DDL that shows it, any other column that does is refused: it may be another one."""
    before, after = of("c", T("varchar", length=9)), of("c", T("int"))
    with pytest.raises(SchemaChangeRefused, match="Column c of table bank.account is varchar in some rows"):
        refuse_retyped(after, before, TypeRules())
    refuse_retyped(after, before, TypeRules(shapes=[(TablePattern("*.*"), Shape("*.*", frozenset({"c"})))]))
