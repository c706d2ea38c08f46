"""Rows are cut by key so that all changes of a key meet in one share, whoever decoded them, and none is left out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from applier.order.pieces import ANYWHERE, Pieces, Share, cut, shares, within


def keys(kind: str, numbers: np.ndarray[Any, Any]) -> pa.Array[Any]:
    """Keys of some type, different ones for different numbers."""
    values: list[Any] = numbers.tolist()
    match kind:
        case "string":
            return pa.array([f"a prefix that all names share {value}" for value in values])
        case "binary":
            return pa.array([b"" if value == 0 else str(value).encode() for value in values])
        case "decimal":
            return pa.array([Decimal(value) / 100 for value in values], pa.decimal128(20, 2))
        case "double":
            return pa.array([float(value) for value in values])
        case "timestamp":
            return pa.array(values, pa.timestamp("us"))
    return pa.array(values, pa.int64())


@pytest.mark.parametrize("kind", ["bigint", "string", "binary", "decimal", "double", "timestamp"])
@pytest.mark.parametrize("splits", [(), (100, 200, 5_000)])
@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_in_one_share_and_equal_keys_are_in_the_same(
    kind: str, splits: tuple[int, ...], seed: int
) -> None:
    """Also of tasks with few rows, whose pieces are too coarse for the shares that others ask for."""
    draw = np.random.default_rng([seed, len(kind), len(splits)])
    tasks = []
    for size in (3, 40, 600, 2_500):
        numbers = draw.choice(6_000, size, replace=False)
        tasks.append(pa.table({"id": keys(kind, numbers), "at": pa.array(numbers, pa.int64())}))
    told, held = [], []
    for number, rows in enumerate(tasks):
        places, pieces = zip(*cut(rows, ["id"], splits, 64), strict=True)
        ranges, levels, bits = zip(*places, strict=True)
        counts = tuple(piece.num_rows for piece in pieces)
        told.append(Pieces(number, 0, (("id", rows["id"].type),), ranges, levels, bits, counts, counts, 10.0))
        held.append(pieces)

    owner: dict[int, int] = {}
    taken = 0
    for number, share in enumerate(found := shares(told, 3_000)):
        for one, pieces in zip(told, held, strict=True):
            for piece, is_coarse in one.of(share):
                rows = within(pieces[piece], ["id"], splits, share) if is_coarse else pieces[piece]
                taken += rows.num_rows
                for at in rows["at"].to_pylist():
                    assert owner.setdefault(int(str(at)), number) == number

    assert taken == sum(rows.num_rows for rows in tasks)
    assert kind == "double" or len(found) > 4


def test_few_rows_stay_together() -> None:
    """What carries a piece weighs more than they do."""
    rows = pa.table({"id": pa.array(range(100))})
    assert [place for place, _ in cut(rows, ["id"], (), 800)] == [(ANYWHERE, 0, 0)]


@pytest.mark.parametrize("key", [("id", pa.string()), ("number", pa.int64())], ids=["two types", "two columns"])
def test_two_kinds_of_keys_are_not_parted(key: tuple[str, pa.DataType]) -> None:
    """Equal ones need not have equal hashes, and rows that a later key makes equal were cut by the former one."""
    one = Pieces(0, 0, (("id", pa.int64()),), (0,), (0,), (0,), (9_000,), (0,), 100.0)
    other = Pieces(1, 0, (key,), (0,), (0,), (0,), (9_000,), (0,), 100.0)
    assert shares([one, other], 10.0) == [Share()]
    assert len(shares([one, one], 100_000.0)) > 1
