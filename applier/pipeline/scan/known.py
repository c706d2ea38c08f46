"""What is known before a window is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from applier.changefeed.message import TopicPartition
from applier.changefeed.position import DdlId, FeedPosition
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.ddl.late_rows import Lates, lates
from applier.ddl.schema_tracker import Tables
from applier.order.feed_order import FeedOrder
from applier.pipeline.state import State


@dataclass(frozen=True)
class Known:
    """What a changefeed knows before a window is read, as a scan asks for it; nothing of it changes meanwhile.

    Attributes:
        ends: Partitions that TiCDC uses, with the offsets that the source ended at after the window was chosen.
    """

    state: State
    ends: Mapping[TopicPartition, int]

    @staticmethod
    def of(state: State, bounds: Mapping[TopicPartition, OffsetRange], partitions: int | None) -> Known:
        """What the state says; `bounds` are those of the source after the window was chosen."""
        if state.lives is not None:
            state.lives.meet(state.tables)
        return Known(state, {place: bounds[place].end for place in in_use(list(bounds), partitions)})

    @property
    def applied(self) -> int:
        """Resolved ts that all tables have applied."""
        return self.state.resolved_ts

    @cached_property
    def applied_ddl(self) -> frozenset[DdlId]:
        """DDL at exactly that ts that were applied."""
        return frozenset(self.state.ddl.applied)

    @cached_property
    def tables(self) -> Tables:
        """Each table as of `applied`, those that the configuration alone declares included."""
        return self.state.tables.beside(self.state.supplied)

    @cached_property
    def parked(self) -> frozenset[TableName]:
        """Tables whose rows are not applied."""
        return self.state.parked

    @cached_property
    def left_at(self) -> Mapping[TableName, int]:
        """Commit ts at which some of them left the feed: DDL at or below it do not free their names."""
        return {name: at.ts for name, at in self._places.items() if not at.is_loaded and name in self.parked}

    @cached_property
    def exported(self) -> Mapping[TableName, int]:
        """TSO of the export that parked tables get, whether or not anything else shows what they are."""
        return {name: at.version or 0 for name, at in self._places.items() if at.is_loaded and at.ts <= self.applied}

    @property
    def _places(self) -> Mapping[TableName, FeedPosition]:
        known = self.state.completeness
        return {name: found.position for name, found in known.items() if found.position is not None}

    @cached_property
    def misnamed(self) -> frozenset[TableName]:
        """Tables whose names may be those of others upstream, or of none."""
        return frozenset(name for name, found in self.state.completeness.items() if found.is_misnamed)

    @cached_property
    def named(self) -> frozenset[TableName]:
        """Tables that are followed, those included whose CREATE TABLE is yet to come."""
        return frozenset(self.state.completeness)

    @cached_property
    def changed(self) -> Mapping[TableName, int]:
        """As `State.changed_at`, of the tables that a DDL has changed."""
        return {name: at for name in self.state.tables if (at := self.state.changed_at(name))}

    @cached_property
    def counted(self) -> frozenset[TableName]:
        """Tables without a key: each of their changes counts."""
        return frozenset(version.name for version in self.state.versions.values() if not version.shape.is_idempotent)

    @property
    def floors(self) -> Mapping[TableName, int]:
        """Commit ts at or below which rows of a table are in it; below `applied` only in a feed in offset order."""
        return {**self.state.ahead, **{name: ts for name, ts in self.state.loaded.items() if ts > self.applied}}

    def late_in(self, order: FeedOrder) -> Lates:
        """What shows rows that come behind a DDL of an earlier step."""
        names = {name for name, _ in self.state.versions}
        return {} if order.parts_at_ddl else lates(tuple(self.state.ddl.past), self.applied_ddl, names)


def in_use(partitions: Collection[TopicPartition], limit: int | None) -> frozenset[TopicPartition]:
    """Partitions whose resolved ts count: TiCDC never writes beyond `limit`, the changefeed's `partition-num`."""
    return frozenset(partition for partition in partitions if limit is None or partition.partition < limit)
