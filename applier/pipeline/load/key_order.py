"""Proves that no two rows have one key where rows come in the order of their key, as Dumpling mostly writes them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class KeyRange(NamedTuple):
    """The keys of one file.

    Attributes:
        first: The first key; () for a file without rows.
        last: The last one.
        is_rising: Each key is above the one before it.
    """

    first: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()
    is_rising: bool = True

    def then(self, keys: pa.Table) -> KeyRange:
        """The range with the keys of the next rows of its file."""
        if not keys.num_rows:
            return self
        first, last = (tuple(keys.slice(at, 1).to_pylist()[0].values()) for at in (0, keys.num_rows - 1))
        follows = not self.last or self.last < first
        return KeyRange(self.first or first, last, self.is_rising and follows and _is_rising(keys))


def are_apart(ranges: Iterable[KeyRange]) -> bool:
    """Whether no key can be in some files twice."""
    filled = [item for item in ranges if item.first]
    if not all(item.is_rising for item in filled):
        return False
    ordered = sorted(filled, key=lambda item: item.first)
    return all(before.last < after.first for before, after in pairwise(ordered))


def _is_rising(keys: pa.Table) -> bool:
    if keys.num_rows < 2:
        return True
    pairs = keys.num_rows - 1
    rising: Any = pa.repeat(pa.scalar(False), pairs)
    same: Any = pa.repeat(pa.scalar(True), pairs)
    for column in keys.combine_chunks().columns:
        left, right = column.slice(0, pairs), column.slice(1)
        rising = pc.or_(rising, pc.and_(same, pc.less(left, right)))
        same = pc.and_(same, pc.equal(left, right))
    return bool(pc.all(rising).as_py())
