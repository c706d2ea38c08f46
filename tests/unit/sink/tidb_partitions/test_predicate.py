"""Which rows are in a partition, as TiDB places them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, ColumnType, Index, Partition, Partitioning, TableName, TableVersion
from applier.changefeed.types import arrow_type
from applier.errors import SchemaChangeRefused
from applier.sink.tidb_partitions.predicate import rows_of

INT = ColumnType("int")
BIG = ColumnType("bigint")
UNSIGNED = ColumnType("bigint", unsigned=True)
DATE = ColumnType("date")
DATETIME = ColumnType("datetime", scale=6)
TIMESTAMP = ColumnType("timestamp", scale=6)
TEXT = ColumnType("varchar", length=20)


def by_range(expression: str, *bounds: str) -> Partitioning:
    """RANGE over an expression, partitions p0, p1, …."""
    return Partitioning("range", expression, tuple(Partition(f"p{i}", (bound,)) for i, bound in enumerate(bounds)))


def by_columns(expression: str, *bounds: tuple[str, ...]) -> Partitioning:
    """RANGE COLUMNS."""
    return Partitioning("range columns", expression, tuple(Partition(f"p{i}", bound) for i, bound in enumerate(bounds)))


def by_list(method: str, expression: str, *values: tuple[Any, ...]) -> Partitioning:
    """LIST or LIST COLUMNS; single values stand for rows of one."""
    rows = (tuple(row if isinstance(row, tuple) else (row,) for row in some) for some in values)
    return Partitioning(method, expression, tuple(Partition(f"p{i}", values=row) for i, row in enumerate(rows)))


def places(partitioning: Partitioning, *columns: tuple[ColumnType, Sequence[Any]], nullable: bool = True) -> list[str]:
    """The partition that each row is in; columns are called a, b, …."""
    names = "abcdef"[: len(columns)]
    described = tuple(Column(name, kind, nullable) for name, (kind, _) in zip(names, columns, strict=True))
    version = TableVersion(TableName("shop", "t"), 1, described, (Index("PRIMARY", ("a",), unique=True, primary=True),))
    arrays = [pa.array(values, arrow_type(kind)) for kind, values in columns]
    rows = pa.table(dict(zip(names, arrays, strict=True)))
    found = [""] * rows.num_rows
    for partition in partitioning.partitions:
        chosen = rows_of(version, partitioning, [partition.name.upper()])
        for at, inside in enumerate(chosen.predicate(rows.select(list(chosen.columns))).to_pylist()):
            if inside:
                assert found[at] == ""
                found[at] = partition.name
    return found


def days(*texts: str | None) -> list[date | None]:
    """Dates."""
    return [date.fromisoformat(text) if text else None for text in texts]


def test_range_places_values_below_its_bound_and_null_lowest() -> None:
    """A bound is exclusive, MAXVALUE takes the rest, NULL is below everything."""
    partitioning = by_range("`a`", "-5", "100", "MAXVALUE")

    assert places(partitioning, (INT, [-6, -5, 99, 100, 2**31 - 1, None])) == ["p0", "p1", "p1", "p2", "p2", "p0"]


def test_range_compares_unsigned_numbers_as_unsigned() -> None:
    """Numbers above 2^63 - 1 keep their order."""
    partitioning = by_range("a", "10", str(2**63), str(2**64 - 1), "MAXVALUE")

    assert places(partitioning, (UNSIGNED, [Decimal(n) for n in (9, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)])) == [
        "p0", "p1", "p2", "p2", "p3",
    ]  # fmt: skip


def test_a_bound_beyond_the_column_is_never_reached() -> None:
    """A signed column may have a bound that no value has."""
    assert places(by_range("a", "0", str(2**64)), (BIG, [-1, 2**63 - 1])) == ["p0", "p1"]


@pytest.mark.parametrize(
    ("expression", "kind", "value", "result"),
    [
        ("a", INT, 7, 7),
        ("a", ColumnType("year"), 2024, 2024),
        ("(a)", INT, -7, -7),
        ("YEAR(a)", DATE, date(2024, 2, 29), 2024),
        ("MONTH(`a`)", DATE, date(2024, 2, 29), 2),
        ("TO_DAYS(a)", DATE, date(1, 1, 1), 366),
        ("TO_DAYS(a)", DATE, date(1970, 1, 1), 719528),
        ("TO_DAYS(a)", DATE, date(2007, 10, 7), 733321),
        ("TO_DAYS(a)", DATE, date(9999, 12, 31), 3652424),
        ("TO_DAYS(a)", DATETIME, datetime(2007, 10, 7, 23, 59, 59, 999999), 733321),
        ("TO_DAYS(a)", DATETIME, datetime(1900, 1, 1, 0, 0, 1), 693961),
        ("UNIX_TIMESTAMP(a)", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), 1704067200),
    ],
)
def test_an_expression_has_the_value_that_tidb_computes(
    expression: str, kind: ColumnType, value: object, result: int
) -> None:
    """The value is at or above a bound equal to it, and below the next number."""
    partitioning = by_range(expression, str(result), str(result + 1), "MAXVALUE")

    assert places(partitioning, (kind, [value, None])) == ["p1", "p0"]


def test_bounds_are_constant_expressions() -> None:
    """TO_DAYS and YEAR of a literal are bounds as well as numbers are."""
    partitioning = by_range("TO_DAYS(a)", "TO_DAYS('2024-01-01')", "TO_DAYS('2024-02-01 10:00:00')", "MAXVALUE")

    assert places(partitioning, (DATE, days("2023-12-31", "2024-01-01", "2024-01-31", "2024-02-01", None))) == [
        "p0", "p1", "p1", "p2", "p0",
    ]  # fmt: skip


def test_a_bound_in_the_time_of_a_session_places_rows_that_no_zone_moves() -> None:
    """UNIX_TIMESTAMP of a literal depends on the session's zone: only rows near it are refused."""
    bounds = ("UNIX_TIMESTAMP('2024-01-01 00:00:00')", "UNIX_TIMESTAMP('2024-07-01 00:00:00')", "MAXVALUE")
    partitioning = by_range("UNIX_TIMESTAMP(`a`)", *bounds)
    far = [datetime(2023, 12, 30, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 7, 2, tzinfo=UTC)]

    assert places(partitioning, (TIMESTAMP, far)) == ["p0", "p1", "p2"]
    with pytest.raises(SchemaChangeRefused, match="the time zone of the session that set the bounds"):
        places(partitioning, (TIMESTAMP, [*far, datetime(2024, 1, 1, tzinfo=UTC)]))


