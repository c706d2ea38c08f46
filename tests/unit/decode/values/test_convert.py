"""Wire values of single columns against the arrays they must become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from applier.changefeed.table import Column, ColumnType
from applier.changefeed.types import OPEN, TypeRules, arrow_type
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array
from applier.decode.values.dates import ZONED, ZonedText
from applier.errors import ValueRefused

PATH = "shop.orders.c"
INDEXED = WireForm(binary="base64", members="index")
LABELLED = WireForm(binary="latin1", members="label")
RAW = WireForm(binary="bytes", members="label")
DEFAULT = TypeRules()
U64_MAX = (1 << 64) - 1

BIGINT_UNSIGNED = ColumnType("bigint", unsigned=True)
ENUM = ColumnType("enum", elements=("a", "b", "c d"))
SET = ColumnType("set", elements=("r", "g", "b"))
SET64 = ColumnType("set", elements=tuple(f"m{number}" for number in range(64)))


def convert(
    values: Sequence[Any], column: ColumnType, wire: WireForm = INDEXED, rules: TypeRules = DEFAULT
) -> tuple[pa.Array[Any], int]:
    """`to_array`, and a check that the array is whole and of the column's type."""
    array, zeros = to_array(values, Column("c", column), wire, rules, PATH)
    assert array.type == arrow_type(column, rules, PATH)
    assert len(array) == len(values)
    array.validate(full=True)
    return array, zeros


