"""DDL: copies dropped, put in order, and the segments they cut the rows of a table into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.position import DdlId
from applier.changefeed.row_block import Ints
from applier.changefeed.table import TableName


@dataclass(frozen=True, slots=True)
class Barrier:
    """One DDL at its place: after all rows at or below its commit ts, before all rows above it."""

    change: SchemaChange
    topic: str
    position: Position


def in_order(barriers: Iterable[Barrier], applied_ts: int, applied: Iterable[DdlId] = ()) -> list[Barrier]:
    """The DDL that are still to be applied, each once, by commit ts and then by place in the partition.

    Args:
        barriers: All DDL messages met, copies included.
        applied_ts: Resolved ts that is applied. A DDL below it was applied with it.
        applied: DDL at exactly `applied_ts` that were applied; others of that ts may still follow their watermark.
    """
    done = set(applied)
    seen: dict[DdlId, Barrier] = {}
    for barrier in sorted(barriers, key=lambda item: (item.topic, item.position)):
        if barrier.change.commit_ts >= applied_ts and barrier.change.id not in done:
            seen.setdefault(barrier.change.id, barrier)
    # Copies of one partition are in order of sending; the first partition's are taken, so the parts of a swap stay so.
    return sorted(seen.values(), key=lambda item: (item.change.commit_ts, item.position.offset, item.position.place))


Cuts = Mapping[TableName, Sequence[int]]
"""Per table the sorted commit ts of the DDL that concern it."""


def cut(touched: Iterable[tuple[int, Sequence[TableName]]]) -> dict[TableName, list[int]]:
    """Cuts from pairs of a DDL's commit ts and the tables it concerns."""
    cuts: dict[TableName, set[int]] = {}
    for commit_ts, names in touched:
        for name in names:
            cuts.setdefault(name, set()).add(commit_ts)
    return {name: sorted(points) for name, points in cuts.items()}


def segments(commit_ts: Ints, cuts: Sequence[int]) -> Iterator[tuple[int, Ints]]:
    """Numbers of segments, and of the rows in each; a row at the commit ts of a DDL is before it."""
    if not cuts:
        yield 0, np.arange(len(commit_ts))
        return
    numbers = np.searchsorted(np.asarray(cuts), commit_ts, side="left")
    for number in np.unique(numbers).tolist():
        yield number, np.flatnonzero(numbers == number)