def test_range_columns_compares_column_by_column() -> None:
    """The first column that differs decides; MAXVALUE of a column takes all of the columns before it."""
    partitioning = by_columns("`a`, `b`", ("10", "'m'"), ("10", "MAXVALUE"), ("20", "'a'"), ("MAXVALUE", "MAXVALUE"))

    rows = [(9, "z"), (10, "a"), (10, "m"), (10, None), (11, "z"), (20, "a"), (20, None), (None, "z"), (99, None)]
    assert places(partitioning, (INT, [a for a, _ in rows]), (TEXT, [b for _, b in rows])) == [
        "p0", "p0", "p1", "p0", "p2", "p3", "p2", "p0", "p3",
    ]  # fmt: skip


def test_range_columns_of_dates() -> None:
    """Dates and times compare as such."""
    assert places(
        by_columns("a", ("'2024-01-01'",), ("MAXVALUE",)), (DATE, days("2023-12-31", "2024-01-01", None))
    ) == ["p0", "p1", "p0"]
    assert places(
        by_columns("a", ("'2024-01-01 12:00:00'",), ("MAXVALUE",)),
        (DATETIME, [datetime(2024, 1, 1, 11, 59, 59, 999999), datetime(2024, 1, 1, 12)]),
    ) == ["p0", "p1"]


