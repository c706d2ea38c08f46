"""Rows without a key: equal ones meet in one share whoever decoded them, and changes count as if they were together."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.change_batch import KeylessBatch
from applier.changefeed.event import Op
from applier.changefeed.table import Keyless
from applier.order.merge import IMAGE, hashed, merge, merge_bag, together
from applier.order.pieces import Pieces, cut, shares, within
from applier.order.reduce import KEYLESS_SCHEMA

UPDATE, INSERT, DELETE = (False, True), (True,), (False,)


def part(partition: int, changes: list[tuple[tuple[bool, ...], list[Any]]], kind: pa.DataType) -> pa.Table:
    """Changes of one commit ts and run, each with the values of its rows."""
    rows = [
        (7, present, partition, offset, 0, False, 1, Op.INSERT, value)
        for offset, (halves, values) in enumerate(changes)
        for present, value in zip(halves, values, strict=True)
    ]
    schema: pa.Schema = pa.schema([*KEYLESS_SCHEMA, pa.field("v", kind)])
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def parted(parts: list[pa.Table]) -> tuple[Counter[str], Counter[str]]:
    """What shares of the rows add and remove."""
    cuts = [list(zip(*cut(hashed(rows), (IMAGE,), (), 8), strict=True)) for rows in parts]
    told = []
    for number, (places, pieces) in enumerate(cuts):
        ranges, levels, bits = zip(*places, strict=True)
        counts = tuple(piece.num_rows for piece in pieces)
        told.append(Pieces(number, 0, (), ranges, levels, bits, counts, counts, 10.0))
    found = Counter[str](), Counter[str]()
    every = shares(told, 50.0)
    assert len(every) > 2
    for share in every:
        rows = [
            within(pieces[at], (IMAGE,), (), share) if is_coarse else pieces[at]
            for one, (_, pieces) in zip(told, cuts, strict=True)
            for at, is_coarse in one.of(share)
        ]
        if not rows:
            continue
        batch = cast("KeylessBatch", merge(rows, Keyless()))
        for counter, held in zip(found, (batch.inserts, batch.deletes), strict=True):
            counter.update(map(repr, held["v"].to_pylist()))
    return found


VALUES = {
    pa.int64(): [*range(9), None],
    pa.float64(): [*(number / 8 for number in range(9)), 0.0, -0.0, math.inf, None],
    pa.string(): ["", "a" * 40 + "b" + "c" * 40, "a" * 40 + "d" + "c" * 40, "é", None, *"efghij"],
    pa.binary(): [b"", b"\0", b"\0\0", None, *(bytes([number]) for number in range(9))],
    pa.decimal128(20, 2): [Decimal(number) / 4 for number in range(9)],
    pa.dictionary(pa.int8(), pa.string()): [*"abcdefghij", None],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_shares_add_and_remove_what_the_whole_does(kind: pa.DataType) -> None:
    """What one partition adds another removes, whatever the type; values that are NULL or look alike stay apart."""
    values = VALUES[kind]
    added = part(0, [(INSERT, [value]) for value in [*values, *values]], kind)
    moved = part(1, [(UPDATE, [old, new]) for old, new in zip(values, [*values[1:], values[0]], strict=True)], kind)
    removed = part(2, [(DELETE, [value]) for value in values[:5]], kind)
    whole = merge_bag([added, moved, removed])

    assert parted([added, moved, removed]) == tuple(
        Counter(map(repr, rows["v"].to_pylist())) for rows in (whole.inserts, whole.deletes)
    )


def test_an_update_is_no_delete_that_was_sent_again() -> None:
    """One row of the update is in another share than the other; that the delete is another change, both show."""
    kind = pa.int64()
    parts = [
        part(0, [(UPDATE, [at, at + 100]) for at in range(9)], kind),
        part(1, [(DELETE, [at]) for at in range(9)], kind),
    ]
    added, removed = parted(parts)
    assert set(removed.values()) == {2}
    assert set(added.values()) == {1}


def test_rows_that_were_parted_after_all_come_together_again() -> None:
    """In the order that shows which two rows are an update."""
    rows = part(3, [(UPDATE, [at, -at]) for at in range(50)], pa.int64())
    pieces = [piece for _, piece in cut(hashed(rows), (IMAGE,), (), 4)]
    assert len(pieces) > 4
    assert together(pa.concat_tables(pieces)).equals(rows)
