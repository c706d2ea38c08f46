"""Merges the reduced changes of several tasks into one batch a table: a key may come from several partitions.

Rows without a key are a bag, which is parted by its images, so that what takes a row away meets what added an equal
one. The two halves of an update may then part; each keeps a hash of both, as they are counted together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch, Changes, KeylessBatch, Provenance
from applier.changefeed.event import Op
from applier.changefeed.table import Keyed, Keyless, TableShape
from applier.changefeed.ts import LOGICAL
from applier.order.latest import last_per_key, numbers
from applier.order.reduce import data_of

IMAGE = "\0image"
"""A hash of the row: the column that a bag is parted by."""

_CHANGE = "\0change"
"""A hash of the change that the row belongs to: all of its rows, each with whether it is added. Two that had one hash
would count as one change sent twice, and a row would be lost: it has 128 bits."""

_PLACE = ("\0partition", "\0offset", "\0index")

Image: TypeAlias = tuple[str, ...]
"""A row, as something to look up."""


def images(rows: pa.Table) -> list[Image]:
    """The rows in their own columns; floating point numbers are equal if their text is."""
    return [tuple(map(repr, row.values())) for row in data_of(rows).to_pylist()]


def _changes(rows: pa.Table, found: Sequence[Image], source: Iterable[int]) -> Iterator[Hashable]:
    """What the change of each row is known by, the same for equal changes; both rows of an update lie in turn.

    `found` are the images of the rows, and `source` has of each the number of its part.
    """
    places = zip(*(rows[name].to_pylist() for name in _PLACE), source, strict=True)
    for _, halves in groupby(zip(places, rows["\0present"].to_pylist(), found, strict=True), itemgetter(0)):
        change = tuple(half[1:] for half in halves)
        for _ in change:
            yield change


def hashed(rows: pa.Table) -> pa.Table:
    """The rows with what parts them; of equal ones in columns of equal types it is equal, in any process."""
    found = images(rows)
    parted_by = [int.from_bytes(_hash(image, 8), signed=True) for image in found]
    counted_by = [_hash(change, 16) for change in _changes(rows, found, [0] * len(found))]
    rows = rows.append_column(IMAGE, pa.array(parted_by, pa.int64()))
    return rows.append_column(_CHANGE, pa.array(counted_by, pa.binary(16)))


def _hash(value: Hashable, size: int) -> bytes:
    return blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=size).digest()


def together(rows: pa.Table) -> pa.Table:
    """All rows of a part as they were before they were parted: both rows of an update in turn."""
    rows = rows.drop_columns([name for name in (IMAGE, _CHANGE) if name in rows.column_names])
    return rows.sort_by([(name, "ascending") for name in (*_PLACE, "\0present")])


def merge(
    parts: Sequence[pa.Table],
    shape: TableShape,
    table: str = "",
    *,
    by_place: bool = False,
    exact: bool = True,
    is_soft: bool = False,
) -> Changes:
    """The changes that all parts of a table, of this upstream name, together make; see `merge_keyed`."""
    match shape:
        case Keyed(key):
            return merge_keyed(parts, key, table, by_place=by_place, exact=exact, is_soft=is_soft)
        case Keyless():
            return merge_bag(parts, table, by_place=by_place)


def merge_keyed(
    parts: Sequence[pa.Table],
    key: Sequence[str],
    table: str = "",
    *,
    by_place: bool = False,
    exact: bool = True,
    is_soft: bool = False,
) -> ChangeBatch:
    """The last change of each key over all parts.

    Args:
        parts: Tables of `KEYED_SCHEMA` and data columns, at most one row per key in each.
        key: Names of the key columns.
        table: Upstream name of the table.
        by_place: As in `last_per_key`.
        exact: A key that begins with an INSERT is not in the table. False for rows sent again, and for a table that was
            loaded while the feed ran.
        is_soft: Deleted rows stay, with the images that `parts` have of them.

    Returns:
        The batch; if it is exact, a key that came and went inside it is in neither of its tables, unless it stays.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    if len(parts) > 1:
        rows = last_per_key(rows, key, by_place=by_place)
    first, present = numbers(rows, "\0first_op"), numbers(rows, "\0present")
    fresh = first == Op.INSERT
    kept = present | is_soft
    gone = ~kept & ~fresh if exact else ~kept
    new = rows.filter(pa.array(kept))
    return ChangeBatch(
        upserts=data_of(new),
        fresh=cast("pa.BooleanArray", pa.array(fresh[kept])),
        deletes=data_of(rows.filter(pa.array(gone))).select(list(key)),
        may_be_new=int(np.count_nonzero(first == Op.UPSERT)),
        made=Provenance(table, new["\0ts"], new["\0op"]),
        is_soft=is_soft,
    )


def merge_bag(parts: Sequence[pa.Table], table: str = "", *, by_place: bool = False) -> KeylessBatch:
    """The rows to add and to remove, without changes sent twice and rows that came and went.

    Args:
        parts: Tables of `KEYLESS_SCHEMA` and data columns, each with rows of one topic; an update is two rows in turn.
        table: Upstream name of the table.
        by_place: As in `last_per_key`.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    data = data_of(rows)
    found = images(rows)
    net: Counter[Image] = Counter()
    for (present, image), count in _counted(parts, rows, found, by_place=by_place):
        net[image] += count if present else -count
    # Of equal rows the newest that was added: what stays is as old as that.
    by_age = np.lexsort((numbers(rows, "\0ts"), numbers(rows, "\0present"))).tolist()
    place = {found[row]: row for row in by_age}
    added = pa.array([place[image] for image, count in net.items() for _ in range(count)], pa.int64())
    removed = pa.array([place[image] for image, count in net.items() for _ in range(-count)], pa.int64())
    made = Provenance(table, rows["\0ts"].take(added), rows["\0op"].take(added))
    return KeylessBatch(data.take(added), data.take(removed), made)


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
    is_hashed = _CHANGE in rows.column_names
    changes: Iterable[Hashable] = rows[_CHANGE].to_pylist() if is_hashed else _changes(rows, found, source)
    # The halves of an update count together: two rows may become one, and which partition they are in shows the other.
    for place, image, change in zip(places, found, changes, strict=True):
        number, ts, replay, partition, run, present = place
        if not replay:
            within = (number, partition) if by_place and not ts & LOGICAL else ()
            runs[ts, within, change, present, image][number, partition, run] += 1
    for (*_, present, image), counts in runs.items():
        yield (present, image), max(counts.values())
