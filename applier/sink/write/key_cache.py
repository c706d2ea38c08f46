"""Keeps key columns of small data files in memory: most look-ups are in files that this process has just written."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from applier.sink.format.types import Field

FILE_ROWS = 20_000
"""Rows of the largest file that is kept: opening a small file costs as much as reading thousands of keys."""

MOST_BYTES = 64 << 20
"""Memory for the key columns of all tables."""


class KeyCache:
    """Remembers the key columns of data files, which never change, and forgets those that were not asked for longest.

    The columns have the form in which a look-up compares them. Any thread may ask.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, fields: Sequence[Field]) -> pa.Table | None:
        """The columns of a file; None if they are not remembered."""
        place = _place(path, fields)
        with self._lock:
            found = self._kept.get(place)
            if found is not None:
                self._kept.move_to_end(place)
            return found

    def put(self, path: str, fields: Sequence[Field], columns: pa.Table) -> None:
        """Remember the columns of a file of at most `FILE_ROWS` rows."""
        # A slice would keep all rows that it was cut from; and what a file is read as allows NULL in each column.
        own = pa.Table.from_arrays(columns.take(np.arange(columns.num_rows)).columns, columns.column_names)
        with self._lock:
            place = _place(path, fields)
            if (before := self._kept.pop(place, None)) is not None:
                self._size -= before.nbytes
            self._kept[place] = own
            self._size += own.nbytes
            while self._size > self._most:
                self._size -= self._kept.popitem(last=False)[1].nbytes


def _place(path: str, fields: Sequence[Field]) -> tuple[object, ...]:
    """A column may be renamed, or get a wider type, after its file was written."""
    return (path, *((field.id, field.name, field.arrow) for field in fields))


KEYS = KeyCache()
"""There is one, as its limit is that of the process."""
