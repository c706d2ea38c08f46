"""The watermark is the minimum resolved ts over the partitions in use."""

from __future__ import annotations

from applier.changefeed.message import TopicPartition
from applier.pipeline.scan.known import in_use
from applier.pipeline.scan.watermarks import advance, silent, watermark

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def test_minimum_over_partitions() -> None:
    """The partition that is furthest behind decides."""
    assert watermark({P0: 30, P1: 10, P2: 20}, {P0, P1, P2}) == 10


def test_none_while_a_partition_is_silent() -> None:
    """A partition without a resolved ts may still hold any row."""
    resolved = {P0: 30}

    assert watermark(resolved, {P0, P1}) is None
    assert silent(resolved, {P0, P1}) == [P1]


def test_none_without_partitions() -> None:
    """No partitions, no watermark."""
    assert watermark({}, set()) is None


def test_regression_changes_nothing() -> None:
    """A resolved ts that falls back is a replay."""
    assert advance({P0: 30}, {P0: 10, P1: 5}) == {P0: 30, P1: 5}


def test_unused_partitions_do_not_count() -> None:
    """Partitions at or above `partition-num` never receive anything."""
    assert in_use([P0, P1, P2], 2) == {P0, P1}
