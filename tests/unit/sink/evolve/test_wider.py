"""The wider of two types that rows show of one column."""

from __future__ import annotations

from itertools import permutations

import pytest

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.sink.evolve.row_columns import widened

WIDENINGS = {
    "ints": [ColumnType("tinyint"), ColumnType("smallint"), ColumnType("int"), ColumnType("bigint")],
    "unsigned": [ColumnType("smallint", unsigned=True), ColumnType("int", unsigned=True), ColumnType("bigint")],
    "reals": [ColumnType("float"), ColumnType("double")],
    "decimals": [ColumnType("decimal", length=digits, scale=2) for digits in (5, 10, 38, 60)],
    "texts": [ColumnType("varchar", length=digits) for digits in (10, 20, 300)],
    "bits": [ColumnType("bit", length=bits) for bits in (1, 8, 64)],
    "members": [ColumnType("enum", elements=tuple("abc"[:count])) for count in (1, 2, 3)],
}


def version(kind: ColumnType) -> TableVersion:
    """A table of one column."""
    return TableVersion(TableName("shop", "t"), 1, (Column("v", kind),))


@pytest.mark.parametrize("kinds", list(WIDENINGS.values()), ids=list(WIDENINGS))
def test_the_widest_is_found_in_any_order(kinds: list[ColumnType]) -> None:
    """Whichever is known first."""
    for order in permutations(kinds):
        first, *others = map(version, order)
        assert widened(first, *others).columns == version(kinds[-1]).columns


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (ColumnType("int"), ColumnType("varchar", length=20)),
        (ColumnType("int"), ColumnType("int", unsigned=True)),
        (ColumnType("int"), ColumnType("bigint", unsigned=True)),
        (ColumnType("bigint", unsigned=True), ColumnType("bigint")),
        (ColumnType("int"), ColumnType("double")),
        (ColumnType("decimal", length=10, scale=2), ColumnType("decimal", length=12, scale=4)),
        (ColumnType("varchar", length=20), ColumnType("text")),
        (ColumnType("char", length=20), ColumnType("varbinary", length=200)),
        (ColumnType("enum", elements=("a", "b")), ColumnType("enum", elements=("b", "a", "c"))),
        (ColumnType("datetime", scale=0), ColumnType("datetime", scale=3)),
    ],
)
def test_what_is_no_widening_leaves_the_known_type(known: ColumnType, shown: ColumnType) -> None:
    """One of them cannot hold each value of the other as it is, or only the protocol makes the difference."""
    assert widened(version(known), version(shown)).columns == version(known).columns
