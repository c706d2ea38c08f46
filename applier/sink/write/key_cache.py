"""Keeps key columns of data files in memory: files never change, and the next look-up is mostly in the same ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from applier.sink.format.bounds import Ordered
from applier.sink.format.types import Field

FILE_ROWS = 20_000
"""Rows of the largest small file: opening it costs as much as reading thousands of keys."""

SMALL_BYTES = 32 << 20
"""Memory for the keys of small files of all tables."""

LARGE_BYTES = 96 << 20
"""Memory for the keys of large files of all tables."""


@dataclass(frozen=True, slots=True)
class NumberKeys:
    """Keys of a row group for a binary search: each is one number, and no two are equal.

    Attributes:
        ascending: The numbers, lowest first.
        rows: The row of each in its row group; None if the rows have this order too.
    """

    ascending: np.ndarray[Any, np.dtype[np.int64]]
    rows: np.ndarray[Any, np.dtype[np.int32]] | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.ascending.nbytes + (0 if self.rows is None else self.rows.nbytes)


Keys: TypeAlias = "pa.Table | NumberKeys"
"""Keys of a row group; as a table, they are columns to join with."""


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """A row group of a data file.

    Attributes:
        first: Position of its first row in the file.
        bounds: Lower and upper bound of each key column; None in it where it is not known.
        keys: Its keys; None while nobody has looked for one in it.
    """

    first: int
    bounds: tuple[tuple[Ordered | None, Ordered | None], ...]
    keys: Keys | None


class KeyCache:
    """Remembers what is known of the keys of data files, and forgets the files that were not asked for longest.

    Any thread may ask.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[object, ...], tuple[GroupKeys, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, fields: Sequence[Field]) -> tuple[GroupKeys, ...] | None:
        """The row groups of a file; None if it is not remembered."""
        place = _place(path, fields)
        with self._lock:
            found = self._kept.get(place)
            if found is not None:
                self._kept.move_to_end(place)
            return found

    def put(self, path: str, fields: Sequence[Field], groups: tuple[GroupKeys, ...]) -> None:
        """Remember the row groups of a file, in place of what was known of it."""
        with self._lock:
            place = _place(path, fields)
            self._size += _size(groups) - _size(self._kept.pop(place, ()))
            self._kept[place] = groups
            while self._size > self._most:
                self._size -= _size(self._kept.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._size = 0


def _size(groups: Sequence[GroupKeys]) -> int:
    # The object itself and its place in the dictionary take memory too.
    return sum(500 + (0 if group.keys is None else group.keys.nbytes) for group in groups)


def _place(path: str, fields: Sequence[Field]) -> tuple[object, ...]:
    """A column may be renamed, or get a wider type, after its file was written."""
    return (path, *((field.id, field.name, field.arrow) for field in fields))


SMALL, LARGE = KeyCache(SMALL_BYTES), KeyCache(LARGE_BYTES)
"""There is one of each, as their limits are those of the process. Keys of large files never drive out those of small
ones: a quiet feed would pay for a busy one."""
