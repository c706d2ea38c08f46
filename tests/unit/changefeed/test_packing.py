"""Packs of work by size."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.packing import packed


@given(st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_packs_hold_all_items_in_order_and_at_most_so_much(sizes: list[int], most: int) -> None:
    """One item that has more is alone, and no two neighbours would fit into one pack."""
    packs = packed(sizes, float, most)

    assert [size for pack in packs for size in pack] == sizes
    assert all(sum(pack) <= most or len(pack) == 1 for pack in packs)
    assert all(sum(first) + second[0] > most for first, second in pairwise(packs))
