"""A place in the feed: how far partitions are read, and where a table left the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from applier.changefeed.message import Count, TopicPartition
from applier.changefeed.table import Partitioning, TableName


class Reading(NamedTuple):
    """How far one partition is read.

    Attributes:
        next_offset: The offset to read next: the lowest of anything that is not applied yet.
        resolved_ts: Newest resolved ts that the partition has sent; None before its first.
    """

    next_offset: Count
    resolved_ts: Count | None = None


class DdlId(NamedTuple):
    """The identity of a DDL: TiCDC sends it to every partition, and again after a restart.

    The commit ts alone is not enough: the parts of `RENAME TABLE a TO t, b TO a` share one.
    """

    sql: str
    table: str
    commit_ts: Count = 0


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Where a table left the others: its rows and DDL from here on are missing from it.

    Attributes:
        name: Name of the table at this place; it may have been renamed since.
        ts: DDL of the table below this commit ts are in it, and so are its rows at or below it; rows above that its
            stamp covers are in it as well. 0 in offset order.
        ddl: DDL at exactly `ts` that are in it; in offset order the latest ones.
        readings: Where each partition is to be read from; {} where only the time of `ts` shows it.
        version: Number of its `TableVersion` here; None for a table that begins here, with its CREATE TABLE.
        partitioning: How it is partitioned here.
        passed: In offset order the newest DDL of the table that each partition has had.
        table: `Table.identity` of the Iceberg table that left here. Where it is not known, "@" and the snapshot that it
            must have; "" if neither is.
        is_loaded: The place belongs to the table that an export was loaded into, not to the one that readers see.
    """

    name: TableName
    ts: Count
    ddl: tuple[DdlId, ...] = ()
    readings: Mapping[TopicPartition, Reading] = field(default_factory=dict)
    version: int | None = None
    partitioning: Partitioning | None = None
    passed: Mapping[TopicPartition, Count] = field(default_factory=dict)
    is_loaded: bool = False
    table: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Distinguishes the place from those of all other tables."""
        return self.name, self.ts, tuple(sorted(self.readings.items()))
