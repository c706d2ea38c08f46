"""Types as Canal-JSON writes them."""

from __future__ import annotations

import pytest

from applier.changefeed.table import ColumnType
from applier.decode.canal.decoder import column_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bigint unsigned", ColumnType("bigint", unsigned=True)),
        ("int(8) unsigned zerofill", ColumnType("int", unsigned=True, length=8)),
        ("tinyint(1)", ColumnType("tinyint", length=1)),
        ("decimal", ColumnType("decimal")),
        ("decimal unsigned", ColumnType("decimal", unsigned=True)),
        ("decimal(65,30)", ColumnType("decimal", length=65, scale=30)),
        ("DECIMAL(10, 2) UNSIGNED", ColumnType("decimal", unsigned=True, length=10, scale=2)),
        ("decimal(10)", ColumnType("decimal", length=10, scale=0)),
        ("bit(64)", ColumnType("bit", length=64)),
        ("timestamp(6)", ColumnType("timestamp", scale=6)),
        ("datetime", ColumnType("datetime")),
        ("varbinary(16)", ColumnType("varbinary", length=16)),
        ("year(4)", ColumnType("year", length=4)),
        ("vector(3)", ColumnType("vector", length=3)),
        ("enum('a,b','it''s',')','')", ColumnType("enum", elements=("a,b", "it's", ")", ""))),
        ("set('naïve','x y')", ColumnType("set", elements=("naïve", "x y"))),
        (r"enum('a\nb','c\d')", ColumnType("enum", elements=("a\nb", r"c\d"))),
        ("geometry", ColumnType("geometry")),
        ("", ColumnType("")),
        ("int (", ColumnType("int (")),
    ],
)
def test_types_are_read_as_mysql_writes_them(text: str, expected: ColumnType) -> None:
    """Bare names and full types give what they say; what is no type keeps its text and is refused with its values."""
    assert column_type(text) == expected
