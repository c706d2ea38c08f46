"""Marks the rows that TiCDC sends again behind a DDL message, for feeds in offset order.

To each partition TiCDC sends a DDL after all rows of its tables at or below its commit ts. What comes later at or below
it was sent before: it belongs to the table as it was, and the DDL has made of it what it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.order.barrier import Barrier

_TABLES = 1000
"""As many are remembered, those whose DDL are the newest: TiCDC sends again what is minutes old."""

Passed: TypeAlias = Mapping[TableName, Mapping[TopicPartition, int]]
"""As `Checkpoint.passed`."""


class Passage(NamedTuple):
    """A DDL message of a table in a partition.

    Attributes:
        offset: Where it was read; -1 in an earlier step. Rows behind it
        upto: that are at or below this commit ts were sent again. Of those whose commit ts is only a millisecond that
            is not certain: the clock of a MySQL server, which official Canal shows, may be set back.
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
    """What the next step knows of the DDL messages of this step and of those before.

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
