"""Row filters: what they admit, and which are refused by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.row_filter import RowFilter
from applier.changefeed.table import TableName
from applier.errors import TableMismatch, ValueRefused

KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "amount": pa.decimal128(16, 4),
    "wide": pa.decimal128(20, 0),
    "region": pa.string(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "moment": pa.timestamp("us", tz="UTC"),
    "share": pa.float64(),
    "active": pa.bool_(),
    "body": pa.binary(),
    "ratio": pa.float32(),
}
ROWS = pa.Table.from_pylist(
    [
        {
            "id": 1,
            "amount": Decimal("10.5"),
            "wide": Decimal(2**64 - 1),
            "region": "eu",
            "day": date(2020, 1, 1),
            "at": datetime(2020, 1, 1, 5),
            "moment": datetime(2020, 1, 1, tzinfo=UTC),
            "share": 1.5,
            "active": True,
            "body": b"a",
        },
        {"id": 2, "region": "us", "share": 4.0, "active": False},
        {"id": 3, "amount": Decimal("10.5001"), "region": "EU", "day": date(2021, 1, 1)},
    ],
    pa.schema(list(KINDS.items())),
)


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("amount >= 10.5", {1, 3}),
        ("amount = 10.5001", {3}),
        ("ID = 2 or Region = 'eu'", {1, 2}),
        ("region = 'eu'", {1}),
        ("not (amount > 10.5)", {1}),
        ("amount <> 10.5", {3}),
        ("amount is null", {2}),
        ("amount is not null and id < 3", {1}),
        ("region in ('eu', 'us')", {1, 2}),
        ("amount not in (10.5, 11.0)", {3}),
        ("region like 'e%'", {1}),
        ("region not like 'e%'", {2, 3}),
        ("day between '2020-06-01' and '2021-01-01'", {3}),
        ("at < '2020-01-01 05:00:00.000001'", {1}),
        ("moment = '2020-01-01 01:00:00+01:00'", {1}),
        ("share > 1", {1, 2}),
        ("active = true", {1}),
        ("wide > 9223372036854775807", {1}),
        ("\"region\" = 'it''s'", set()),
    ],
)
def test_rows_are_admitted_as_sql_says(text: str, admitted: set[int]) -> None:
    """NULL compares with nothing, letters count, and numbers are exact."""
    found = RowFilter(text)
    found.refuse_malformed()
    found.refuse_unfit(TableName("shop", "a"), KINDS)
    assert set(found.of("shop.a", ROWS)["id"].to_pylist()) == admitted


@pytest.mark.parametrize("text", ["id ~ 1", "id =", "true", "id in (1, 2.5)", "region like '%u'", "id % 2 = 0", "1"])
def test_a_text_that_is_no_filter_is_refused(text: str) -> None:
    """When the configuration is read."""
    with pytest.raises(ValueError, match=r"cannot be read from character|no comparison|LIKE"):
        RowFilter(text).refuse_malformed()


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("nowhere = 1", "has no column nowhere"),
        ("id = 1.5", "compares column id with a literal that is no value of its type int64"),
        ("id = '1'", "column id"),
        ("amount > 1.00001", "column amount"),
        ("region = 1", "column region"),
        ("active = 1", "column active"),
        ("moment > '2020-01-01 00:00:00'", "column moment"),
        ("id like '1%'", "column id"),
        ("body = 'a'", "column body"),
        ("ratio > 1", "column ratio"),
    ],
)
def test_a_filter_that_does_not_fit_its_table_is_refused(text: str, because: str) -> None:
    """By the table, and what is wrong."""
    with pytest.raises(TableMismatch, match=f"Table shop.a cannot be filtered by its `where`: it {because}|{because}"):
        RowFilter(text).refuse_unfit(TableName("shop", "a"), KINDS)


def test_rows_without_a_column_of_the_filter_are_refused() -> None:
    """Nothing is known of it, which is not NULL."""
    with pytest.raises(ValueRefused, match="Rows of table shop.a lack column region, which its `where` looks at"):
        RowFilter("region is null").admits("shop.a", ROWS.select(["id"]))


def test_drawn_filters_agree_with_python() -> None:
    """Three-valued logic over two columns that may be NULL."""
    draw = random.Random(7)
    rows = [{"a": draw.choice([None, 0, 1, 2]), "b": draw.choice([None, "x", "y"])} for _ in range(200)]
    kinds: dict[str, pa.DataType] = {"a": pa.int32(), "b": pa.string()}
    table = pa.Table.from_pylist(rows, pa.schema(kinds))
    for _ in range(200):
        text, judge = _drawn(draw, 3)
        mask = RowFilter(text).admits("t", table).to_pylist()
        assert mask == [judge(row) is True for row in rows], text


Judge = Callable[[dict[str, Any]], bool | None]


def _drawn(draw: random.Random, depth: int) -> tuple[str, Judge]:
    kind = draw.choice(["and", "or", "not", "leaf"]) if depth else "leaf"
    if kind == "not":
        text, judge = _drawn(draw, depth - 1)
        return f"not ({text})", lambda row: None if (found := judge(row)) is None else not found
    if kind == "leaf":
        return _leaf(draw)
    (left, one), (right, two) = _drawn(draw, depth - 1), _drawn(draw, depth - 1)
    decides = kind == "or"

    def both(row: dict[str, Any]) -> bool | None:
        found = {one(row), two(row)}
        return decides if decides in found else None if None in found else not decides

    return f"({left}) {kind} ({right})", both


def _leaf(draw: random.Random) -> tuple[str, Judge]:
    number, letter = draw.randint(0, 2), draw.choice("xy")
    leaves: list[tuple[str, Judge]] = [
        (f"a >= {number}", lambda row: None if row["a"] is None else row["a"] >= number),
        (f"b <> '{letter}'", lambda row: None if row["b"] is None else row["b"] != letter),
        ("a is null", lambda row: row["a"] is None),
        (f"a in ({number}, 9)", lambda row: None if row["a"] is None else row["a"] == number),
    ]
    return draw.choice(leaves)
