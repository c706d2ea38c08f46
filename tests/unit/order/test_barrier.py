"""DDL are taken once, in order, and cut the rows of their tables."""

from __future__ import annotations

import numpy as np

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import TableName
from applier.order.barrier import Barrier, cut, in_order, segments

A, B = TableName("d", "a"), TableName("d", "b")


def barrier(ts: int, sql: str, *, partition: int = 0, offset: int = 0, topic: str = "t") -> Barrier:
    """A DDL message."""
    return Barrier(SchemaChange(ts, sql, "d"), topic, Position(partition, offset, 0))


def test_copies_count_once() -> None:
    """TiCDC sends a DDL to every partition, and again after a restart."""
    copies = [barrier(5, "x", partition=p, offset=o) for p, o in ((0, 3), (1, 9), (0, 12))]

    assert [item.position for item in in_order(copies, 0)] == [Position(0, 3, 0)]


def test_order_is_commit_ts() -> None:
    """DDL of different tables may come out of order."""
    found = in_order([barrier(9, "b", offset=1), barrier(5, "a", offset=2)], 0)

    assert [item.change.sql for item in found] == ["a", "b"]


def test_parts_of_a_swap_keep_their_order() -> None:
    """`RENAME a TO t, b TO a, t TO b` comes as three DDL of one commit ts."""
    swap = ["RENAME a TO t", "RENAME b TO a", "RENAME t TO b"]
    found = in_order([barrier(5, sql, offset=4 + place) for place, sql in enumerate(swap)], 0)

    assert [item.change.sql for item in found] == swap


def test_ddl_at_the_applied_ts_is_told_by_identity() -> None:
    """A DDL may follow the watermark of its own commit ts; another of that ts was applied already."""
    first, late = barrier(5, "x"), barrier(5, "y", offset=7)

    assert in_order([first, late], 5, [first.change.id]) == [late]


def test_ddl_below_the_applied_ts_is_a_replay() -> None:
    """Everything below the applied ts was applied with it."""
    assert in_order([barrier(4, "x")], 5) == []


def test_row_at_the_commit_ts_comes_before_the_ddl() -> None:
    """Rows at or below the commit ts of a DDL belong to the segment before it."""
    cuts = cut([(5, [A]), (9, [A, B])])

    def parted(table: TableName, *stamps: int) -> dict[int, list[int]]:
        return {number: rows.tolist() for number, rows in segments(np.array(stamps), cuts.get(table, ()))}

    assert parted(A, 4, 10, 5, 6, 9) == {0: [0, 2], 1: [3, 4], 2: [1]}
    assert parted(B, 9, 10) == {0: [0], 1: [1]}
    assert parted(TableName("d", "c"), 7) == {0: [0]}