ACCEPTED: list[tuple[ColumnType, Sequence[Any], Sequence[Any]]] = [
    (ColumnType("tinyint"), ["-128", "127", None], [-128, 127, None]),
    (ColumnType("tinyint"), [-128, 127, None], [-128, 127, None]),
    (ColumnType("int"), ["1", 2, None, True], [1, 2, None, 1]),
    (ColumnType("int", unsigned=True), ["4294967295"], [4294967295]),
    (ColumnType("bigint"), ["-9223372036854775808", "9223372036854775807"], [-(1 << 63), (1 << 63) - 1]),
    (BIGINT_UNSIGNED, ["18446744073709551615", "0", None], [Decimal(U64_MAX), Decimal(0), None]),
    (BIGINT_UNSIGNED, [-1, U64_MAX, 5], [Decimal(U64_MAX), Decimal(U64_MAX), Decimal(5)]),
    (ColumnType("year"), ["0", "1901", 2155], [0, 1901, 2155]),
    (
        ColumnType("decimal", length=10, scale=2),
        ["1.50", "-99999999.99", "1.5", None],
        [Decimal("1.50"), Decimal("-99999999.99"), Decimal("1.50"), None],
    ),
    (ColumnType("decimal", length=10, scale=2), [Decimal("1.5"), 3, None], [Decimal("1.50"), Decimal("3.00"), None]),
    (ColumnType("decimal", length=10, scale=2), [0.1, 12345678.9], [Decimal("0.10"), Decimal("12345678.90")]),
    (  # The largest ones as the doubles next to them; JSON writes one from 2^53 on without a point.
        ColumnType("decimal", length=20, scale=4),
        [9999999999999999.9999, 10**16, -(10**16), 123],
        [Decimal("9999999999999999.9999")] * 2 + [Decimal("-9999999999999999.9999"), Decimal("123.0000")],
    ),
    (ColumnType("decimal", length=38, scale=10), [1e28], [Decimal("9" * 28 + "." + "9" * 10)]),
    (ColumnType("decimal", length=38), ["9" * 38, "-" + "9" * 38], [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    (ColumnType("decimal", length=65, scale=30), ["9" * 35 + "." + "0" * 30], ["9" * 35 + "." + "0" * 30]),
    (ColumnType("decimal", length=65, scale=2), [Decimal("1E+2"), Decimal("1.50")], ["100", "1.50"]),
    (ColumnType("double"), ["0.1", 0.1, 3, None, "-0", "1e300"], [0.1, 0.1, 3.0, None, -0.0, 1e300]),
    (ColumnType("double"), ["0.1", "1e300", "-2"], [0.1, 1e300, -2.0]),
    (ColumnType("double"), [10**20, 0.5], [1e20, 0.5]),
    (ColumnType("bit", length=1), [True, False, b"\x01", "1", 0], [1, 0, 1, 1, 0]),
    (ColumnType("bit", length=10), ["682", b"\x02\xaa", 682], [682, 682, 682]),
    (ColumnType("bit", length=64), ["18446744073709551615", "1"], [Decimal(U64_MAX), Decimal(1)]),
    (ColumnType("bit", length=64), [b"\xff" * 8, -1, U64_MAX], [Decimal(U64_MAX)] * 3),
    (ColumnType("varchar"), ["", "näive \U0001f600", None, "a\u0000b"], ["", "näive \U0001f600", None, "a\u0000b"]),
    (ColumnType("varchar"), ["ä".encode(), None], ["ä", None]),
    (ColumnType("json"), ['{"a": 1}', None], ['{"a": 1}', None]),
    (ENUM, ["0", "1", 3, None], ["", "a", "c d", None]),
    (SET, ["0", "5", 7, None], ["", "r,b", "r,g,b", None]),
    (SET64, [-1, -(1 << 63), "18446744073709551615"], [",".join(SET64.elements), "m63", ",".join(SET64.elements)]),
    (
        ColumnType("date"),
        ["2020-02-29", None, "0001-01-01", "9999-12-31"],
        [date(2020, 2, 29), None, date(1, 1, 1), date(9999, 12, 31)],
    ),
    (ColumnType("date"), [18321, None, -1], [date(2020, 2, 29), None, date(1969, 12, 31)]),
    (
        ColumnType("datetime", scale=6),
        ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00.000000", None],
        [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), None],
    ),
    (ColumnType("datetime", scale=0), ["2020-02-20 02:20:20"], [datetime(2020, 2, 20, 2, 20, 20)]),
    (
        ColumnType("datetime", scale=3),
        [1500, -1],
        [datetime(1970, 1, 1, 0, 0, 0, 1500), datetime(1969, 12, 31, 23, 59, 59, 999999)],
    ),
    (
        ColumnType("timestamp"),
        ["2020-02-20 02:20:20", "2020-02-20 02:20:20.5", None],
        [datetime(2020, 2, 20, 2, 20, 20, tzinfo=UTC), datetime(2020, 2, 20, 2, 20, 20, 500000, tzinfo=UTC), None],
    ),
    (
        ColumnType("timestamp"),
        ["2024-02-29T12:00:00.123456Z", "2024-02-29T12:00:00Z"],
        [datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)],
    ),
    (
        ColumnType("timestamp"),
        [0, 1_000_001, None],
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), None],
    ),
    (ColumnType("time"), ["-838:59:59.000000", "00:00:00", None], ["-838:59:59.000000", "00:00:00", None]),
    (ColumnType("time", scale=3), [3_661_500_000, -1_000, None], ["01:01:01.500", "-00:00:00.001", None]),
    (ColumnType("time", scale=0), [3_020_399_000_000], ["838:59:59"]),
    (ColumnType("vector"), ["[1,2.5,-3e-7]", "[]", None], [[1.0, 2.5, float(np.float32(-3e-7))], [], None]),
    (ColumnType("vector"), [[1, 2.5], None], [[1.0, 2.5], None]),
]


@pytest.mark.parametrize(("column", "values", "wanted"), ACCEPTED, ids=lambda item: getattr(item, "name", ""))
def test_each_wire_form_becomes_the_exact_value(
    column: ColumnType, values: Sequence[Any], wanted: Sequence[Any]
) -> None:
    """Text, numbers and bytes of one value give one value, at both ends of the type's range."""
    array, zeros = convert(values, column)
    assert array.to_pylist() == list(wanted)
    assert zeros == 0


