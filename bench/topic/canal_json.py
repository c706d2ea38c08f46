"""Canal-JSON with the TiDB extension."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa

from bench.topic import pieces
from bench.topic.encoder import Record, Rows
from bench.topic.events import DELETE, UPDATE
from bench.topic.pieces import Piece
from bench.topic.schema import COLUMNS, DATABASE, table_name

_KINDS = ("INSERT", "UPDATE", "DELETE")

_JAVA_TYPES = {
    "bigint": -5, "int": 4, "tinyint": -6, "decimal": 3, "enum": 4, "varchar": 12, "datetime": 93, "timestamp": 93
}  # fmt: skip


def _object(members: dict[str, Any]) -> str:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


_JAVA = _object({column.name: _JAVA_TYPES[column.type] for column in COLUMNS})


def _orders(count: int) -> list[str]:
    """The columns' types in many orders: TiCDC takes them from a map, which Go walks in another order each time."""
    dice = random.Random(1)
    orders = (dice.sample(COLUMNS, len(COLUMNS)) for _ in range(count))
    return [_object({column.name: column.type for column in order}) for order in orders]


_TYPES = _orders(1009)


class CanalJson:
    """`protocol=canal-json&enable-tidb-extension=true`, server time zone UTC."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """A DDL, which this protocol sends to partition 0 only."""
        name = "" if table is None else table_name(table, tables)
        kind = "QUERY" if table is None else "CREATE"
        body = _envelope(DATABASE, name, kind, commit_ts, is_ddl=True, sql=sql)
        return Record(None, _object(body | {"_tidb": {"commitTs": commit_ts}}).encode(), everywhere=False)

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """There are none."""
        return None

    def watermark(self, commit_ts: int) -> Record:
        """TIDB_WATERMARK."""
        body = _envelope("", "", "TIDB_WATERMARK", commit_ts)
        return Record(None, _object(body | {"_tidb": {"watermarkTs": commit_ts}}).encode())

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """INSERT, UPDATE and DELETE; a deleted row is in `data`."""
        old = [',"old":[', *_image(rows.before), "]"] if op == UPDATE else [',"old":null']
        body = pieces.join(
            f'{{"id":0,"database":"{DATABASE}","table":"',
            rows.names,
            f'","pkNames":["id"],"isDdl":false,"type":"{_KINDS[op]}","es":',
            rows.wall_ms,
            ',"ts":',
            rows.sent_ms,
            f',"sql":"","sqlType":{_JAVA},"mysqlType":',
            pieces.each(_TYPES, np.asarray(rows.commit_ts) % len(_TYPES)),
            *old,
            ',"data":[',
            *_image(rows.before if op == DELETE else rows.after),
            '],"_tidb":{"commitTs":',
            pieces.text(pa.array(rows.commit_ts)),
            "}}",
        )
        return None, body.cast(pa.binary())


def _envelope(database: str, table: str, kind: str, ts: int, *, is_ddl: bool = False, sql: str = "") -> dict[str, Any]:
    wall = ts >> 18
    head = {"id": 0, "database": database, "table": table, "pkNames": None, "isDdl": is_ddl, "type": kind}
    rest = {"sql": sql, "sqlType": None, "mysqlType": None, "data": None, "old": None}
    return head | {"es": wall, "ts": wall + 1000} | rest


def _image(image: pa.Table | None) -> list[Piece]:
    """An image: all values as strings, members in table order."""
    assert image is not None
    return [
        '{"id":"',
        pieces.text(image["id"]),
        '","customer_id":"',
        pieces.text(image["customer_id"]),
        '","product_id":"',
        pieces.text(image["product_id"]),
        '","quantity":"',
        pieces.text(image["quantity"]),
        '","price":"',
        pieces.text(image["price"]),
        '","status":"',
        pieces.text(pieces.code(image["status"])),
        '","flag":"',
        pieces.text(image["flag"]),
        '","email":',
        pieces.quoted(image["email"], escape_html=True),
        ',"note":',
        pieces.quoted(image["note"], escape_html=True),
        ',"created_at":"',
        pieces.clock(image["created_at"], "ms"),
        '","updated_at":"',
        pieces.clock(image["updated_at"], "s"),
        '"}',
    ]
