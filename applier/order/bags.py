"""Rows of tables without a key, as what is equal: images, and the changes that they are the halves of.

A bag is parted by its images, so that what takes a row away meets what added an equal one. The two halves of an update
may then part; each keeps a hash of both, as they are counted together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias, cast

import pyarrow as pa

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


def changes(rows: pa.Table, found: Sequence[Image], source: Iterable[int]) -> list[Hashable]:
    """What the change of each row is known by, the same for equal changes.

    Args:
        rows: Rows of some parts, as `hashed` left all of them, or with both rows of each update in turn.
        found: Their images.
        source: Of each row the number of its part.
    """
    if _CHANGE in rows.column_names:
        return cast("list[Hashable]", rows[_CHANGE].to_pylist())
    return list(_changes(rows, found, source))


def _changes(rows: pa.Table, found: Sequence[Image], source: Iterable[int]) -> Iterator[Hashable]:
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
