"""What a message says of the next holder of a name does not park the table that had the name before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.order.feed_order import ORDERS
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_namesakes import Message, MessageSource

PLACE = TopicPartition("feed", 0)
TS = 470606910877335552
T, FORMER = TableName("shop", "t"), TableName("shop", "former")


def described(name: str, number: int) -> dict[str, Any]:
    """A table as Simple describes it."""
    columns = [
        {"name": column, "dataType": {"mysqlType": kind}, "nullable": False, "default": None}
        for column, kind in (("id", "int"), ("v", "int"))
    ]
    index = {"name": "PRIMARY", "unique": True, "primary": True, "columns": ["id"]}
    return {"schema": "shop", "table": name, "tableID": number, "version": TS + number, "columns": columns,
            "indexes": [index]}  # fmt: skip


def ddl(at: int, kind: str, sql: str, name: str, number: int) -> dict[str, Any]:
    """A DDL message."""
    return {"type": kind, "sql": sql, "commitTs": TS + at, "tableSchema": described(name, number)}


def row(at: int, value: str, number: int) -> dict[str, Any]:
    """An insert into `t`."""
    place = {"database": "shop", "table": "t", "schemaVersion": TS + number}
    return {**place, "type": "INSERT", "commitTs": TS + at, "data": {"id": "1", "v": value}}


def scan(*messages: dict[str, Any]) -> WindowScan:
    """What a window of them holds."""
    encoded: list[Message] = [(PLACE, None, json.dumps({"version": 1, **message}).encode()) for message in messages]
    source = MessageSource(encoded)
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0, order=ORDERS["resolved"])
    ends = {place: span.end for place, span in source.window.ranges.items()}
    known = known_at(TS)
    window = WindowScanner(source, template, rows_describe=False, keep_bad=False, parks=True)
    return window.scan(source.window, known, ends, Stopwatch(), where=Where.HERE)


CREATE = ddl(1, "CREATE", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT NOT NULL)", "t", 1)
ENDS = [
    ddl(5, "RENAME", "RENAME TABLE shop.t TO shop.former", "former", 1),
    ddl(5, "ERASE", "DROP TABLE shop.t", "t", 1),
]
AGAIN = ddl(6, "CREATE", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT NOT NULL)", "t", 2)
WATERMARK = {"type": "WATERMARK", "commitTs": TS + 90}


@pytest.mark.parametrize("end", ENDS)
def test_a_bad_row_behind_the_end_of_a_table_parks_its_successor_alone(end: dict[str, Any]) -> None:
    """The window ends with the DDL that frees the name; the next one meets the row, of the table that has it then."""
    found = scan(CREATE, row(3, "1", 1), end, AGAIN, row(8, "no number", 2), WATERMARK)

    assert found.parking == {}
    assert found.error is None
    assert found.upto == TS + 5
    assert (T, 1) in found.results.parts


@pytest.mark.parametrize("end", ENDS)
def test_a_bad_row_before_it_parks_the_table_itself(end: dict[str, Any]) -> None:
    """It is found again in the shorter window."""
    found = scan(CREATE, row(3, "no number", 1), end, AGAIN, row(8, "1", 2), WATERMARK)

    assert list(found.parking) == [T]
