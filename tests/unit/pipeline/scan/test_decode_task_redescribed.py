"""A version that is described twice, in two ways, as no TiCDC does: what does not fit it is named, nothing breaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult
from tests.unit.pipeline.scan.test_window_scan_dead_letters import _SCHEMA, PLACE, TS, _message

MANY = 400
ZONED = {"location": "UTC", "value": "2024-01-01 00:00:00"}


def _create(kind: str) -> dict[str, Any]:
    key = {"name": "id", "dataType": {"mysqlType": "int"}, "nullable": False, "default": None}
    value = {"name": "left", "dataType": {"mysqlType": kind}, "nullable": True, "default": None}
    return _message("BOOTSTRAP", 0, tableSchema={**_SCHEMA, "columns": [key, value]})


def _rows(kind: str, value: object, start: int) -> list[dict[str, Any]]:
    """Rows, their members in TiCDC's order: such are read together."""
    rows = []
    for number in range(start, start + MANY):
        row = {"id": str(number), "left": value}
        place = {"version": 1, "database": "shop", "table": "stock", "tableID": 1, "type": kind}
        stamps = {"commitTs": TS + number, "buildTs": 1, "schemaVersion": 1}
        images = {"INSERT": ("data",), "UPDATE": ("data", "old"), "DELETE": ("old",)}[kind]
        rows.append({**place, **stamps, **dict.fromkeys(images, row)})
    return rows


def _pass(messages: Sequence[object]) -> TaskResult:
    rows = [
        {
            **PLACE._asdict(),
            "offset": offset,
            "timestamp": None,
            "key": None,
            "value": json.dumps(message, separators=(",", ":")).encode(),
        }
        for offset, message in enumerate(messages)
    ]
    table = pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=TS + 10 * MANY)
    # What one batch describes, the next one is read by.
    edges = [0, 1, 2 + 2 * MANY, len(rows)]
    return job(part for start, end in pairwise(edges) for part in by_place(table.slice(start, end - start)))


def test_text_with_a_zone_and_text_of_one_column_are_parted() -> None:
    """Those that the newest description does not fit are refused by name, and the others are not lost with them."""
    messages = [
        _create("timestamp"),
        *_rows("INSERT", ZONED, 1),
        *_rows("INSERT", ZONED, 1 + MANY),
        _create("varchar"),
        *_rows("UPDATE", "2024-01-01", 1 + 2 * MANY),
        *_rows("UPDATE", "2024-01-01", 1 + 3 * MANY),
    ]

    found = _pass(messages)

    assert [part.here.num_rows for part in found.parts[TableName("shop", "stock"), 0]] == [2 * MANY]
    assert [bad.offset for bad in found.bad] == list(range(1, 1 + 2 * MANY))
    assert all("shop.stock.left cannot be read as varchar" in str(bad.error) for bad in found.bad)


def test_a_column_that_no_name_in_tidb_can_name_is_refused() -> None:
    """Names with NUL are those of columns beside the table's own: a second one of them would end the step."""
    damaged = _create("varchar")
    damaged["tableSchema"]["columns"][1]["name"] = "\0offset"

    found = _pass([damaged])

    (bad,) = found.bad
    assert "It describes table shop.stock with the column '\\x00offset', and no name in TiDB holds NUL." in str(
        bad.error
    )


def test_a_version_that_comes_with_another_key_is_refused_by_name() -> None:
    """Rows of one version are known by one key: a second one is damage, and no row of the first is lost to it."""
    other = _create("varchar")
    columns = [{**column, "nullable": False} for column in other["tableSchema"]["columns"]]
    index = {"name": "u", "unique": True, "primary": True, "nullable": False, "columns": ["left"]}
    other["tableSchema"] = {**other["tableSchema"], "columns": columns, "indexes": [index]}
    messages = [
        _create("varchar"),
        *_rows("INSERT", "a", 1),
        *_rows("INSERT", "b", 1 + MANY),
        other,
        *_rows("DELETE", "a", 1 + 2 * MANY),
        *_rows("DELETE", "a", 1 + 3 * MANY),
    ]

    found = _pass(messages)

    assert [bad.offset for bad in found.bad] == [1 + 2 * MANY]
    assert "describes version 1 of table shop.stock with the key left; before, it was id." in str(found.bad[0].error)
    assert sum(part.here.num_rows for part in found.parts[TableName("shop", "stock"), 0]) == 4 * MANY
    assert {part.version.key for part in found.parts[TableName("shop", "stock"), 0]} == {("id",)}
