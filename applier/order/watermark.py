"""Computes the watermark: the lowest resolved ts of all partitions in use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from applier.changefeed.message import TopicPartition


def advance(known: Mapping[TopicPartition, int], seen: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Resolved ts per partition after `seen`; a smaller one is a replay after a restart of TiCDC."""
    merged = dict(known)
    for partition, resolved_ts in seen.items():
        merged[partition] = max(resolved_ts, merged.get(partition, 0))
    return merged


def in_use(partitions: Collection[TopicPartition], limit: int | None) -> frozenset[TopicPartition]:
    """Partitions whose resolved ts count: TiCDC never writes beyond `limit`, the changefeed's `partition-num`."""
    return frozenset(partition for partition in partitions if limit is None or partition.partition < limit)


def watermark(resolved: Mapping[TopicPartition, int], used: Collection[TopicPartition]) -> int | None:
    """The smallest resolved ts over the partitions in use, or None until each of them has one."""
    if not used or any(partition not in resolved for partition in used):
        return None
    return min(resolved[partition] for partition in used)


def silent(resolved: Mapping[TopicPartition, int], used: Collection[TopicPartition]) -> list[TopicPartition]:
    """Partitions in use that never sent a resolved ts, in order."""
    return sorted(partition for partition in used if partition not in resolved)