def test_a_scale_that_no_decimal_has_is_refused() -> None:
    """A damaged description of a table may say anything."""
    with pytest.raises(ValueRefused, match="so many digits after the point"):
        to_array(["1"], Column("c", ColumnType("decimal", length=10, scale=10**20)), RAW, DEFAULT, PATH)


@pytest.mark.parametrize("values", [[1.2345], [1.23, 0.001], pa.array([1.2345]), [None, 123.456]])
def test_a_double_of_more_digits_than_the_decimal_has_is_refused(values: Any) -> None:
    """The column has another scale upstream, and no DDL tells of it: rounded, each row would pass for whole."""
    with pytest.raises(ValueRefused, match=r"cannot be read as decimal\(5,2\)") as refused:
        convert(values, ColumnType("decimal", length=5, scale=2))
    assert "load the table again, with `applier load" in refused.value.hint


@pytest.mark.parametrize("column", sorted({item[0].name for item in ACCEPTED}))
def test_columns_of_null_and_of_nothing_keep_their_type(column: str) -> None:
    """An array without any value still has the type of its column."""
    assert convert([None, None], ColumnType(column))[0].null_count == 2
    assert convert([], ColumnType(column)) == (pa.array([], arrow_type(ColumnType(column))), 0)


def test_float_text_reads_back_to_the_same_float32() -> None:
    """The shortest text of a float32, of whatever size, gives its very bits; so does a number."""
    bits = np.random.default_rng(5).integers(0, 1 << 32, 5000, dtype=np.uint32)
    floats = bits.view(np.float32)
    floats = floats[np.isfinite(floats)]
    texts = [np.format_float_positional(number, trim="-") for number in floats]
    for values in (texts, [float(number) for number in floats]):
        array, _ = convert(values, ColumnType("float"))
        assert np.array_equal(array.to_numpy().view(np.uint32), floats.view(np.uint32))


def test_binary_is_read_in_the_form_that_the_protocol_has() -> None:
    """Base64, one character a byte, and bytes lead to the same bytes."""
    data, base64 = bytes([0, 127, 128, 255]), "AH+A/w=="
    column = ColumnType("varbinary")
    assert convert([base64, None, data, ""], column, INDEXED)[0].to_pylist() == [data, None, data, b""]
    assert convert([data.decode("latin-1")], column, LABELLED)[0].to_pylist() == [data]
    assert convert([data], column, RAW)[0].to_pylist() == [data]


def test_labels_pass_where_the_protocol_writes_labels() -> None:
    """A label that looks like a number is a label there, and a number is still an index."""
    column = ColumnType("enum", elements=("2", "1", ""))
    assert convert(["2", "", 1, None], column, LABELLED)[0].to_pylist() == ["2", "", "2", None]
    assert convert(["g,r"], SET, LABELLED)[0].to_pylist() == ["g,r"]


def test_tinyint1_becomes_boolean_only_where_it_is_one() -> None:
    """With `tinyint1 = boolean` 0 and 1 pass, and a 2 is refused instead of being flattened to true."""
    rules = TypeRules(tinyint1="boolean")
    column = ColumnType("tinyint", length=1)
    assert convert(["0", "1", None], column, rules=rules)[0].to_pylist() == [False, True, None]
    assert convert([0, 1, None], column, rules=rules)[0].to_pylist() == [False, True, None]
    for value in ("2", -1):
        with pytest.raises(ValueRefused, match="neither 0 nor 1.* Hint: Set tables.tinyint1"):
            convert([value], column, rules=rules)


ZEROS = ["0000-00-00", "2020-00-10", "2020-01-00", "2021-02-30", "0000-01-01"]


@pytest.mark.parametrize("name", ["date", "datetime", "timestamp"])
@pytest.mark.parametrize("zero", ZEROS)
def test_zero_dates_become_null_and_are_counted(name: str, zero: str) -> None:
    """A zero, partial or impossible date is NULL by default, its neighbours are kept, and the count tells."""
    tail = "" if name == "date" else " 00:00:00"
    array, zeros = convert([zero + tail, "2020-02-20" + tail, None, zero + tail], ColumnType(name))
    assert array.is_valid().to_pylist() == [False, True, False, False]
    assert zeros == 2


