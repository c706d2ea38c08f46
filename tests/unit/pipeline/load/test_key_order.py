"""What the order of keys proves about keys that come twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.pipeline.load.key_order import KeyRange, are_apart


def ranged(*blocks: Sequence[tuple[Any, ...]]) -> KeyRange:
    """The keys of a file that is read in blocks."""
    found = KeyRange()
    for rows in blocks:
        columns = [pa.array([row[at] for row in rows]) for at in range(len(rows[0]) if rows else 0)]
        found = found.then(pa.table(columns, names=[f"k{at}" for at in range(len(columns))]) if rows else pa.table({}))
    return found


_KEYS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=8)


@given(st.lists(st.lists(_KEYS, max_size=3), max_size=3))
def test_what_is_apart_has_no_key_twice(files: list[list[list[tuple[int, str]]]]) -> None:
    """Whatever the blocks of a file are."""
    keys = [key for blocks in files for rows in blocks for key in rows]
    if are_apart(ranged(*blocks) for blocks in files):
        assert len(set(keys)) == len(keys)


@given(st.sets(st.tuples(st.integers(0, 50), st.sampled_from("abc")), min_size=1), st.integers(1, 7))
def test_files_in_order_are_apart(keys: set[tuple[int, str]], size: int) -> None:
    """In any order of the files."""
    rows = sorted(keys)
    files = [ranged(rows[at : at + size]) for at in range(0, len(rows), size)]
    assert are_apart(files[::-1])


@pytest.mark.parametrize(
    "files",
    [
        [ranged([(1,), (1,)])],
        [ranged([(1,), (2,)], [(2,), (3,)])],
        [ranged([(2,), (1,)])],
        [ranged([(1,), (5,)]), ranged([(3,), (4,)])],
        [ranged([(1,), (2,)]), ranged([(2,), (3,)])],
        [ranged([(1, "b"), (1, "a")])],
    ],
)
def test_what_may_come_twice_is_not_apart(files: list[KeyRange]) -> None:
    """Within a block, between two, and between files; also what is only out of order."""
    assert not are_apart(files)
