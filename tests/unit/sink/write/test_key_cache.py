"""Key columns that stay in memory: bounded, and good for the columns as they are now alone."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from applier.sink.format.types import Field
from applier.sink.write.key_cache import KeyCache

ID = Field(1, "id", "int", pa.int32(), required=True)
ROWS = pa.table({"id": pa.array(range(100), pa.int32())})


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    """The limit is in bytes, over all files."""
    cache = KeyCache(most_bytes=3 * ROWS.nbytes)
    for path in "abc":
        cache.put(path, [ID], ROWS)
    assert cache.get("a", [ID]) is not None
    cache.put("d", [ID], ROWS)

    assert [path for path in "abcd" if cache.get(path, [ID]) is not None] == ["a", "c", "d"]


def test_a_column_with_another_type_or_name_is_read_again() -> None:
    """A rename, or a wider type, after the file was written."""
    cache = KeyCache()
    cache.put("a", [ID], ROWS)

    assert cache.get("a", [replace(ID, name="number")]) is None
    assert cache.get("a", [replace(ID, arrow=pa.int64())]) is None


def test_a_file_that_is_put_again_counts_once() -> None:
    """And a slice keeps none of the rows that it was cut from."""
    cache = KeyCache(most_bytes=ROWS.nbytes)
    for _ in range(5):
        cache.put("a", [ID], pa.concat_tables([ROWS] * 50).combine_chunks().slice(100, 100))

    found = cache.get("a", [ID])
    assert found is not None
    assert found.get_total_buffer_size() <= 2 * ROWS.nbytes
