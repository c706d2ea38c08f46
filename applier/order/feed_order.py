"""The two orders of a changefeed, each with its own rule for the rows that tables already have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.event import Op
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import Ints
from applier.changefeed.table import TableName
from applier.changefeed.ts import LOGICAL
from applier.errors import DecodeError, IncompleteRow
from applier.order.resent import Passage, Passages

_HINT = (
    'set changefeed.order = "offset", where the place in the topic orders changes, or upgrade TiCDC: its Avro deletes '
    "carry a commit ts from v8.5.7 and v26.3.4 on."
)


@dataclass(frozen=True, slots=True)
class FeedOrder:
    """Places the changes of a feed, and determines which rows its tables have before a window.

    Attributes:
        has_watermark: Tables are exact as of a resolved ts, which their stamps name; otherwise stamps say by place
            which rows a table has.
        parts_at_ddl: Each row lies before or after a DDL of its table by its commit ts, and all DDL come; otherwise
            rows may follow a DDL late, and have columns that no DDL shows.
        by_place: As in `last_per_key`; rows and DDL need no commit ts then.
        applied: Resolved ts that all tables have applied; rows at or below it were sent again.
        applied_of: The same for tables that are ahead of it.
        covered: In offset order what tables have beyond the checkpoint, by place.
        passages: In offset order the DDL messages of each table; rows that follow one may be sent again.
    """

    has_watermark: ClassVar[bool]
    parts_at_ddl: ClassVar[bool]
    by_place: ClassVar[bool]
    applied: int = 0
    applied_of: Mapping[TableName, int] = field(default_factory=dict)
    covered: Mapping[TableName, AppliedOffsets] = field(default_factory=dict)
    passages: Passages = field(default_factory=dict)

    def as_of(self, ts: int | None) -> int | None:
        """The resolved ts that tables are exact as of; None in offset order."""
        return ts if self.has_watermark else None

    def placed(self, name: TableName, place: TopicPartition, offsets: Ints, stamps: Ints) -> tuple[np.ndarray, Ints]:
        """Whether its table has each row, and the commit ts that places the row among DDL; a stamp of 0 is none."""
        del place, offsets
        return (stamps > 0) & (stamps <= self.applied_of.get(name, self.applied)), stamps


class ResolvedOrder(FeedOrder):
    """By commit ts, up to the watermark."""

    has_watermark = parts_at_ddl = True
    by_place = False


class OffsetOrder(FeedOrder):
    """By place in the topic, without a watermark; a feed that was in resolved order keeps a resolved ts."""

    has_watermark = parts_at_ddl = False
    by_place = True

    def placed(self, name: TableName, place: TopicPartition, offsets: Ints, stamps: Ints) -> tuple[np.ndarray, Ints]:
        """See `FeedOrder`."""
        (again, _), placed = super().placed(name, place, offsets, _at_most(stamps)), stamps
        if sent := self.passages.get(name, {}).get(place, ()):
            if not stamps.all():
                behind = [_after_ddl(sent, offset) for offset in offsets.tolist()]
                placed = np.where(stamps == 0, np.array(behind, np.int64), stamps)
            behind_ddl = np.any([(offsets > at) & (stamps <= upto) for at, upto in sent], axis=0)
            again |= behind_ddl & ((stamps & LOGICAL) != 0)
        if name in self.covered:
            pairs = zip(offsets.tolist(), placed.tolist(), strict=True)
            again |= [self.covered[name].holds(place, *pair) for pair in pairs]
        return again, placed


def _at_most(stamps: Ints) -> Ints:
    """The highest commit ts that each row may have: some carry only its millisecond."""
    return np.where((stamps == 0) | ((stamps & LOGICAL) != 0), stamps, stamps | LOGICAL)


def _after_ddl(sent: Sequence[Passage], offset: int) -> int:
    """A commit ts for a row that carries none: just above the last DDL of its table that came before it.

    In front of that DDL, the row would change a table that it never belonged to.
    """
    return max((upto + 1 for at, upto in sent if offset > at), default=0)


def undated(name: TableName, op: Op) -> IncompleteRow:
    """The refusal of a row that carries no commit ts, in a feed in resolved order.

    Such a row has no provable place: below the watermark or above it, before or after another change of its key.
    The ts of the change before it in the topic would not do. TiCDC may send `insert@5, delete, insert@9`, restart, and
    send `delete, insert@9` again: the second copy of the delete would follow the living row.
    """
    what = f"{op.one} of table {name} has no commit ts, so its place among the changes of the row is unknown."
    return IncompleteRow(what, _HINT, [name])


def undated_ddl() -> DecodeError:
    """The same for a DDL, which would look like one that was applied long ago."""
    what = "A DDL has no commit ts, so its place among the rows is unknown."
    return DecodeError(what, 'set enable-tidb-extension in the changefeed, or changefeed.order = "offset" here.')


ORDERS = {"resolved": ResolvedOrder(), "offset": OffsetOrder()}
"""The orders by `changefeed.order`."""
