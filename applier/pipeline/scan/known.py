"""What is known before a window is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import OffsetRange
from applier.ddl.late_rows import Lates, PastDdl, lates
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import Lives
from applier.order.feed_order import FeedOrder
from applier.order.resent import Passed
from applier.order.watermark import in_use

if TYPE_CHECKING:
    from applier.pipeline.state import State


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a window is read.

    Attributes:
        resolved: Resolved ts per partition.
        ends: Partitions that TiCDC uses, with the offsets that the source ended at after the window was chosen.
        topics: The topic of each table, where it is known.
        applied: Resolved ts that all tables have applied.
        applied_of: The same of tables that are ahead of it.
        applied_ddl: DDL at exactly that ts that were applied.
        versions: Table versions.
        tables: Each table as of `applied`, those that the configuration alone declares included.
        covered: In a feed in offset order what tables have beyond the checkpoint, by place.
        passed: As `Checkpoint.passed`.
        parked: Tables whose rows are not applied.
        left_at: Commit ts at which some of them left the feed: DDL at or below it do not free their names.
        loaded: TSO of the export that the rows of a table come from.
        misnamed: Tables whose names may be those of others upstream, or of none.
        named: Tables that are followed, those included whose CREATE TABLE is yet to come.
        exported: TSO of the export that parked tables get, whether or not anything else shows what they are.
        changed: As `State.changed_at`, of the tables that a DDL has changed.
        lives: As `State.lives`.
        past: As `DdlProgress.past`.
        splits: As `Limits.splits`.
    """

    resolved: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topics: Mapping[TableName, str]
    applied: int
    applied_of: Mapping[TableName, int]
    applied_ddl: frozenset[DdlId]
    versions: Mapping[tuple[TableName, int], TableVersion]
    tables: Tables
    covered: Mapping[TableName, AppliedOffsets] = field(default_factory=dict)
    passed: Passed = field(default_factory=dict)
    parked: frozenset[TableName] = frozenset()
    left_at: Mapping[TableName, int] = field(default_factory=dict)
    misnamed: frozenset[TableName] = frozenset()
    loaded: Mapping[TableName, int] = field(default_factory=dict)
    named: frozenset[TableName] = frozenset()
    exported: Mapping[TableName, int] = field(default_factory=dict)
    changed: Mapping[TableName, int] = field(default_factory=dict)
    lives: Lives | None = None
    past: Sequence[PastDdl] = ()
    splits: Mapping[TableName, Sequence[int]] = field(default_factory=dict)

    @property
    def counted(self) -> frozenset[TableName]:
        """Tables without a key: each of their changes counts."""
        return frozenset(version.name for version in self.versions.values() if not version.shape.is_idempotent)

    @property
    def floors(self) -> Mapping[TableName, int]:
        """Commit ts at or below which rows of a table are in it; below `applied` only in a feed in offset order."""
        return {**self.applied_of, **{name: ts for name, ts in self.loaded.items() if ts > self.applied}}

    def late_in(self, order: FeedOrder) -> Lates:
        """What shows rows that come behind a DDL of an earlier step."""
        return {} if order.parts_at_ddl else lates(self.past, self.applied_ddl, {name for name, _ in self.versions})

    @staticmethod
    def of(state: State, bounds: Mapping[TopicPartition, OffsetRange], partitions: int | None) -> Known:
        """What the state says; `bounds` are those of the source after the window was chosen."""
        if state.lives is not None:
            state.lives.meet(state.tables)
        return Known(
            resolved=state.checkpoint.resolved,
            ends={place: bounds[place].end for place in in_use(list(bounds), partitions)},
            topics=state.topics,
            applied=state.resolved_ts,
            applied_of=state.ahead,
            covered=state.covered,
            passed=state.checkpoint.passed,
            applied_ddl=frozenset(state.ddl.applied),
            versions=state.versions,
            tables=state.tables.beside(state.supplied),
            parked=state.parked,
            left_at={
                name: found.position.ts
                for name, found in state.completeness.items()
                if found.is_parked and found.position is not None and not found.position.is_loaded
            },
            misnamed=frozenset(name for name, found in state.completeness.items() if found.is_misnamed),
            named=frozenset(state.completeness),
            exported={
                name: found.position.version or 0
                for name, found in state.completeness.items()
                if found.position is not None and found.position.is_loaded and found.position.ts <= state.resolved_ts
            },
            loaded=state.loaded,
            changed={name: at for name in state.tables if (at := state.changed_at(name))},
            lives=state.lives,
            past=tuple(state.ddl.past),
        )
