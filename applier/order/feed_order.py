"""The two orders of a changefeed, each with its own rule for the rows that tables already have.

To each partition TiCDC sends a DDL after all rows of its tables at or below its commit ts. Rows that come later, at or
below it, were sent before. They belong to the former table, which the DDL has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.event import Op
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import Ints
from applier.changefeed.table import TableName
from applier.changefeed.ts import LOGICAL
from applier.errors import DecodeError, IncompleteRow
from applier.order.barrier import Barrier

_TABLES = 1000
"""Most tables to remember, those with the newest DDL: TiCDC sends again what is minutes old."""

Passed: TypeAlias = Mapping[TableName, Mapping[TopicPartition, int]]
"""As `Checkpoint.passed`."""


class Passage(NamedTuple):
    """A DDL message of a table in a partition.

    Attributes:
        offset: Where it was read; -1 in an earlier step.
        upto: Rows that follow the message, at or below this commit ts, were sent again. This is not certain for a
            commit ts that is only a millisecond: the clock of a MySQL server, which official Canal shows, may be set
            back.
    """

    offset: int
    upto: int


Passages: TypeAlias = Mapping[TableName, Mapping[TopicPartition, Sequence[Passage]]]


def passages(known: Passed, messages: Iterable[tuple[Barrier, Sequence[TableName]]]) -> Passages:
    """The DDL messages of earlier steps and of a window, copies included, each with the tables that it concerns."""
    found = {name: {place: [Passage(-1, upto)] for place, upto in places.items()} for name, places in known.items()}
    for barrier, names in messages:
        place, ts = TopicPartition(barrier.topic, barrier.position.partition), barrier.change.commit_ts
        for name in names:
            found.setdefault(name, {}).setdefault(place, []).append(Passage(barrier.position.offset, ts))
    return found


def passed(found: Passages, next_offsets: Mapping[TopicPartition, int]) -> dict[TableName, dict[TopicPartition, int]]:
    """The DDL messages of this step and of earlier ones that the next step has to know.

    Messages from `next_offsets` on, where the next step begins, are read again, after rows that were held.
    """
    tables = {name: _highest(places, next_offsets) for name, places in found.items()}
    newest = sorted((name for name in tables if tables[name]), key=lambda name: max(tables[name].values()))
    return {name: tables[name] for name in newest[-_TABLES:]}


def _highest(
    places: Mapping[TopicPartition, Sequence[Passage]], next_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    read = {
        place: [item.upto for item in items if item.offset < next_offsets.get(place, 0)]
        for place, items in places.items()
    }
    return {place: max(items) for place, items in read.items() if items}


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
        # The highest commit ts that each row may have: some carry only its millisecond.
        at_most = np.where((stamps == 0) | ((stamps & LOGICAL) != 0), stamps, stamps | LOGICAL)
        (again, _), placed = super().placed(name, place, offsets, at_most), stamps
        if sent := self.passages.get(name, {}).get(place, ()):
            if not stamps.all():
                # A row without a commit ts lies just above the last DDL of its table that came before it: in front of
                # that DDL, it would change a table that it never belonged to.
                every = offsets.tolist()
                behind = [max((upto + 1 for at, upto in sent if offset > at), default=0) for offset in every]
                placed = np.where(stamps == 0, np.array(behind, np.int64), stamps)
            behind_ddl = np.any([(offsets > at) & (stamps <= upto) for at, upto in sent], axis=0)
            again |= behind_ddl & ((stamps & LOGICAL) != 0)
        if name in self.covered:
            pairs = zip(offsets.tolist(), placed.tolist(), strict=True)
            again |= [self.covered[name].holds(place, *pair) for pair in pairs]
        return again, placed


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