def test_strings_that_every_collation_orders_alike_are_placed() -> None:
    """Digits and letters of one case, and dates as text."""
    partitioning = by_columns("a", ("'2024-01-01'",), ("'g'",), ("MAXVALUE",))

    assert places(partitioning, (TEXT, ["2023-12-31", "2024-01-01", "f", "fz", "g", "", None])) == [
        "p0", "p1", "p1", "p1", "p2", "p0", "p0",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["Zoe", "_x", "é", "m "])
def test_strings_that_a_collation_decides_on_are_refused(value: str) -> None:
    """Letters of another case, other characters, spaces at the end: the feed does not show the collation."""
    with pytest.raises(SchemaChangeRefused, match="the collation of a column decides"):
        places(by_columns("a", ("'m'",), ("MAXVALUE",)), (TEXT, ["a", value]))


def test_list_takes_rows_by_value() -> None:
    """NULL is in the partition that lists it."""
    partitioning = by_list("list", "`a`", ("1", "13"), (None, "-4"))

    assert places(partitioning, (INT, [1, 13, None, -4])) == ["p0", "p0", "p1", "p1"]


def test_default_takes_what_no_list_names() -> None:
    """Also NULL, unless a list names it."""
    partitioning = by_list("list", "a", ("1", "2"), ("DEFAULT",))

    assert places(partitioning, (INT, [1, 7, None])) == ["p0", "p1", "p1"]
    assert places(by_list("list", "a", ("1",), ("2", None, "DEFAULT")), (INT, [1, 2, 7, None])) == [
        "p0", "p1", "p1", "p1",
    ]  # fmt: skip


def test_list_columns_takes_rows_by_several_values() -> None:
    """All columns of a listed row must be equal."""
    partitioning = by_list("list columns", "a, b", (("1", "'x'"), ("2", None)), (("1", "'Ümlaut'"), ("2", "'x'")))

    rows = [(1, "x"), (2, None), (1, "Ümlaut"), (2, "x")]
    assert places(partitioning, (INT, [a for a, _ in rows]), (TEXT, [b for _, b in rows])) == ["p0", "p0", "p1", "p1"]


def test_strings_that_are_equal_only_under_some_collations_are_not_taken_for_others() -> None:
    """A row of the default partition must differ from all listed ones under every collation."""
    partitioning = by_list("list columns", "a", ("'north'", "'süd'"), ("DEFAULT",))

    assert places(partitioning, (TEXT, ["north", "süd"])) == ["p0", "p0"]
    assert places(by_list("list columns", "a", ("'north'",), ("DEFAULT",)), (TEXT, ["west", None])) == ["p1", "p1"]
    for value in ("North", "north ", "sued", "Süd"):
        with pytest.raises(SchemaChangeRefused, match="the collation of a column decides"):
            places(partitioning, (TEXT, ["north", value]))


@pytest.mark.parametrize("method", ["hash", "key"])
def test_partitions_by_a_number_are_refused(method: str) -> None:
    """The refusal names the method and the way out; no row is looked at."""
    partitioning = Partitioning(method, "`a`", (Partition("p0"), Partition("p1")))
    with pytest.raises(SchemaChangeRefused, match=f"it is partitioned by {method.upper()}, which") as refusal:
        rows_of(TableVersion(TableName("shop", "t"), 1, (Column("a", INT),)), partitioning, ["p0"])

    assert "Load the table again" in refusal.value.hint


def test_a_bound_with_a_fraction_over_a_datetime_of_unknown_digits_is_refused() -> None:
    """TiDB rounds the bound to the digits of the column."""
    partitioning = by_columns("`a`", ("'2024-01-01 12:00:00.5'",))
    with pytest.raises(SchemaChangeRefused, match="how many digits of the second column a has"):
        places(partitioning, (ColumnType("datetime"), [datetime(2024, 1, 1)]))


