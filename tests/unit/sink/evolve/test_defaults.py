from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from applier.changefeed.table import Column
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules, arrow_type
from applier.sink.evolve.defaults import DefaultUnknown, existing_value

RULES = TypeRules()


def value(column: Column, rules: TypeRules = RULES) -> Any:
    """What rows of before have."""
    found = existing_value(column, arrow_type(column.type, rules), rules, "d.t.c")
    assert found.type == arrow_type(column.type, rules)
    return found.as_py()


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (T("int"), "5", 5),
        (T("bigint", unsigned=True), "18446744073709551615", Decimal(2**64 - 1)),
        (T("decimal", length=6, scale=2), "3.14", Decimal("3.14")),
        (T("decimal", length=6, scale=4), "3.14", Decimal("3.1400")),
        (T("decimal", length=50, scale=2), "3", "3.00"),
        (T("double"), "1e3", 1000.0),
        (T("float"), "0.5", 0.5),
        (T("bit", length=10), "682", 682),
        (T("year"), "2024", 2024),
        (T("year"), "0", 2000),
        (T("year"), "24", 2024),
        (T("char", length=5), "ab  ", "ab"),
        (T("double", length=7, scale=2), "1.245", 1.25),
        (T("date"), "2024-12-31 23:59:59", date(2024, 12, 31)),
        (T("date"), "2024-12-31 23:59:59.5", date(2025, 1, 1)),
        (T("date"), "2024-1-2", date(2024, 1, 2)),
        (T("date"), "20240101", date(2024, 1, 1)),
        (T("datetime", scale=0), "24.1.2T1:2", datetime(2024, 1, 2, 1, 2)),
        (T("time", scale=0), "101112", "10:11:12"),
        (T("time", scale=1), "1 1:2:3.45", "25:02:03.5"),
        (T("varchar", length=20), "dv", "dv"),
        (T("varchar", length=20), "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        (T("varchar", length=20), "", ""),
        (T("enum", elements=("a", "b")), "b", "b"),
        (T("set", elements=("a", "b")), "b,a", "a,b"),
        (T("binary", length=4), "ab", b"ab\0\0"),
        (T("binary", length=4), "ab\0\0", b"ab\0\0"),
        (T("varbinary", length=4), "ab", b"ab"),
        (T("date"), "2020-01-01", date(2020, 1, 1)),
        (T("datetime", scale=0), "2020-01-01 00:00:00", datetime(2020, 1, 1)),
        (T("datetime", scale=3), "2020-01-01 00:00:00.5", datetime(2020, 1, 1, 0, 0, 0, 500000)),
        (T("datetime", scale=0), "2020-01-01", datetime(2020, 1, 1)),
        (T("timestamp", scale=0), "2022-02-02 02:02:02", datetime(2022, 2, 2, 2, 2, 2, tzinfo=UTC)),
        (T("time", scale=0), "10:00:00", "10:00:00"),
        (T("time", scale=2), "10:00:00", "10:00:00.00"),
        (T("vector"), "[1, 2.5]", [1.0, 2.5]),
        (T("date"), "0000-00-00", None),
        (T("timestamp", scale=0), "0000-00-00 00:00:00", None),
        (T("datetime", scale=0), "2020-00-00 00:00:00", None),
    ],
    ids=lambda item: getattr(item, "name", None),
)
def test_existing_rows_get_the_default(kind: T, default: str, expected: Any) -> None:
    """The text of the default is read as the column's type, in the form that rows of the column have."""
    assert value(Column("c", kind, default=default)) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (T("int"), 0),
        (T("bigint", unsigned=True), Decimal(0)),
        (T("decimal", length=6, scale=2), Decimal("0.00")),
        (T("double"), 0.0),
        (T("bit", length=3), 0),
        (T("year"), 0),
        (T("varchar", length=5), ""),
        (T("char", length=5), ""),
        (T("longtext"), ""),
        (T("blob"), b""),
        (T("varbinary", length=3), b""),
        (T("binary", length=3), b"\0\0\0"),
        (T("enum", elements=("x", "y")), "x"),
        (T("set", elements=("x", "y")), ""),
        (T("time", scale=2), "00:00:00.00"),
        (T("json"), "null"),
        (T("vector"), []),
        (T("datetime", scale=0), None),
        (T("date"), None),
    ],
    ids=lambda item: getattr(item, "name", None),
)
def test_not_null_without_default_gives_the_zero_value(kind: T, expected: Any) -> None:
    """TiDB fills rows of before with the zero value of the type, and an enum with its first member."""
    assert value(Column("c", kind, nullable=False)) == expected


