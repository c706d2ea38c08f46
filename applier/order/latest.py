"""The one rule for which of several changes of a key counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.ts import LOGICAL


def last_per_key(rows: pa.Table, key: Sequence[str], *, by_place: bool = False) -> pa.Table:
    """The last change of each key, with commit ts and kind of the first one.

    The order of changes is commit ts, delete before upsert, partition, offset, place. Equal changes are duplicates.

    Args:
        rows: `KEYED_SCHEMA` and other columns, in any order.
        key: Names of the key columns among them.
        by_place: Of changes whose commit ts is only a millisecond, the one read later counts; and of all changes of a
            key, if one of them has no commit ts.
    """
    codes, distinct = _codes(rows.select(key))
    if distinct == len(rows):
        return rows
    several = np.flatnonzero(np.bincount(codes)[codes] > 1)
    codes, rest = codes[several], rows.take(several) if len(several) < len(rows) else rows
    last, first = ends(codes, *(numbers(rest, name) for name in _ORDER), by_place=by_place)
    chosen = several[last]
    for name in ("\0first_ts", "\0first_op"):
        values = numbers(rows, name).copy()
        values[chosen] = numbers(rest, name)[first]
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    kept = np.ones(len(rows), bool)
    kept[several] = False
    kept[chosen] = True
    return rows.filter(pa.array(kept))


_ORDER = ("\0first_ts", "\0first_op", "\0ts", "\0present", "\0partition", "\0offset", "\0index")


def ends(
    codes: np.ndarray,
    first_ts: np.ndarray,
    first_op: np.ndarray,
    stamps: np.ndarray,
    present: np.ndarray,
    *place: np.ndarray,
    by_place: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the last and of the first change of each key, by their codes, of which each key has one.

    The arguments are the columns of `KEYED_SCHEMA`; `by_place` as in `last_per_key`.
    """
    if by_place:
        stamps = _comparable(codes, stamps)
    # Raw updates of one transaction that exchange keys each delete the key that the other one writes.
    written = present & ((stamps & LOGICAL) != 0) if by_place else present
    last = _in_order(codes, stamps, [*reversed(place), written], last=True)
    return last, _in_order(codes, first_ts, [first_op], last=False)


def _comparable(codes: np.ndarray, stamps: np.ndarray) -> np.ndarray:
    """Commit ts to order each key's changes by; 0 for all changes of a key if one of them has no commit ts."""
    if stamps.all():
        return stamps
    undated = np.zeros(int(codes.max()) + 1, bool)
    undated[codes[stamps == 0]] = True
    return np.where(undated[codes], 0, stamps)


def _codes(key: pa.Table) -> tuple[np.ndarray, int]:
    """A small number for each row, the same for equal keys; and how many keys there are."""
    first, *others = (_encoded(column.combine_chunks()) for column in key.flatten().itercolumns())
    for other in others:
        # Two numbers of rows multiplied fit 64 bits; the product is made small again for the next column.
        first = _encoded(pa.array(first[0] * other[1] + other[0]))
    return first


def _encoded(column: Any) -> tuple[np.ndarray, int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    codes: np.ndarray = encoded.indices.to_numpy().astype(np.int64)
    return codes, len(encoded.dictionary)


def _in_order(codes: np.ndarray, stamps: np.ndarray, ties: Sequence[np.ndarray], *, last: bool) -> np.ndarray:
    """The last or first row of each code, by commit ts; of equal ones the last of `ties` counts most."""
    order = np.lexsort((stamps, codes))
    same = codes[order][1:] == codes[order][:-1]
    if np.any(same & (stamps[order][1:] == stamps[order][:-1])):
        order = np.lexsort((*ties, stamps, codes))
    ends = np.append(~same, True) if last else np.insert(~same, 0, True)
    chosen: np.ndarray = order[ends]
    return chosen


def numbers(rows: pa.Table, name: str) -> np.ndarray:
    """The values of a column."""
    found: np.ndarray = rows[name].to_numpy()
    return found
