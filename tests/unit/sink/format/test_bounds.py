from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from applier.sink.format.bounds import SortedKeys, decode_bound, ordered

MOMENT = datetime(2024, 2, 29, 12, 30, 45, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "theirs", "value"),
    [
        (pa.bool_(), BooleanType(), True),
        (pa.int32(), IntegerType(), -7),
        (pa.int64(), LongType(), 1 << 40),
        (pa.float32(), FloatType(), 1.5),
        (pa.float64(), DoubleType(), -1e300),
        (pa.string(), StringType(), "héllo"),
        (pa.date32(), DateType(), date(1969, 12, 31)),
        (pa.timestamp("us"), TimestampType(), MOMENT.replace(tzinfo=None)),
        (pa.timestamp("us", tz="UTC"), TimestamptzType(), MOMENT),
        (pa.decimal128(20, 2), DecimalType(20, 2), Decimal("-12345678901234567.89")),
        (pa.decimal128(29, 0), DecimalType(29, 0), Decimal(-12345678901234567890123456789)),
        (pa.decimal128(38, 0), DecimalType(38, 0), Decimal(10**38 - 1)),
        (pa.decimal128(38, 10), DecimalType(38, 10), Decimal("-9999999999999999999999999999.0123456789")),
    ],
    ids=str,
)
def test_bounds_of_iceberg_equal_the_values_of_arrow(kind: pa.DataType, theirs: Any, value: Any) -> None:
    """A bound that another implementation encodes is decoded to the form that a key of the same value takes."""
    bound = decode_bound(kind, to_bytes(theirs, value))

    assert bound == ordered(value, kind)
    assert SortedKeys(pa.array([value], kind)).holds(bound, bound)


def test_bound_of_a_promoted_column_is_read_by_its_length() -> None:
    """A file from before int became long, or float became double, has bounds of four bytes."""
    assert decode_bound(pa.int64(), struct.pack("<i", -5)) == -5
    assert decode_bound(pa.float64(), struct.pack("<f", 0.5)) == 0.5


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), b"\x01"), (pa.string(), b"\xff"), (pa.float64(), struct.pack("<d", float("nan"))), (pa.bool_(), b"")],
)
def test_unreadable_bound_is_unknown(kind: pa.DataType, value: bytes) -> None:
    """A bound that makes no sense rules nothing out."""
    assert decode_bound(kind, value) is None
    assert SortedKeys(pa.array([], kind)).holds(None, None)


@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    ends=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)), max_size=5),
)
def test_a_range_holds_a_key_exactly_if_one_lies_in_it(keys: list[int], ends: list[tuple[int, int]]) -> None:
    """Pruning by sorted keys says the same as looking at every key."""
    lower, upper = [min(pair) for pair in ends], [max(pair) for pair in ends]

    found = SortedKeys(pa.array(keys, pa.int64())).within(lower, upper)

    expected = [any(low <= key <= high for key in keys) for low, high in zip(lower, upper, strict=True)]
    assert found.tolist() == expected


@given(keys=st.lists(st.text(max_size=6), max_size=20), low=st.text(max_size=6), high=st.text(max_size=6))
def test_strings_are_compared_by_code_points(keys: list[str], low: str, high: str) -> None:
    """Strings have no numbers to search in, and are bisected in the order that Iceberg's bounds have."""
    found = SortedKeys(pa.array(keys, pa.string())).holds(low, high)

    assert found == any(low.encode() <= key.encode() <= high.encode() for key in keys)


@given(
    keys=st.lists(st.integers(1 - 10**38, 10**38 - 1), max_size=20),
    ends=st.tuples(st.integers(1 - 10**38, 10**38 - 1), st.integers(1 - 10**38, 10**38 - 1)),
)
def test_decimals_are_compared_by_all_their_digits(keys: list[int], ends: tuple[int, int]) -> None:
    """Neither a key nor an end of a range is rounded, however many digits it has."""
    low, high = sorted(ends)
    values = [Decimal(f"{key}e-10") for key in [*keys, low]]

    found = SortedKeys(pa.array(values[:-1], pa.decimal128(38, 10)))

    assert found.holds(low, high) == any(low <= key <= high for key in keys)
    assert not keys or found.holds(keys[0], keys[0])
    assert not SortedKeys(pa.array(values[-1:], pa.decimal128(38, 10))).holds(low + 1, low + 1)


@pytest.mark.parametrize("digits", [12345678901234567890123456789012345678, 1 - 10**38, 10**29 + 5])
def test_a_bound_that_an_older_build_rounded_rules_no_key_out(digits: int) -> None:
    """Of more than 28 digits it wrote the first 28: the key lies beyond such a bound, and is in the file."""
    kind = pa.decimal128(38, 0)
    rounded = decode_bound(kind, (int(Decimal(digits).scaleb(0))).to_bytes(17, "big", signed=True))

    assert SortedKeys(pa.array([Decimal(digits)], kind)).holds(rounded, rounded)
    assert decode_bound(kind, (10**27).to_bytes(17, "big", signed=True)) == 10**27


def test_null_and_nested_keys_rule_nothing_out() -> None:
    """Bounds do not count NULLs, and lists have no order."""
    assert SortedKeys(pa.array([5, None])).holds(100, 200)
    assert SortedKeys(pa.array([[1.0]], pa.list_(pa.float32()))).holds(1, 2)


def test_other_values_have_an_order_too() -> None:
    """Times of day count microseconds; what is not known has no order."""
    assert ordered(time(1, 0, 0, 5), pa.time64("us")) == 3_600_000_005
    assert ordered([1], pa.list_(pa.int64())) is None
