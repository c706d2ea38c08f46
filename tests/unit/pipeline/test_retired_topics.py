"""A topic whose table was renamed away gets no more watermarks, and holds no other one back."""

from __future__ import annotations

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import Window
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.known import Known
from applier.pipeline.scan.live_topics import mark
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
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
    known = Known({}, ends, {}, 0, {}, frozenset(), {}, Tables())
    return scanner.scan(Window(source.bounds()), known, Stopwatch(), local=True).upto


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


@pytest.mark.parametrize("is_misnamed", [True, False])
def test_a_topic_of_a_name_that_may_be_left_holds_no_later_window(*, is_misnamed: bool) -> None:
    """The table stays here under the name, parked, and its topic may get nothing more."""
    orders, items = TableName("shop", "orders"), TableName("shop", "items")
    places = {name: TopicPartition(f"feed_shop_{name.table}", 0) for name in (orders, items)}
    known = Known(
        resolved={places[orders]: 5, places[items]: 9},
        ends=dict.fromkeys(places.values(), 3),
        topics={name: place.topic for name, place in places.items()},
        applied=8,
        applied_of={},
        applied_ddl=frozenset(),
        versions={},
        tables=Tables(TableVersion(name, 1, ()) for name in places),
        misnamed=frozenset([orders] if is_misnamed else []),
    )
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)

    assert mark(WindowScan(Window({}), dict(known.resolved), template), known) == (9 if is_misnamed else 5)


def test_a_topic_whose_first_message_cannot_be_read_counts() -> None:
    """Nothing of it is left in the window: watermarks of the others would pass over what it holds."""
    database = Database()
    database.create(ORDERS, [Column("id")], ["id"])
    assert _mark(database) == database.ts

    assert _mark(database, "feed_shop_orders") is None
