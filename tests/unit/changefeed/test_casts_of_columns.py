"""Casts of columns that a user asks for: exact for each value that is taken, and refused by name where not."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, ColumnType, TableName
from applier.changefeed.types import ColumnPath, TypeRules, arrow_type, column_arrow_type
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array
from applier.errors import SchemaChangeRefused, ValueRefused

T = ColumnType
NAME = TableName("Shop", "Orders.Old")
LABELS = WireForm("base64", "label", "UTC")
NUMBERS = WireForm("base64", "index", "UTC")
STATES, FLAGS = ("new", "paid"), ("a", "b", "c")
U64 = T("bigint", unsigned=True)


def rules(cast: str, **other: Any) -> TypeRules:
    """The column `c` of all tables of the database is cast."""
    return TypeRules(shapes=[(TablePattern("shop.*"), Shape("shop.*", casts={"c": cast}))], **other)


def cast(values: list[Any], kind: ColumnType, text: str, wire: WireForm = LABELS, **other: Any) -> list[Any]:
    """What wire values become."""
    given = rules(text, **other)
    array, _ = to_array(values, Column("C", kind), wire, given, ColumnPath(NAME, "C"))
    assert array.type == arrow_type(kind, given, ColumnPath(NAME, "C"))
    return array.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind", "text", "wanted"),
    [
        (["18446744073709551615", None], U64, "string", ["18446744073709551615", None]),
        (["9223372036854775807"], U64, "long", [2**63 - 1]),
        (["-1"], T("bigint"), "string", ["-1"]),
        (["7"], T("bigint"), "int", [7]),
        (["9007199254740992", "-3"], T("bigint"), "double", [2.0**53, -3.0]),
        (["12"], T("int"), "decimal(5,2)", [Decimal("12.00")]),
        (["18446744073709551615"], U64, "decimal(38,2)", [Decimal("18446744073709551615.00")]),
        (["0", "1"], T("int", unsigned=True), "boolean", [False, True]),
        (["1"], T("bit", length=1), "boolean", [True]),
        (["2"], T("tinyint", length=1), "string", ["2"]),
        (["2024"], T("year"), "long", [2024]),
        (["0.0000001", "-1.0000000"], T("decimal", length=9, scale=7), "string", ["0.0000001", "-1.0000000"]),
        (["12.00"], T("decimal", length=5, scale=2), "long", [12]),
        (["12.50"], T("decimal", length=5, scale=2), "decimal(3,1)", [Decimal("12.5")]),
        (["12.50"], T("decimal", length=60, scale=2), "decimal(38,3)", [Decimal("12.500")]),
        (["0.5"], T("float"), "double", [0.5]),
        (["paid", "", None], T("enum", elements=STATES), "int", [2, 0, None]),
        (["a,c", ""], T("set", elements=FLAGS), "long", [5, 0]),
        (["-838:59:59.000001", "00:00:01.5", "01:00:00"], T("time"), "long", [-3020399000001, 1500000, 3600000000]),
        (["2024-01-31"], T("date"), "timestamp", [datetime(2024, 1, 31)]),
        (["2024-01-31", "0000-00-00"], T("date"), "string", ["2024-01-31", "0000-00-00"]),
        (["2024-01-31 01:02:03"], T("datetime", scale=0), "timestamptz", [datetime(2024, 1, 31, 1, 2, 3, tzinfo=UTC)]),
        (["2024-01-31 01:02:03"], T("timestamp", scale=0), "timestamp", [datetime(2024, 1, 31, 1, 2, 3)]),
        (["w6Q="], T("varbinary"), "string", ["ä"]),
        (['{"a": 1}'], T("json"), "string", ['{"a": 1}']),
    ],
)
def test_each_pair_keeps_the_meaning_of_its_values(
    values: list[Any], kind: ColumnType, text: str, wanted: list[Any]
) -> None:
    """Names of columns and tables count in any letters, and dots in them part nothing."""
    assert cast(values, kind, text) == wanted


def test_members_are_numbers_whichever_form_they_come_in() -> None:
    """Some protocols send numbers, others labels."""
    assert cast([2, 0], T("enum", elements=STATES), "int", NUMBERS) == [2, 0]
    assert cast([5, 0], T("set", elements=FLAGS), "int", NUMBERS) == [5, 0]


@pytest.mark.parametrize(
    ("value", "kind", "text", "why"),
    [
        ("9223372036854775808", U64, "long", "the cast does not hold it exactly as int64"),
        ("2147483648", T("bigint"), "int", "the cast does not hold it exactly as int32"),
        ("9007199254740993", T("bigint"), "double", "the cast does not hold it exactly as double"),
        ("1000", T("int"), "decimal(5,2)", "the cast does not hold it exactly as decimal128(5, 2)"),
        ("18446744073709551615", U64, "decimal(38,30)", "the cast does not hold it exactly as decimal128(38, 30)"),
        ("2", T("int"), "boolean", "it is neither 0 nor 1"),
        ("12.50", T("decimal", length=5, scale=2), "long", "the cast does not hold it exactly as int64"),
        ("12.55", T("decimal", length=5, scale=2), "decimal(5,1)", "the cast does not hold it exactly"),
        ("/w==", T("blob"), "string", "the cast does not hold it exactly as string"),
        ("gone", T("enum", elements=STATES), "int", "it is no member that the column has"),
        ("", T("enum", elements=("", "x")), "int", "which is a member and the error value"),
        ("paid", T("enum"), "int", "no CREATE TABLE shows the members"),
    ],
)
def test_a_value_that_the_cast_does_not_hold_is_refused(value: str, kind: ColumnType, text: str, why: str) -> None:
    """By column and type, never by its value."""
    with pytest.raises(ValueRefused) as refused:
        cast([value], kind, text)
    assert refused.value.what.startswith(f"A value of Shop.Orders.Old.C cannot be read as {kind.text}: ")
    assert why in refused.value.what
    assert "applier load" in refused.value.hint
    assert not value or value not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [(T("varchar"), "long"), (T("double"), "string"), (T("json"), "int"), (T("time"), "int"), (T("date"), "long")],
)
def test_a_pair_without_sense_is_refused_by_name(kind: ColumnType, text: str) -> None:
    """Where the table is made, and for each row of one that is there."""
    with pytest.raises(SchemaChangeRefused, match=f"Column c of table {NAME}: {kind.name} has no exact cast to {text}"):
        column_arrow_type(NAME, Column("c", kind), rules(text))
    with pytest.raises(ValueRefused, match="has no exact cast"):
        cast(["1"], kind, text)


def test_the_usual_type_is_always_one() -> None:
    """A cast to what a column is anyway asks for nothing."""
    assert cast(["x"], T("varchar"), "string") == ["x"]
    assert cast(["1.5"], T("double"), "double") == [1.5]


def test_a_column_counts_before_its_type_and_a_pattern_before_all_tables() -> None:
    """`unsigned` types are types of their own."""
    shape = Shape(casts={"c": "string"}, types={"bigint unsigned": "long"}, tinyint1="boolean", zero_dates="string")
    given = TypeRules(zero_dates_of={"shop.t.day": "null"}, shapes=[(TablePattern("shop.*"), shape)])
    name = TableName("shop", "t")

    def of(column: str, kind: ColumnType, table: TableName = name) -> pa.DataType:
        return column_arrow_type(table, Column(column, kind), given)

    assert (of("c", U64), of("d", U64), of("d", T("bigint"))) == (pa.string(), pa.int64(), pa.int64())
    assert of("d", U64, TableName("other", "t")) == pa.decimal128(20, 0)
    assert (of("b", T("tinyint", length=1)), of("at", T("date"))) == (pa.bool_(), pa.string())
    assert of("c", T("tinyint", length=1)) == pa.string()
    assert of("day", T("date")) == pa.date32()
    assert of("b", T("tinyint", length=1), TableName("other", "t")) == pa.int32()
