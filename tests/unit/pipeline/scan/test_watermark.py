"""The watermark is the minimum resolved ts over the partitions in use."""

from __future__ import annotations

from applier.changefeed.message import TopicPartition
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange, Window
from applier.decode.options import DecoderOptions
from applier.pipeline.next_step import in_use
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.watermarks import mark
from applier.pipeline.scan.window_scan import WindowScan
from tests.known import known_at

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def _scan(resolved: dict[TopicPartition, int], *used: TopicPartition) -> WindowScan:
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    return WindowScan(Window({}), resolved, job, dict.fromkeys(used, 3))


def test_minimum_over_partitions() -> None:
    """The partition that is furthest behind decides."""
    assert mark(_scan({P0: 30, P1: 10, P2: 20}, P0, P1, P2), known_at()) == 10


def test_none_while_a_partition_is_silent() -> None:
    """A partition without a resolved ts may still hold any row."""
    found = _scan({P0: 30}, P0, P1)

    assert mark(found, known_at()) is None
    assert found.silent == [P1]


def test_none_without_partitions() -> None:
    """No partitions, no watermark."""
    assert mark(_scan({}), known_at()) is None


def test_regression_changes_nothing() -> None:
    """A resolved ts that falls back is a replay."""
    found = _scan({P0: 30})

    found.resolve({P0: 10, P1: 5})

    assert found.resolved == {P0: 30, P1: 5}


def test_unused_partitions_do_not_count() -> None:
    """Partitions at or above `partition-num` never receive anything."""
    assert in_use(dict.fromkeys((P0, P1, P2), OffsetRange(0, 3)), 2) == {P0: 3, P1: 3}
