"""A topic whose table was renamed away gets no more watermarks, and holds no other one back."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position, TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import Window
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.order.barrier import Barrier
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.watermarks import mark
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.lab import Memory
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name

ORDERS, ITEMS, ARCHIVE, BETWEEN = (Name("shop", table) for table in ("orders", "items", "archive", "between"))


def _mark(database: Database, unreadable: str = "") -> int | None:
    """The watermark once all that TiCDC has sent was read, each table in a topic of its own; or up to a message."""
    feed = Changefeed(database, Habits(partitions=1, resolve=1.0, topics=True))
    source = Memory(
        [
            record | {"value": b"?"} if (record["topic"], record["offset"]) == (unreadable, 0) else record
            for record in feed.send()
        ]
    )
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=False)
    ends = {place: span.end for place, span in source.bounds().items()}
    known = known_at()
    return scanner.scan(Window(source.bounds()), known, ends, Stopwatch(), where=Where.HERE).upto


@pytest.mark.parametrize("rows", [0, 1])
def test_the_topic_of_the_only_table_is_left_when_the_table_is_renamed(rows: int) -> None:
    """Whether rows came under the new name or not, the feed goes on."""
    database = Database()
    database.create(ORDERS, [Column("id")], ["id"])
    database.insert(ORDERS, {"id": 1})
    database.rename((ORDERS, ARCHIVE))
    for key in range(rows):
        database.insert(ARCHIVE, {"id": 10 + key})

    assert _mark(database) == database.ts


def test_the_topic_of_the_name_between_is_left_when_all_tables_trade_names() -> None:
    """It gets the last part of the statement, and never a watermark."""
    database = Database()
    for name in (ORDERS, ITEMS):
        database.create(name, [Column("id")], ["id"])
    database.rename((ORDERS, BETWEEN), (ITEMS, ORDERS), (BETWEEN, ITEMS))
    database.insert(ITEMS, {"id": 1})

    assert _mark(database) == database.ts


def test_the_topic_of_a_table_that_renames_of_open_order_moved_is_left() -> None:
    """Whatever their order is, the table has another name behind them."""
    database = Database()
    database.create(ORDERS, [Column("id")], ["id"])
    database.create(ITEMS, [Column("id")], ["id"])
    database.insert(ORDERS, {"id": 1})
    database.rename((ORDERS, BETWEEN), (BETWEEN, ARCHIVE))
    database.insert(ITEMS, {"id": 1})

    assert _mark(database) == database.ts


_FOLLOWED, _LEFT = TableName("shop", "items"), TableName("shop", "orders")
_PLACES = {name: TopicPartition(f"feed_shop_{name.table}", 0) for name in (_FOLLOWED, _LEFT)}
_TEMPLATE = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)


_ENDS = dict.fromkeys(_PLACES.values(), 3)


def _known(**fields: Any) -> State:
    return known_at(
        8,
        fields.pop("tables", None) or Tables(TableVersion(name, 1, ()) for name in _PLACES),
        resolved={_PLACES[_LEFT]: 5, _PLACES[_FOLLOWED]: 9},
        topics={name: place.topic for name, place in _PLACES.items()},
        **fields,
    )


@pytest.mark.parametrize("misnamed", [frozenset[TableName](), frozenset([_LEFT])])
def test_a_topic_of_a_name_that_may_be_left_holds_no_later_window(misnamed: frozenset[TableName]) -> None:
    """The table stays here under the name, parked, and its topic may get nothing more."""
    found = WindowScan(Window({}), dict(_known().checkpoint.resolved), _TEMPLATE, _ENDS)
    completeness = {name: Completeness(Reason(Why.DDL), is_misnamed=True) for name in misnamed}

    assert mark(found, _known(completeness=completeness)) == (9 if misnamed else 5)


@pytest.mark.parametrize("sqls", [[], ["DROP TABLE orders"], ["DROP TABLE orders", "RENAME TABLE parts TO orders"]])
def test_the_topic_of_a_table_that_was_dropped_holds_nothing_when_all_of_it_is_sent_again(sqls: list[str]) -> None:
    """Rows from before the DROP show the table, but it is not there; one that takes its name later is."""
    barriers = [
        Barrier(SchemaChange(ts, sql, "shop"), "feed_shop_parts" if "parts" in sql else _PLACES[_LEFT].topic, position)
        for ts, sql, position in zip((7, 10), sqls, (Position(0, 0, 0), Position(0, 1, 0)), strict=False)
    ]
    resolved = _known().checkpoint.resolved
    found = WindowScan(Window({}), dict(resolved), _TEMPLATE, _ENDS, results=TaskResult(barriers=barriers))
    found.topics[_LEFT] = _PLACES[_LEFT].topic
    known = _known(tables=Tables([TableVersion(_FOLLOWED, 1, ())]))

    assert mark(found, known) == (9 if len(sqls) == 1 else 5)


def test_a_topic_whose_first_message_cannot_be_read_counts() -> None:
    """Nothing of it is left in the window: watermarks of the others would pass over what it holds."""
    database = Database()
    database.create(ORDERS, [Column("id")], ["id"])
    assert _mark(database) == database.ts

    assert _mark(database, "feed_shop_orders") is None
