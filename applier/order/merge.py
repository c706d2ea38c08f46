"""Merges the reduced changes of several tasks into one batch a table: a key may come from several partitions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch, Changes, KeylessBatch
from applier.changefeed.event import Op
from applier.changefeed.table import Keyed, Keyless, TableShape
from applier.changefeed.ts import LOGICAL
from applier.order.bags import Image, changes, images
from applier.order.reduce import data_of


def merge(parts: Sequence[pa.Table], shape: TableShape, *, by_place: bool = False, exact: bool = True) -> Changes:
    """The changes that all parts of a table together make; see `merge_keyed` for the arguments."""
    match shape:
        case Keyed(key):
            return merge_keyed(parts, key, by_place=by_place, exact=exact)
        case Keyless():
            return merge_bag(parts, by_place=by_place)


def merge_keyed(
    parts: Sequence[pa.Table], key: Sequence[str], *, by_place: bool = False, exact: bool = True
) -> ChangeBatch:
    """The last change of each key over all parts.

    Args:
        parts: Tables of `KEYED_SCHEMA` and data columns, at most one row per key in each.
        key: Names of the key columns.
        by_place: As in `KeyedGroup`.
        exact: A key that begins with an INSERT is not in the table. False for rows sent again, and for a table that was
            loaded while the feed ran.

    Returns:
        The batch; if it is exact, a key that came and went inside it is in neither of its tables.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    if len(parts) > 1:
        rows = last_per_key(rows, key, by_place=by_place)
    first, present = _numbers(rows, "\0first_op"), _numbers(rows, "\0present")
    fresh = first == Op.INSERT
    gone = ~present & ~fresh if exact else ~present
    return ChangeBatch(
        upserts=data_of(rows.filter(pa.array(present))),
        fresh=cast("pa.BooleanArray", pa.array(fresh[present])),
        deletes=data_of(rows.filter(pa.array(gone))).select(list(key)),
        may_be_new=int(np.count_nonzero(first == Op.UPSERT)),
    )


def merge_bag(parts: Sequence[pa.Table], *, by_place: bool = False) -> KeylessBatch:
    """The rows to add and to remove, without changes sent twice and rows that came and went.

    Args:
        parts: Tables of `KEYLESS_SCHEMA` and data columns, each with rows of one topic; an update is two rows in turn.
        by_place: As in `KeyedGroup`.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    data = data_of(rows)
    found = images(rows)
    net: Counter[Image] = Counter()
    for (present, image), count in _counted(parts, rows, found, by_place=by_place):
        net[image] += count if present else -count
    place = {image: row for row, image in enumerate(found)}
    added = [place[image] for image, count in net.items() for _ in range(count)]
    removed = [place[image] for image, count in net.items() for _ in range(-count)]
    return KeylessBatch(
        inserts=data.take(pa.array(added, pa.int64())), deletes=data.take(pa.array(removed, pa.int64()))
    )


def _counted(
    parts: Sequence[pa.Table], rows: pa.Table, found: Sequence[Image], *, by_place: bool
) -> Iterator[tuple[tuple[bool, Image], int]]:
    """The rows that each different change of a commit ts takes away and adds, and how often it was made.

    Content does not distinguish two equal changes of one transaction from one that was sent twice. Place does. Whatever
    dispatcher chooses the partition, it looks at the values, the commit ts and the table: equal changes go to one
    partition, until a restart sends all of them again, there or elsewhere. So the run in which a change comes most
    often has all of them. The count leaves out what its partition had resolved before.

    Of a commit ts that is only a millisecond that holds in each partition alone: several transactions may share it.
    """
    source = np.repeat(np.arange(len(parts)), [len(part) for part in parts]).tolist()
    names = ("\0ts", "\0replay", "\0partition", "\0run", "\0present")
    places = zip(source, *(rows[name].to_pylist() for name in names), strict=True)
    runs: defaultdict[tuple[Any, ...], Counter[tuple[int, int, int]]] = defaultdict(Counter)
    # The halves of an update count together: two rows may become one, and which partition they are in shows the other.
    for place, image, change in zip(places, found, changes(rows, found, source), strict=True):
        number, ts, replay, partition, run, present = place
        if not replay:
            within = (number, partition) if by_place and not ts & LOGICAL else ()
            runs[ts, within, change, present, image][number, partition, run] += 1
    for (*_, present, image), counts in runs.items():
        yield (present, image), max(counts.values())


def last_per_key(rows: pa.Table, key: Sequence[str], *, by_place: bool = False) -> pa.Table:
    """The last change of each key, with commit ts and kind of the first one.

    Args:
        rows: `KEYED_SCHEMA` and other columns, in any order.
        key: Names of the key columns among them.
        by_place: As in `KeyedGroup`.
    """
    codes, distinct = _codes(rows.select(key))
    if distinct == len(rows):
        return rows
    several = np.flatnonzero(np.bincount(codes)[codes] > 1)
    codes, rest = codes[several], rows.take(several) if len(several) < len(rows) else rows
    place = [_numbers(rest, name) for name in ("\0index", "\0offset", "\0partition")]
    stamps, present = _numbers(rest, "\0ts"), _numbers(rest, "\0present")
    if by_place:
        stamps = _comparable(codes, stamps)
    # Raw updates of one transaction that exchange keys each delete the key that the other one writes.
    written = present & ((stamps & LOGICAL) != 0) if by_place else present
    last = _in_order(codes, stamps, [*place, written], last=True)
    first = _in_order(codes, _numbers(rest, "\0first_ts"), [_numbers(rest, "\0first_op")], last=False)
    chosen = several[last]
    for name in ("\0first_ts", "\0first_op"):
        values = _numbers(rows, name).copy()
        values[chosen] = _numbers(rest, name)[first]
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    kept = np.ones(len(rows), bool)
    kept[several] = False
    kept[chosen] = True
    return rows.filter(pa.array(kept))


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


def _numbers(rows: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = rows[name].to_numpy()
    return numbers
