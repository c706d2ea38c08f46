from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from applier.commands.verify import row_hash
from applier.commands.verify.row_hash import RowHash

KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.float32(), [0.0, 1.0, 0.1, -0.1, math.nan, math.inf]),
    (pa.float64(), [0.0, 5e-324, 0.1, math.nextafter(0.1, 1), math.nan, -math.inf]),
    (pa.decimal128(38, 10), [Decimal(0), Decimal("1E-10"), Decimal("-1E-10"), Decimal("9" * 28 + ".9999999999")]),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)]),
    (pa.timestamp("us", tz="UTC"), [datetime(1970, 1, 1, tzinfo=UTC), datetime(2038, 1, 19, tzinfo=UTC)]),
    (pa.string(), ["", "a", "A", "á", "a\0", "\0", "\0\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "ihgfedcba"]),
    (pa.string(), ["12345678abcdefgh", "abcdefgh12345678", "12345678" * 2, "12345678" * 3, "1" * 100_000]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\xff", b"\xff" * 8, b"\xff" * 9]),
    (pa.list_(pa.float32()), [[], [0.0], [0.0, 0.0], [1.0, 2.0], [2.0, 1.0]]),
]


def hashed(values: list[Any], kind: pa.DataType, seed: int = 7) -> list[int]:
    """Hashes of rows of one column."""
    return [int(number) for number in RowHash((), seed).of(pa.table({"c": pa.array(values, kind)}))[0]]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=str)
def test_each_value_has_a_number_of_its_own(kind: pa.DataType, values: list[Any]) -> None:
    """NULL too, which is no empty text, no zero and no false."""
    numbers = hashed([*values, None], kind)

    assert len(set(numbers)) == len(numbers)
    assert hashed(values, kind) == numbers[:-1]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=str)
def test_where_a_value_lies_does_not_matter(kind: pa.DataType, values: list[Any]) -> None:
    """Alone, in a slice, in several chunks: the number is the same."""
    wanted = hashed([*values, None], kind)
    long = pa.table({"c": pa.array([None, *values, None, *values], kind)}).slice(1, len(values) + 1)
    pieces = pa.table({"c": pa.chunked_array([pa.array([value], kind) for value in [*values, None]])})

    for rows in (long, pieces):
        assert [int(number) for number in RowHash((), 7).of(rows)[0]] == wanted


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.float64(), 0.0, -0.0),
        (pa.float32(), 0.0, -0.0),
        (pa.float64(), math.nan, -math.nan),
        (pa.list_(pa.float32()), [0.0], [-0.0]),
    ],
    ids=str,
)
def test_values_that_sql_takes_for_one_are_one(kind: pa.DataType, one: Any, other: Any) -> None:
    """Zero has no sign, and NaN one form."""
    assert hashed([one], kind) == hashed([other], kind)


def test_a_decimal_is_its_value() -> None:
    """However many zeros it was written with, in a column of one scale."""
    assert hashed([Decimal("1.5")], pa.decimal128(10, 3)) == hashed([Decimal("1.500")], pa.decimal128(10, 3))


def test_cells_belong_to_their_column_and_their_row() -> None:
    """A value that moves to another column, or changes places with that of another row, makes another row."""
    table = pa.table({"a": ["x", "y"], "b": ["y", "x"], "c": [None, "x"]})
    swapped = pa.table({"a": ["y", "x"], "b": ["y", "x"], "c": [None, "x"]})
    moved = pa.table({"a": ["x", "y"], "b": [None, "x"], "c": ["y", "x"]}).cast(table.schema)
    of = RowHash((), 7).of

    for other in (swapped, moved):
        with np.errstate(over="ignore"):
            assert of(table)[0].sum() != of(other)[0].sum()
        assert not set(of(table)[0][:1]) & set(of(other)[0])


def test_the_key_has_a_number_that_other_columns_do_not_change() -> None:
    """Without one, the whole row is its key."""
    rows = pa.table({"v": [1, 2], "k": ["a", "a"]})

    row, key = RowHash((1,), 7).of(rows)
    assert key[0] == key[1]
    assert row[0] != row[1]
    row, key = RowHash((), 7).of(rows)
    assert list(row) == list(key)


def test_a_seed_changes_every_number() -> None:
    """So that no data can be made that hides a difference."""
    values = ["a", "b", None]

    assert not set(hashed(values, pa.string(), 1)) & set(hashed(values, pa.string(), (1 << 64) - 1))


def test_many_rows_are_hashed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a block changes nothing."""
    table = pa.table({"a": [f"{n}" * (n % 50) for n in range(1000)], "n": list(range(1000))})
    whole = RowHash((1,), 7).of(table)
    monkeypatch.setattr(row_hash, "_BLOCK_BYTES", 100)

    blocks = RowHash((1,), 7).of(table)

    assert all(np.array_equal(one, other) for one, other in zip(whole, blocks, strict=True))
    assert len(set(map(int, whole[0]))) == 1000


@pytest.mark.parametrize(
    "made", [lambda n: n, str, lambda n: f"{'x' * 40}{n}", lambda n: b"%d" % n], ids=["int", "str", "long", "bytes"]
)
def test_numbers_are_spread_evenly(made: Callable[[int], Any]) -> None:
    """Of values that are much alike, about as many have each first bits."""
    numbers, _ = RowHash((), 7).of(pa.table({"c": [made(n) for n in range(64_000)]}))

    counts = np.bincount((numbers >> np.uint64(58)).astype(np.int64), minlength=64)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert len(set(map(int, numbers))) == 64_000