def test_zero_timestamps_with_zone_and_offset_are_counted_too() -> None:
    """Simple's zoned text and text with an offset follow the same rule."""
    column = ColumnType("timestamp")
    zoned = [ZonedText("Asia/Shanghai", "0000-00-00 00:00:00"), ZonedText("UTC", "2020-01-01 00:00:00")]
    assert convert(zoned, column)[1] == 1
    assert convert(["0000-00-00T00:00:00Z", "2020-01-01T00:00:00Z"], column)[1] == 1


def test_zero_dates_stop_where_so_configured() -> None:
    """`stop` refuses by name of the column, for one column only if so told."""
    rules = TypeRules(zero_dates_of={PATH: "stop"})
    with pytest.raises(
        ValueRefused, match=r"shop\.orders\.c .* zero, partial or impossible date\. Hint: Set tables.zero_dates"
    ):
        convert(["0000-00-00"], ColumnType("date"), rules=rules)
    assert convert(["2020-01-01"], ColumnType("date"), rules=rules)[1] == 0


def test_date_columns_configured_as_text_keep_every_date() -> None:
    """`string` keeps zero dates, and writes timestamps in UTC with their own digits."""
    rules = TypeRules(zero_dates="string")
    assert convert(["0000-00-00", 0, None], ColumnType("date"), rules=rules)[0].to_pylist() == [
        "0000-00-00",
        "1970-01-01",
        None,
    ]
    clock = ["0000-00-00 00:00:00.000", 1500]
    assert convert(clock, ColumnType("datetime", scale=3), rules=rules)[0].to_pylist() == [
        clock[0],
        "1970-01-01 00:00:00.001",
    ]
    stamps = [
        ZonedText("Asia/Shanghai", "2020-02-20 10:20:20.50"),
        ZonedText("Asia/Shanghai", "0000-00-00 00:00:00"),
        "2020-02-20 02:20:20",
        "2020-02-20T02:20:20Z",
        0,
        None,
    ]
    assert convert(stamps, ColumnType("timestamp", scale=0), rules=rules)[0].to_pylist() == [
        "2020-02-20 02:20:20.50",
        "0000-00-00 00:00:00",
        "2020-02-20 02:20:20",
        "2020-02-20 02:20:20",
        "1970-01-01 00:00:00",
        None,
    ]


def test_timestamps_are_moved_from_their_zone_to_utc() -> None:
    """The zone of each value counts, and the wire form's zone where a value has none."""
    column = ColumnType("timestamp")
    values = [
        ZonedText("Asia/Shanghai", "2020-02-20 10:20:20"),
        None,
        ZonedText("UTC", "2020-02-20 02:20:20"),
        "2020-02-20 03:20:20",
    ]
    wire = WireForm(binary="base64", members="index", zone="Europe/Berlin")
    moment = datetime(2020, 2, 20, 2, 20, 20, tzinfo=UTC)
    assert convert(values, column, wire)[0].to_pylist() == [moment, None, moment, moment]
    assert convert(values[3:], column, wire)[0].to_pylist() == [moment]


def test_an_hour_that_passes_twice_is_taken_as_the_earlier_one() -> None:
    """The end of summer time leaves two moments for one text; the rule is fixed."""
    value = ZonedText("America/New_York", "2021-11-07 01:30:00")
    assert convert([value], ColumnType("timestamp"))[0].to_pylist() == [datetime(2021, 11, 7, 5, 30, tzinfo=UTC)]


SHANGHAI = WireForm(binary="base64", members="index", zone="Asia/Shanghai")


def _zoned_array(values: Sequence[ZonedText | None]) -> pa.Array[Any]:
    """The same in Arrow."""
    return pa.array([None if value is None else msgspec.to_builtins(value) for value in values], ZONED)


