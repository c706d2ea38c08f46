"""A window with many messages that cannot be used: each is set aside, in a few passes whatever their number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, TopicPartition, by_place
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange, Window
from applier.consume.runner import Ran
from applier.consume.source import KeepingPass, R
from applier.decode.options import DecoderOptions
from applier.errors import AmbiguousName, DecodeError
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.task_result import BadMessage
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.in_memory import InMemory
from tests.known import known_at

PLACE = TopicPartition("shop", 0)
TS = 470606913410433024
MANY = 150
_INT = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
_SCHEMA = {
    "schema": "shop",
    "table": "stock",
    "tableID": 1,
    "version": 1,
    "columns": [
        {"name": "id", "dataType": _INT, "nullable": False, "default": None},
        {"name": "left", "dataType": _INT, "nullable": True, "default": None},
    ],
    "indexes": [{"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}],
}


class MessageSource(InMemory):
    """A `Source` of messages in memory that counts how often the row pass ran over it."""

    def __init__(self, messages: list[Mapping[str, Any]]) -> None:
        rows = [
            {**PLACE._asdict(), "offset": offset, "timestamp": None, "key": None, "value": json.dumps(message).encode()}
            for offset, message in enumerate(messages)
        ]
        self.window = Window({PLACE: OffsetRange(0, len(rows))})
        self.passes = 0
        self._rows = pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        return self.window.ranges

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        found: Messages = {}
        for span in window.ranges.values():
            found = dict(by_place(self._rows.slice(span.start, len(span))))
        return found

    def run(self, window: Window, job: KeepingPass[R], where: Where) -> Ran[R]:
        """See `Runner`."""
        assert window.ranges, "Spark makes no task of nothing"
        self.passes += 1
        return super().run(window, job, where)


def _message(kind: str, at: int, **members: Any) -> dict[str, Any]:
    return {"version": 1, "type": kind, "commitTs": TS + at, "buildTs": 1, **members}


def _row(kind: str, number: int, left: str, at: int) -> dict[str, Any]:
    row = {"id": str(number), "left": left}
    old = {} if kind == "INSERT" else {"old": row}
    return _message(kind, at, database="shop", table="stock", tableID=1, schemaVersion=1, data=row, **old)


def _one_key(number: int) -> int:
    return min(number, 1)


def _many_keys(number: int) -> int:
    return number


@pytest.mark.parametrize("key", [_one_key, _many_keys])
def test_each_bad_value_is_set_aside_in_a_few_passes(key: Callable[[int], int]) -> None:
    """One behind the other on a key, or side by side; what is good is kept."""
    bad = [_row("UPDATE", key(number), "many", number) for number in range(1, MANY + 1)]
    first = _row("INSERT", 0, "7", 0)
    source = MessageSource(
        [
            {**_message("BOOTSTRAP", 0, tableSchema=_SCHEMA), "commitTs": 0},
            first,
            *bad,
            _message("WATERMARK", MANY + 1),
        ]
    )

    found = _survey(source)

    assert [item.offset for item in sorted(found.bad, key=lambda item: item.offset)] == list(range(2, MANY + 2))
    assert all("shop.stock.left" in str(item.error) for item in found.bad)
    assert found.results.counts["applied"] == 1
    assert source.passes <= 6


def test_a_window_that_ends_where_it_begins_needs_no_task() -> None:
    """The first message stops the changefeed: tasks have read it, and nothing is left to read."""
    bootstrap = {**_message("BOOTSTRAP", 0, tableSchema=_SCHEMA), "commitTs": 0}
    source = MessageSource([{**bootstrap, "tableSchema": {}}, _row("INSERT", 0, "7", 1), _message("WATERMARK", 2)])

    found = _survey(source, keep_bad=False)

    assert not found.window.ranges
    assert found.error is not None
    assert "at shop/0:0: " in str(found.error)
    assert found.kept is None
    assert source.passes == 1


def _survey(source: MessageSource, *, keep_bad: bool = True) -> WindowScan:
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=keep_bad)
    ends = {PLACE: source.window.ranges[PLACE].end}
    known = known_at()
    return scanner.scan(source.window, known, ends, Stopwatch(), where=Where.TASKS)


def test_only_rows_of_the_tables_that_bad_rows_name_are_set_aside() -> None:
    """Where one of them names no table, or several, the whole message is: a row of it may be of any."""
    one, other = TableName("shop", "a"), TableName("shop", "b")
    named, either = DecodeError("", tables=[one]), AmbiguousName("", tables=[one, other])
    scan = WindowScan(Window({}), {}, DecodeTask("open", DecoderOptions(), TypeRules(), ("*.*",), (), upto=TS), {})
    scan.bad = [
        BadMessage(PLACE, 1, named, (one,)),
        BadMessage(PLACE, 2, named, (one,)),
        BadMessage(PLACE, 2, DecodeError("", tables=[other]), (other,)),
        BadMessage(PLACE, 3, named, (one,)),
        BadMessage(PLACE, 3, DecodeError(""), (other,)),
        BadMessage(PLACE, 4, either, (one,)),
        BadMessage(PLACE, 4, named, (one,)),
    ]

    assert scan.skip == {PLACE: {1: {one}, 2: {one, other}, 3: frozenset(), 4: frozenset()}}
