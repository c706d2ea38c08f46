"""Whether a row is in its table already, and where among the DDL of its table a row belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import Ints
from applier.changefeed.table import TableName
from applier.changefeed.ts import LOGICAL
from applier.order.resent import Passages


@dataclass(frozen=True, slots=True)
class AppliedRows:
    """What the tables of a changefeed hold before a window.

    Attributes:
        applied: Resolved ts that all tables have applied; 0 in a feed in offset order.
        applied_of: The same for tables that are ahead of it.
        covered: In a feed in offset order what tables have beyond the checkpoint, by place.
        passages: In such a feed the DDL messages of each table, behind which rows were sent again.
    """

    applied: int
    applied_of: Mapping[TableName, int]
    covered: Mapping[TableName, AppliedOffsets]
    passages: Passages

    def holds(self, name: TableName, place: TopicPartition, offset: int, ts: int) -> bool:
        """Whether a row is in its table; `ts` is its commit ts, or 0."""
        if 0 < ts <= self.applied_of.get(name, self.applied):
            return True
        covered = self.covered.get(name)
        if covered is not None and covered.holds(place, offset, ts or self.after_ddl(name, place, offset)):
            return True
        passages = self.passages.get(name, {}).get(place) if self.passages else None
        return passages is not None and ts & LOGICAL != 0 and any(offset > at and ts <= upto for at, upto in passages)

    def after_ddl(self, name: TableName, place: TopicPartition, offset: int) -> int:
        """A commit ts for a row that carries none: just above the last DDL of its table that came before it.

        In front of that DDL, the row would change a table that it never belonged to.
        """
        passages = self.passages.get(name, {}).get(place, ()) if self.passages else ()
        return max((upto + 1 for at, upto in passages if offset > at), default=0)

    def of_block(self, name: TableName, place: TopicPartition, offsets: Ints, stamps: Ints) -> tuple[np.ndarray, Ints]:
        """The same for many rows of one partition.

        Args:
            name: Their table.
            place: Their partition.
            offsets: Their offsets.
            stamps: Their commit ts, 0 where a row carries none.

        Returns:
            Which rows are in the table, and the commit ts that places each among the DDL of the table.
        """
        placed = stamps
        if self.passages and not stamps.all():
            behind = [self.after_ddl(name, place, offset) for offset in offsets.tolist()]
            placed = np.where(stamps == 0, np.array(behind, np.int64), stamps)
        again: np.ndarray = (stamps > 0) & (stamps <= self.applied_of.get(name, self.applied))
        if passages := self.passages.get(name, {}).get(place, ()):
            behind_ddl = np.any([(offsets > at) & (stamps <= upto) for at, upto in passages], axis=0)
            again |= behind_ddl & ((stamps & LOGICAL) != 0)
        if name in self.covered:
            pairs = zip(offsets.tolist(), placed.tolist(), strict=True)
            again |= [self.covered[name].holds(place, *pair) for pair in pairs]
        return again, placed
