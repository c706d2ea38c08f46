"""How much a consumer fetches ahead."""

from __future__ import annotations

import pytest

from applier.consume.kafka.client import fetch_size


@pytest.mark.parametrize("partitions", [1, 2, 8, 16, 17, 64, 100, 1_000])
def test_what_is_fetched_of_all_partitions_fits_into_memory(partitions: int) -> None:
    """Few have much each, or a third of the reading would be asking for more."""
    assert partitions * fetch_size(partitions) <= 64 * 2**20
    assert fetch_size(partitions) <= fetch_size(1) == 4 * 2**20


def test_a_partition_more_seldom_needs_another_consumer() -> None:
    """What was fetched is lost with the consumer before it."""
    assert len({fetch_size(partitions) for partitions in range(1_025)}) == 7
    assert fetch_size(100_000) == fetch_size(1_024)