def test_a_nullable_column_without_default_is_null() -> None:
    """So is a virtual generated column, whatever its type, as no row holds its value."""
    assert value(Column("c", T("int"))) is None
    assert value(Column("c", T("int"), nullable=False, generated="virtual")) is None


def test_zero_dates_follow_the_rules() -> None:
    """A zero default is text where dates are text, and unknown where zero dates stop the feed."""
    column = Column("c", T("datetime", scale=2), nullable=False)
    assert value(column, TypeRules(zero_dates="string")) == "0000-00-00 00:00:00.00"
    with pytest.raises(DefaultUnknown, match="zero"):
        value(column, TypeRules(zero_dates="stop"))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (Column("c", T("datetime", scale=0), default="CURRENT_TIMESTAMP"), "time at which the statement ran"),
        (Column("c", T("timestamp", scale=3), default="CURRENT_TIMESTAMP(3)"), "time at which the statement ran"),
        (Column("c", T("date"), default="CURRENT_DATE"), "time at which the statement ran"),
        (Column("c", T("int"), default="rand()"), "expression"),
        (Column("c", T("int"), default="1.5x"), "expression"),
        (Column("c", T("year"), default="2156"), "no year that can be read"),
        (Column("c", T("date"), default="next week"), "no date that can be read"),
        (Column("c", T("datetime", scale=0), default="2024-01-01 10:00:00+08:00"), "no datetime that can be read"),
        (Column("c", T("time", scale=0), default="2024-01-01 10:00:00"), "no time that can be read"),
        (Column("c", T("text"), default="ab "), "CHAR cuts the spaces"),
        (Column("c", T("enum", elements=("a",)), default="b"), "expression"),
        (Column("c", T("varbinary", length=3), default="\N{REPLACEMENT CHARACTER}"), "expression"),
        (Column("c", T("int"), generated="stored"), "stored generated"),
    ],
    ids=lambda item: item.default if isinstance(item, Column) else None,
)
def test_a_default_that_cannot_be_known_is_said_so(column: Column, reason: str) -> None:
    """TiDB evaluates it once, when the statement runs, and no message tells the result."""
    with pytest.raises(DefaultUnknown, match=reason):
        value(column)


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "2024-06-01 12:00:00", datetime(2024, 6, 1, 12, tzinfo=UTC)),
        ("Asia/Shanghai", "2024-06-01 12:00:00", datetime(2024, 6, 1, 4, tzinfo=UTC)),
        ("America/New_York", "2024-06-01 12:00:00.250", datetime(2024, 6, 1, 16, 0, 0, 250000, tzinfo=UTC)),
        ("Asia/Shanghai", "0000-00-00 00:00:00", None),
    ],
)
def test_a_timestamp_default_is_read_in_the_zone_of_its_session(zone: str, text: str, expected: Any) -> None:
    """The statement writes a wall clock, and its session decides which moment that is."""
    column = Column("c", T("timestamp", scale=3), default=text)
    assert value(column, TypeRules(session_zone=zone)) == expected


def test_a_timestamp_default_as_text_is_in_utc() -> None:
    """So are the values of rows, where dates are kept as text."""
    column = Column("c", T("timestamp", scale=3), default="2024-06-01 12:00:00.5")
    rules = TypeRules(zero_dates="string", session_zone="Asia/Shanghai")
    assert value(column, rules) == "2024-06-01 04:00:00.500"


@pytest.mark.parametrize(
    ("zone", "text", "reason"),
    [
        (None, "2024-06-01 12:00:00", "set changefeed.session_timezone to it"),
        ("Mars/Olympus", "2024-06-01 12:00:00", "'Mars/Olympus', which is not the name of a time zone"),
        ("Europe/Berlin", "2024-10-27 02:30:00", "a wall clock that Europe/Berlin has twice, or never"),
        ("Europe/Berlin", "2024-03-31 02:30:00", "a wall clock that Europe/Berlin has twice, or never"),
    ],
)
def test_a_timestamp_default_without_a_moment_is_said_so(zone: str | None, text: str, reason: str) -> None:
    """An unknown zone is not UTC, and a wall clock of the hour of a clock change is two moments or none."""
    with pytest.raises(DefaultUnknown, match=reason):
        value(Column("c", T("timestamp", scale=0), default=text), TypeRules(session_zone=zone))


@pytest.mark.parametrize("kind", [T("date"), T("datetime", scale=0)])
def test_other_dates_have_no_zone(kind: T) -> None:
    """A DATE or DATETIME is the same in every session."""
    assert value(Column("c", kind, default="2024-06-01 00:00:00"), TypeRules(session_zone=None)) is not None
