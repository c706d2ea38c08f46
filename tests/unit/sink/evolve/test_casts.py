from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules, arrow_type
from applier.sink.evolve.casts.cast import CastRefused, cast, is_lossless, refusal
from applier.sink.evolve.steps import ConvertField

RULES = TypeRules()
BOOLEANS = TypeRules(tinyint1="boolean")
TEXT_DATES = TypeRules(zero_dates="string")


def step(old: T, new: T, rules: TypeRules = RULES, *, holds_null: bool = True) -> ConvertField:
    """A change of type, with the Arrow types that the mapping gives."""
    return ConvertField("c", old, new, arrow_type(old, rules), arrow_type(new, rules), holds_null)


def run(change: ConvertField, *values: Any) -> list[Any]:
    """Cast values and NULL, which stays NULL."""
    result = cast(pa.array([*values, None], change.old_arrow), change)
    assert result.type == change.new_arrow
    found = result.to_pylist()
    assert found[-1] is None
    return found[:-1]


D = Decimal
VARCHAR = T("varchar", length=20)

EXACT = [
    # numbers to numbers
    (T("int"), T("smallint"), [-32768, 32767], [-32768, 32767]),
    (T("bigint"), T("bigint", unsigned=True), [0, 2**63 - 1], [D(0), D(2**63 - 1)]),
    (T("bigint", unsigned=True), T("bigint"), [D(7)], [7]),
    (T("int", unsigned=True), T("bigint", unsigned=True), [2**32 - 1], [D(2**32 - 1)]),
    (T("int"), T("decimal", length=10, scale=2), [-5, 99999999], [D("-5.00"), D("99999999.00")]),
    (T("bigint"), T("double"), [2**53 + 1], [float(2**53)]),
    (T("decimal", length=5, scale=2), T("int"), [D("2.50"), D("-2.50"), D("2.49")], [3, -3, 2]),
    (T("decimal", length=12, scale=2), T("decimal", length=14, scale=4), [D("1.25")], [D("1.2500")]),
    (
        T("decimal", length=6, scale=3),
        T("decimal", length=6, scale=1),
        [D("0.250"), D("-0.050")],
        [D("0.3"), D("-0.1")],
    ),
    (T("decimal", length=40, scale=2), T("decimal", length=10, scale=1), ["1.25"], [D("1.3")]),
    (T("decimal", length=10, scale=2), T("decimal", length=40, scale=3), [D("-1.25")], ["-1.250"]),
    (T("decimal", length=5, scale=2), T("double"), [D("0.10")], [0.1]),
    (T("double"), T("int"), [0.5, 1.5, 2.5, -1.5, 2.4], [0, 2, 2, -2, 2]),
    (T("double"), T("decimal", length=10, scale=2), [0.125, 1.005, 1e3], [D("0.13"), D("1.01"), D("1000.00")]),
    (T("float"), T("decimal", length=10, scale=5), [1.1], [D("1.10000")]),
    (T("double"), T("float"), [0.1], [0.10000000149011612]),
    (T("year"), T("int"), [2024], [2024]),
    (T("int"), T("year"), [1901, 2155, 0, 24, 70], [1901, 2155, 0, 2024, 1970]),
    (VARCHAR, T("year"), ["24", "0", "0000", " 0000"], [2024, 2000, 0, 2000]),
    (T("decimal", length=9, scale=3), T("decimal", length=6, scale=1, unsigned=True), [D("-0.001")], [D("0.0")]),
    (T("double"), T("float", length=7, scale=2), [1.005, 1.235], [1.0, 1.2400000095367432]),
    # TiDB leaves what is wide enough as it is.
    (T("double"), T("double", length=30, scale=2), [1.005, 1e29], [1.005, 1e29]),
    (T("double", length=30), T("double", length=30, scale=2), [1.005], [1.0]),
    (T("bit", length=8), T("bit", length=64), [255], [D(255)]),
    (T("bit", length=8), T("int"), [200], [200]),
    (VARCHAR, T("decimal", length=38, scale=0), ["9" * 38, "-" + "9" * 38], [D("9" * 38), D("-" + "9" * 38)]),
    (T("decimal", length=38, scale=0), T("decimal", length=65, scale=27), [D("9" * 38)], ["9" * 38 + "." + "0" * 27]),
    (T("decimal", length=65, scale=27), T("decimal", length=38, scale=0), ["9" * 38 + ".4"], [D("9" * 38)]),
    (T("decimal", length=38, scale=10), T("decimal", length=38, scale=9), [D("1" * 28 + ".5")], [D("1" * 28 + ".5")]),
    # text
    (T("int"), VARCHAR, [-42], ["-42"]),
    (T("bigint", unsigned=True), VARCHAR, [D(2**64 - 1)], ["18446744073709551615"]),
    (T("decimal", length=5, scale=2), VARCHAR, [D("1.50"), D("0.00")], ["1.50", "0.00"]),
    (T("double"), T("varchar", length=30), [0.1, 1e20, -1e-7], ["0.1", "100000000000000000000", "-0.0000001"]),
    (T("float"), VARCHAR, [1.1], ["1.1"]),
    (T("year"), VARCHAR, [0, 1999], ["0", "1999"]),
    (T("date"), VARCHAR, [date(2020, 2, 29)], ["2020-02-29"]),
    (
        T("datetime", scale=3),
        T("varchar", length=30),
        [datetime(2020, 1, 2, 3, 4, 5, 60000)],
        ["2020-01-02 03:04:05.060"],
    ),
    (T("datetime", scale=0), VARCHAR, [datetime(2020, 1, 2, 3, 4, 5)], ["2020-01-02 03:04:05"]),
    (T("time", scale=1), VARCHAR, ["-838:59:58.5"], ["-838:59:58.5"]),
    (T("json"), T("text"), ['{"a": [1]}'], ['{"a": [1]}']),
    (VARCHAR, T("bigint"), ["42", " -7\t", "1e3", "2.5", "-0.5"], [42, -7, 1000, 3, -1]),
    (VARCHAR, T("bigint", unsigned=True), ["18446744073709551615"], [D(2**64 - 1)]),
    (VARCHAR, T("decimal", length=5, scale=1), ["1.25", "+3.", ".5"], [D("1.3"), D("3.0"), D("0.5")]),
    (VARCHAR, T("double"), ["1e-3"], [0.001]),
    (VARCHAR, T("date"), ["2020-02-29"], [date(2020, 2, 29)]),
    (VARCHAR, T("datetime", scale=0), ["2020-01-02 03:04:05.5"], [datetime(2020, 1, 2, 3, 4, 6)]),
    (VARCHAR, T("time", scale=2), ["10:00:00.125"], ["10:00:00.13"]),
    (VARCHAR, T("varchar", length=3), ["abc", "äöü", "ab  "], ["abc", "äöü", "ab "]),
    (VARCHAR, T("char", length=5), ["ab  ", "  ab"], ["ab", "  ab"]),
    (T("longtext"), T("tinytext"), ["x" * 255], ["x" * 255]),
    (VARCHAR, T("varbinary", length=20), ["ä"], ["ä".encode()]),
    (T("varbinary", length=4), VARCHAR, [b"ab"], ["ab"]),
    (T("varbinary", length=4), T("binary", length=4), [b"ab"], [b"ab\0\0"]),
    (T("binary", length=2), T("binary", length=4), [b"ab"], [b"ab\0\0"]),
    (T("int"), T("varbinary", length=4), [12], [b"12"]),
    # members
    (T("enum", elements=("a", "b")), T("enum", elements=("b", "a")), ["a", "b", ""], ["a", "b", ""]),
    (T("enum", elements=("a", "b")), VARCHAR, ["b"], ["b"]),
    (VARCHAR, T("enum", elements=("a", "b")), ["b"], ["b"]),
    (T("set", elements=("a", "b", "c")), T("set", elements=("c", "b", "a")), ["a,c", ""], ["c,a", ""]),
    (VARCHAR, T("set", elements=("a", "b")), ["b,a,b"], ["a,b"]),
    # dates
    (
        T("datetime", scale=6),
        T("datetime", scale=0),
        [datetime(2020, 1, 1, 0, 0, 0, 500000)],
        [datetime(2020, 1, 1, 0, 0, 1)],
    ),
    (T("datetime", scale=6), T("datetime", scale=0), [datetime(1960, 1, 1, 0, 0, 0, 499999)], [datetime(1960, 1, 1)]),
    (T("datetime", scale=6), T("date"), [datetime(2019, 12, 31, 23, 59, 59, 500000)], [date(2019, 12, 31)]),
    (
        VARCHAR,
        T("date"),
        ["2019-12-31 23:59:59.5", "2020-1-2", "20200102"],
        [date(2020, 1, 1), *[date(2020, 1, 2)] * 2],
    ),
    (T("date"), T("datetime", scale=0), [date(2020, 2, 29)], [datetime(2020, 2, 29)]),
    (T("time", scale=0), T("time", scale=3), ["-10:00:00"], ["-10:00:00.000"]),
    (T("time", scale=2), T("time", scale=0), ["10:59:59.50", "-10:00:00.49"], ["11:00:00", "-10:00:00"]),
    # Halfway below zero a TIME rounds up, and text down.
    (T("time", scale=1), T("time", scale=0), ["-10:00:00.5", "-00:00:00.5"], ["-10:00:00", "00:00:00"]),
    (VARCHAR, T("time", scale=0), ["-10:00:00.5", "1 2:3"], ["-10:00:01", "26:03:00"]),
]