@pytest.mark.parametrize(
    ("expression", "kind", "value", "reason"),
    [
        ("YEARWEEK(a)", DATE, date(2024, 1, 1), "the function YEARWEEK is not computed here: only a column, TO_DAYS"),
        ("QUARTER(a)", DATE, date(2024, 1, 1), "the function QUARTER is not computed here"),
        ("FLOOR(UNIX_TIMESTAMP(a))", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), "the function FLOOR is not"),
        ("EXTRACT(DAY FROM a)", DATE, date(2024, 1, 1), "has a form that is not known"),
        ("TIME_TO_SEC(a)", ColumnType("time"), "10:00:00", "function TIME_TO_SEC"),
        ("YEAR(a)", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), "no date without a zone"),
        ("YEAR(a)", TEXT, "2024-01-01", "kept as string"),
        ("UNIX_TIMESTAMP(a)", DATETIME, datetime(2024, 1, 1), "time zone of a session"),
        ("UNIX_TIMESTAMP(a)", TIMESTAMP, datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "fractions of a second"),
        ("a + 1", INT, 7, "has a form that is not known"),
        ("YEAR(a) * 100 + MONTH(a)", DATE, date(2024, 1, 1), "has a form that is not known"),
        ("a / 2", INT, 7, "has a form that is not known"),
        ("a + 0.5", INT, 7, "has a form that is not known"),
        ("CASE a WHEN 1 THEN 2 END", INT, 7, "has a form that is not known"),
        ("missing", INT, 7, "column missing, by which it is partitioned, is not in the feed"),
    ],
)
def test_what_is_not_known_exactly_is_refused(expression: str, kind: ColumnType, value: object, reason: str) -> None:
    """The refusal names the reason and the way out."""
    with pytest.raises(SchemaChangeRefused, match=reason) as refusal:
        places(by_range(expression, "5", "MAXVALUE"), (kind, [value]))

    assert "shop.t" in refusal.value.what
    assert "Load the table again" in refusal.value.hint


def test_rows_of_no_partition_are_refused() -> None:
    """They prove that the partitions are not what the feed told."""
    for partitioning in (by_range("a", "5"), by_list("list", "a", ("1",))):
        with pytest.raises(SchemaChangeRefused, match="some rows are in none of its partitions"):
            places(partitioning, (INT, [1, 5]))


def test_partitions_that_no_statement_told_of_are_refused() -> None:
    """A name that is not known, or a table whose CREATE TABLE was not seen."""
    version = TableVersion(TableName("shop", "t"), 1, (Column("a", INT),))

    with pytest.raises(SchemaChangeRefused, match="shows partition p9"):
        rows_of(version, by_range("a", "5"), ["p0", "p9"])
    with pytest.raises(SchemaChangeRefused, match="no statement of the feed shows how it is partitioned"):
        rows_of(version, None, ["p0"])


def test_columns_that_rows_do_not_hold_are_refused() -> None:
    """Virtual columns, and NULL where upstream has none: a zero date or a column that the feed leaves out."""
    virtual = Column("a", INT, generated="virtual")

    with pytest.raises(SchemaChangeRefused, match="column a, by which it is partitioned, is generated"):
        rows_of(TableVersion(TableName("shop", "t"), 1, (virtual,)), by_range("a", "5"), ["p0"])
    with pytest.raises(SchemaChangeRefused, match="zero dates are kept as NULL"):
        places(by_range("YEAR(a)", "2000", "MAXVALUE"), (DATE, days(None)), nullable=False)
    with pytest.raises(SchemaChangeRefused, match="rows lack it"):
        places(by_range("a", "2000"), (INT, [None]), nullable=False)


def test_several_partitions_and_names_of_any_case() -> None:
    """One predicate serves all partitions of a statement; columns are named as the table spells them."""
    version = TableVersion(TableName("shop", "t"), 1, (Column("Region Id", INT),))
    chosen = rows_of(version, by_range("`region id`", "1", "2", "3"), ["P0", "p2"])

    assert chosen.columns == ("Region Id",)
    assert chosen.predicate(pa.table({"Region Id": pa.array([0, 1, 2], pa.int32())})).to_pylist() == [True, False, True]
