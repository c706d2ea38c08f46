"""Behind the message of a DDL, rows of before it were sent again."""

from __future__ import annotations

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position, TopicPartition
from applier.changefeed.table import TableName
from applier.order.barrier import Barrier
from applier.order.feed_order import Passage, passages, passed

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
P0, P1 = TopicPartition("feed", 0), TopicPartition("feed", 1)
EXACT = (7 << 18) + 5


def barrier(ts: int, place: TopicPartition, offset: int) -> Barrier:
    """The message of a DDL."""
    change = SchemaChange(ts, "ALTER TABLE orders ADD c INT", "shop", None, None)
    return Barrier(change, place.topic, Position(place.partition, offset, 0))


def test_each_partition_has_a_ddl_where_it_was_read() -> None:
    """Messages of earlier steps count from the beginning, those of the window from their offset."""
    messages = [(barrier(EXACT, P0, 40), [ORDERS, ITEMS]), (barrier(EXACT, P1, 10), [ORDERS])]

    found = passages({ORDERS: {P0: 3}}, messages)

    assert found == {
        ORDERS: {P0: [Passage(-1, 3), Passage(40, EXACT)], P1: [Passage(10, EXACT)]},
        ITEMS: {P0: [Passage(40, EXACT)]},
    }


def test_what_is_read_again_is_not_passed() -> None:
    """Rows before the message waited for their schema: the next step begins with them, and meets it again."""
    found = passages({ORDERS: {P0: 3}}, [(barrier(EXACT, P0, 40), [ORDERS, ITEMS]), (barrier(EXACT, P1, 9), [ITEMS])])

    assert passed(found, {P0: 40, P1: 10}) == {ORDERS: {P0: 3}, ITEMS: {P1: EXACT}}
    assert passed(found, {P0: 41, P1: 10}) == {ORDERS: {P0: EXACT}, ITEMS: {P0: EXACT, P1: EXACT}}


def test_the_newest_tables_are_remembered() -> None:
    """A feed that makes tables for ever keeps a checkpoint of the same size."""
    names = [TableName("shop", f"t{number}") for number in range(1_500)]

    found = passed({name: {P0: [Passage(-1, number + 1)]} for number, name in enumerate(names)}, {P0: 1})

    assert set(found) == set(names[-1_000:])