@pytest.mark.parametrize(("old", "new", "values", "results"), EXACT, ids=lambda value: getattr(value, "name", ""))
def test_values_become_what_tidb_made_of_them(old: T, new: T, values: list[Any], results: list[Any]) -> None:
    """Each conversion rounds, prints, pads and orders as TiDB does."""
    assert run(step(old, new), *values) == results


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (T("int"), T("tinyint"), 128),
        (T("bigint"), T("bigint", unsigned=True), -1),
        (T("int"), T("bit", length=3), 8),
        (T("int"), T("year"), 100),
        (T("double"), T("float", length=7, scale=2), 1e5),
        (T("decimal", length=5, scale=2), T("decimal", length=3, scale=1), D("99.95")),
        (T("decimal", length=40, scale=0), T("decimal", length=39, scale=0), "9" * 40),
        (T("decimal", length=5, scale=2), T("decimal", length=5, scale=2, unsigned=True), D("-1.00")),
        (T("double"), T("float"), 1e39),
        (T("double"), T("bigint"), 1e19),
        (VARCHAR, T("int"), "12abc"),
        (VARCHAR, T("int"), ""),
        (VARCHAR, T("int"), "\u0663"),
        (VARCHAR, T("decimal", length=5, scale=1), "0x10"),
        (VARCHAR, T("date"), "2021-02-30"),
        (VARCHAR, T("varchar", length=3), "abcd"),
        (T("longtext"), T("tinytext"), "ä" * 128),
        (T("binary", length=4), T("binary", length=2), b"ab\0\0"),
        (T("varbinary", length=4), VARCHAR, b"\xff"),
        (VARCHAR, T("enum", elements=("a", "b")), "A"),
        (VARCHAR, T("enum", elements=("a", "b")), ""),
        (T("enum", elements=("a", "b")), T("enum", elements=("a", "c")), "b"),
        (VARCHAR, T("set", elements=("a",)), "a,b"),
        (T("time", scale=1), T("time", scale=0), "838:59:59.5"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_value_that_strict_mode_refuses_is_refused(old: T, new: T, value: Any) -> None:
    """What TiDB stored of it is not known, so the statement is refused, without the value in the message."""
    with pytest.raises(CastRefused) as caught:
        run(step(old, new), value)
    assert "strict SQL mode" in str(caught.value)
    assert str(value) not in str(caught.value) or len(str(value)) < 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (T("timestamp", scale=0), T("datetime", scale=0)),
        (T("datetime", scale=0), T("timestamp", scale=0)),
        (T("timestamp", scale=0), VARCHAR),
        (T("time", scale=0), T("datetime", scale=0)),
        (VARCHAR, T("timestamp", scale=0)),
        (T("enum", elements=("a", "b")), T("int")),
        (VARCHAR, T("json")),
        (T("json"), T("int")),
        (T("vector", length=3), T("vector", length=2)),
        (T("datetime", scale=0), T("bigint")),
        (T("bit", length=8), VARCHAR),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_conversion_that_is_not_known_is_refused_when_it_is_planned(old: T, new: T) -> None:
    """No value has to be looked at to know that the result cannot be known."""
    what = f"the exact result of TiDB's conversion from {old.name} to {new.name} is not known"
    assert refusal(step(old, new)) == what


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (VARCHAR, T("int"), "0.005e2"),
        (VARCHAR, T("date"), "0000-00-00"),
        (VARCHAR, T("datetime", scale=0), "2020-00-00"),
        (VARCHAR, T("datetime", scale=0), "2020-01-01 10:00:00+08:00"),
        (VARCHAR, T("time", scale=0), "2020-01-01 10:00:00"),
    ],
)
def test_a_form_of_which_the_result_is_not_known_blames_no_session(old: T, new: T, value: Any) -> None:
    """Strict mode takes it, so the refusal must not say that the session was not strict."""
    with pytest.raises(CastRefused, match=f"exact conversion to {new.name} is not known for the form of a value"):
        run(step(old, new), value)