NAMELESS = ["Local", "local", "System", "SYSTEM", "", "localtime"]
"""What stands for the zone of a machine."""


@pytest.mark.parametrize("zone", NAMELESS)
@pytest.mark.parametrize("form", [list, _zoned_array])
def test_a_zone_that_ticdc_does_not_name_is_the_configured_one(zone: str, form: Callable[[Any], Any]) -> None:
    """TiCDC v7.5.2 to v7.5.7 writes `Local` whatever its zone is: the moment is that of the wall clock there."""
    stamps = form([ZonedText(zone, "2020-02-20 10:20:20"), None, ZonedText("UTC", "2020-02-20 10:20:20")])

    array, _ = to_array(stamps, Column("c", ColumnType("timestamp")), SHANGHAI, TypeRules(), "t.c")

    assert array.to_pylist() == [
        datetime(2020, 2, 20, 2, 20, 20, tzinfo=UTC),
        None,
        datetime(2020, 2, 20, 10, 20, 20, tzinfo=UTC),
    ]


@pytest.mark.parametrize("zone", NAMELESS)
@pytest.mark.parametrize("rules", [TypeRules(), TypeRules(zero_dates="string")])
def test_a_zone_that_nothing_names_is_refused(zone: str, rules: TypeRules) -> None:
    """UTC would be a guess: the sentence names the key, and what TiCDC takes its zone from."""
    wire = replace(SHANGHAI, zone="")
    with pytest.raises(ValueRefused, match=r"which changefeed\.timezone must name.* Hint: .*environment variable TZ"):
        to_array([ZonedText(zone, "2020-02-20 10:20:20")], Column("c", ColumnType("timestamp")), wire, rules, "t.c")


@pytest.mark.parametrize("name", sorted(OPEN))
@pytest.mark.parametrize("values", [["x"], ["5"], [5], [None], []])
def test_a_type_that_rows_leave_open_is_refused(name: str, values: list[Any]) -> None:
    """Whatever the values are: the type of the column would be a guess, and a later value would have no place in it."""
    with pytest.raises(ValueRefused, match=r"t\.c cannot .* no CREATE TABLE shows .*Hint: .*\[upstream\] schemas"):
        to_array(values, Column("c", ColumnType(name)), SHANGHAI, TypeRules(), "t.c")


@pytest.mark.parametrize(
    ("name", "zero_dates"), [("time", "null"), ("datetime", "string"), ("timestamp", "string"), ("time", "string")]
)
def test_a_count_of_microseconds_is_no_text_while_the_digits_are_unknown(name: str, zero_dates: Any) -> None:
    """`01:02:03` of a TIME(3) is `01:02:03.000`, which is another text."""
    with pytest.raises(ValueRefused, match=r"no CREATE TABLE shows how many fractional digits it has"):
        to_array([0], Column("c", ColumnType(name)), SHANGHAI, TypeRules(zero_dates=zero_dates), "t.c")


@pytest.mark.parametrize(
    ("digits", "text"), [(3, "01:02:03"), (6, "-01:02:03"), (6, "01:02:03.123"), (0, "01:02:03.5")]
)
def test_a_time_of_other_digits_than_its_column_is_refused(digits: int, text: str) -> None:
    """TiDB always prints as many as the column has: another text is that of a build that lost its fraction."""
    whole = "01:02:03" + (f".{'0' * digits}" if digits else "")
    assert convert([whole, None], ColumnType("time", scale=digits))[0].to_pylist() == [whole, None]
    with pytest.raises(ValueRefused, match="its text has other fractional digits than the column"):
        convert([whole, text], ColumnType("time", scale=digits))


@pytest.mark.parametrize("zone", ["+08:00", "Mars/Base", "../../etc/passwd", "UTC\0"])
def test_zones_that_are_none_are_refused(zone: str) -> None:
    """Offsets and unknown names are named, with the way out."""
    with pytest.raises(ValueRefused, match="is not the name of a time zone.* Hint: Give TiCDC"):
        convert([ZonedText(zone, "2020-02-20 10:20:20")], ColumnType("timestamp"))


