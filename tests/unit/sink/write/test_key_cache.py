"""Keys that stay in memory: bounded, and good for the columns as they are now alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from applier.sink.format.types import Field
from applier.sink.write.key_cache import GroupKeys, KeyCache, NumberKeys

ID = Field(1, "id", "int", pa.int32(), required=True)
GROUPS = (GroupKeys(0, ((None, None),), NumberKeys(np.arange(1000), None)),)


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    """The limit is in bytes, over all files."""
    cache = KeyCache(most_bytes=3 * 9_000)
    for path in "abc":
        cache.put(path, [ID], GROUPS)
    assert cache.get("a", [ID]) is not None
    cache.put("d", [ID], GROUPS)

    assert [path for path in "abcd" if cache.get(path, [ID]) is not None] == ["a", "c", "d"]


def test_rows_of_sorted_keys_count_too() -> None:
    """They take half as much again."""
    cache = KeyCache(most_bytes=12_600)
    cache.put("a", [ID], (GroupKeys(0, ((None, None),), NumberKeys(np.arange(1000), np.arange(1000, dtype=np.int32))),))
    assert cache.get("a", [ID]) is not None
    cache.put("b", [ID], (GroupKeys(0, ((None, None),), None),))

    assert (cache.get("a", [ID]), cache.get("b", [ID])) == (None, (GroupKeys(0, ((None, None),), None),))


def test_a_column_with_another_type_or_name_is_read_again() -> None:
    """A rename, or a wider type, after the file was written."""
    cache = KeyCache(most_bytes=1 << 20)
    cache.put("a", [ID], GROUPS)

    assert cache.get("a", [replace(ID, name="number")]) is None
    assert cache.get("a", [replace(ID, arrow=pa.int64())]) is None


def test_a_file_that_is_put_again_counts_once() -> None:
    """More of its row groups may have been read since."""
    cache = KeyCache(most_bytes=9_000)
    for _ in range(5):
        cache.put("a", [ID], GROUPS)

    assert cache.get("a", [ID]) == GROUPS
    cache.clear()
    assert cache.get("a", [ID]) is None