def test_booleans_are_numbers() -> None:
    """tinyint(1) kept as boolean becomes 0 and 1, and back; no other number is a boolean."""
    to_int = step(T("tinyint", length=1), T("tinyint", length=4), BOOLEANS)
    assert run(to_int, True, False) == [1, 0]
    assert run(step(T("tinyint", length=1), VARCHAR, BOOLEANS), True) == ["1"]
    to_bool = step(T("tinyint", length=4), T("tinyint", length=1), BOOLEANS)
    assert run(to_bool, 1, 0) == [True, False]
    with pytest.raises(CastRefused):
        run(to_bool, 2)


def test_dates_that_are_text_keep_their_zeros() -> None:
    """With zero dates as text, a change of precision rounds dates and leaves zero dates what they are."""
    to_seconds = step(T("datetime", scale=2), T("datetime", scale=0), TEXT_DATES)
    texts = ["0000-00-00 00:00:00.00", "2020-00-00 00:00:00.00", "2020-01-01 23:59:59.50"]
    assert run(to_seconds, *texts) == ["0000-00-00 00:00:00", "2020-00-00 00:00:00", "2020-01-02 00:00:00"]
    assert run(step(T("timestamp", scale=0), T("timestamp", scale=1), TEXT_DATES), "0000-00-00 00:00:00") == [
        "0000-00-00 00:00:00.0"
    ]
    assert run(step(T("date"), VARCHAR, TEXT_DATES), "0000-00-00") == ["0000-00-00"]
    assert refusal(step(T("date"), T("datetime", scale=0), TEXT_DATES)) is not None