def test_an_hour_that_a_zone_skips_is_refused() -> None:
    """Such a text was labelled with the wrong zone; shifting it would hide that."""
    value = ZonedText("America/New_York", "2021-03-14 02:30:00")
    with pytest.raises(ValueRefused, match="does not exist in the zone America/New_York"):
        convert([value], ColumnType("timestamp"))


REFUSED: list[tuple[ColumnType, Any]] = [
    (ColumnType("tinyint"), "2147483648"),
    (ColumnType("int"), "1.5"),
    (ColumnType("int"), 1.5),
    (ColumnType("int"), "0x1F"),
    (ColumnType("int"), " 77"),
    (ColumnType("int"), "secret"),
    (ColumnType("int"), [1]),
    (ColumnType("bigint"), "9223372036854775808"),
    (ColumnType("bigint"), 1 << 63),
    (BIGINT_UNSIGNED, "-1"),
    (BIGINT_UNSIGNED, "18446744073709551616"),
    (BIGINT_UNSIGNED, 1 << 64),
    (BIGINT_UNSIGNED, -(1 << 63) - 1),
    (ColumnType("bit", length=64), b"\xff" * 9),
    (ColumnType("bit", length=8), str(1 << 63)),
    (ColumnType("decimal", length=10, scale=2), "123456789.12"),
    (ColumnType("decimal", length=10, scale=2), "1.005"),
    (ColumnType("decimal", length=20, scale=4), 10**16 + 2),
    (ColumnType("decimal", length=10, scale=2), Decimal("1.005")),
    (ColumnType("decimal", length=10, scale=2), "nan"),
    (ColumnType("decimal", length=10, scale=2), float("inf")),
    (ColumnType("decimal", length=65, scale=2), "12_3"),
    (ColumnType("decimal", length=65, scale=2), Decimal("NaN")),
    (ColumnType("float"), "1e39"),
    (ColumnType("float"), 1e39),
    (ColumnType("double"), "nan"),
    (ColumnType("double"), "one"),
    (ColumnType("varchar"), b"\xff\xfe"),
    (ColumnType("varchar"), "\udcff"),
    (ColumnType("varchar"), 5),
    (ColumnType("varbinary"), "not base64!"),
    (ENUM, "4"),
    (ENUM, -1),
    (ENUM, "b b"),
    (SET, "8"),
    (ColumnType("enum"), "1"),
    (ColumnType("date"), "2020-2-3"),
    (ColumnType("date"), "yesterday"),
    (ColumnType("datetime"), "2020-02-20 25:00:00"),
    (ColumnType("datetime"), "0000-00-00 99:00:00x"),
    (ColumnType("timestamp"), "now"),
    (ColumnType("timestamp"), 1 << 63),
    (ColumnType("time"), "noon"),
    (ColumnType("vector"), "[1,"),
    (ColumnType("vector"), "[1e39]"),
    (ColumnType("vector"), '["a"]'),
    (ColumnType("geometry"), "POINT"),
]


@pytest.mark.parametrize(("column", "value"), REFUSED)
def test_values_that_do_not_fit_are_refused_without_being_shown(column: ColumnType, value: Any) -> None:
    """The error names the column and its type; the value is neither in it nor in what it was raised from."""
    with pytest.raises(ValueRefused) as caught:
        convert(["1", value] if column.name == "int" else [value], column)
    assert str(caught.value).startswith(f"A value of {PATH} cannot be read as {column.name}")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert repr(value).strip("'") not in str(caught.value).replace(column.name, "")
    assert caught.value.hint


def test_unknown_members_say_where_they_come_from() -> None:
    """Without the members of the enum the hint is to read its CREATE TABLE."""
    with pytest.raises(ValueRefused, match="members are not known.*CREATE TABLE"):
        convert(["1"], ColumnType("set"))
