"""Marks the rows that TiCDC sends again behind a DDL message, for feeds in offset order.

To each partition TiCDC sends a DDL after all rows of its tables at or below its commit ts. Rows that come later, at or
below it, were sent before. They belong to the former table, which the DDL has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
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