def test_float_is_rounded_to_the_digits_of_a_double() -> None:
    """TiDB leaves values as they are only from FLOAT to FLOAT, and from DOUBLE to DOUBLE."""
    new = T("double", length=17, scale=3)
    assert run(step(T("float", length=6, scale=2), new), 0.7281) == [0.728]
    assert run(step(T("float"), new), 0.7281) == [0.728]
    assert not is_lossless(T("float"), new, pa.float64())


def test_null_for_a_zero_date_is_not_cast() -> None:
    """Where upstream had no NULL, a NULL here was a zero date, and its text is `0000-00-00`."""
    change = step(T("date"), VARCHAR, holds_null=False)
    assert cast(pa.array([date(2020, 1, 1)]), change).to_pylist() == ["2020-01-01"]
    with pytest.raises(CastRefused, match="zero dates"):
        cast(pa.array([date(2020, 1, 1), None]), change)


@pytest.mark.parametrize("name", ["datetime", "timestamp", "time"])
@pytest.mark.parametrize("new", [VARCHAR, T("varbinary", length=20)])
def test_an_unknown_number_of_digits_is_not_printed(name: str, new: T) -> None:
    """TiDB prints as many digits of the second as the column has; rows alone do not show how many."""
    assert refusal(step(T(name), new)) is not None


@pytest.mark.parametrize("new", [T("datetime"), T("time"), T("decimal")])
def test_an_unknown_number_of_digits_is_not_filled(new: T) -> None:
    """Text is rounded to the digits of its new column, which a description without them does not show."""
    assert refusal(step(VARCHAR, new)) is not None


def test_values_of_unknown_precision_are_rounded_to_the_new_one() -> None:
    """TiDB rounded those with more digits; what was not known before may have had them."""
    found = run(step(T("datetime"), T("datetime", scale=0)), datetime(2020, 1, 1, 0, 0, 0, 500000))

    assert found == [datetime(2020, 1, 1, 0, 0, 1)]
