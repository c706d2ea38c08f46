"""Simple protocol in JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from bench.topic import pieces
from bench.topic.encoder import TABLE_ID, Record, Rows, schema_version
from bench.topic.events import DELETE, INSERT, START_MS
from bench.topic.pieces import Piece
from bench.topic.schema import COLUMNS, DATABASE, STATUSES, table_name

_KINDS = ("INSERT", "UPDATE", "DELETE")


class SimpleJson:
    """`protocol=simple&encoding-format=json`, server time zone UTC."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """QUERY for the database, CREATE with the schema for a table."""
        head = {"version": 1, "type": "QUERY" if table is None else "CREATE", "sql": sql, "commitTs": commit_ts}
        body = head | {"buildTs": START_MS} | ({} if table is None else {"tableSchema": table_schema(table, tables)})
        return Record(None, _compact(body))

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """BOOTSTRAP."""
        body = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": START_MS}
        return Record(b"", _compact(body | {"tableSchema": table_schema(table, tables)}))

    def watermark(self, commit_ts: int) -> Record:
        """WATERMARK."""
        sent = (commit_ts >> 18) + 1000
        return Record(None, _compact({"version": 1, "type": "WATERMARK", "commitTs": commit_ts, "buildTs": sent}))

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """INSERT, UPDATE and DELETE."""
        versions = pieces.each([schema_version(table) for table in range(rows.tables)], rows.table)
        parts = [
            f'{{"version":1,"database":"{DATABASE}","table":"',
            rows.names,
            '","tableID":',
            pieces.text(pa.array(rows.ids)),
            f',"type":"{_KINDS[op]}","commitTs":',
            pieces.text(pa.array(rows.commit_ts)),
            ',"buildTs":',
            rows.sent_ms,
            ',"schemaVersion":',
            pieces.text(versions),
        ]
        if op != DELETE:
            parts += [',"data":', *_image(rows.after)]
        if op != INSERT:
            parts += [',"old":', *_image(rows.before)]
        return None, pieces.join(*parts, "}").cast(pa.binary())


def table_schema(table: int, tables: int) -> dict[str, Any]:
    """The `tableSchema` of a table."""
    index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    return {
        "schema": DATABASE,
        "table": table_name(table, tables),
        "tableID": TABLE_ID + 2 * table,
        "version": schema_version(table),
        "columns": [
            {"name": column.name, "dataType": _data_type(column.name), "nullable": not column.is_key, "default": None}
            for column in COLUMNS
        ],
        "indexes": [index],
    }


def _data_type(name: str) -> dict[str, Any]:
    column = next(column for column in COLUMNS if column.name == name)
    charset, collate = ("utf8mb4", "utf8mb4_bin") if column.is_text else ("binary", "binary")
    result: dict[str, Any] = {"mysqlType": column.type, "charset": charset, "collate": collate, "length": column.length}
    if column.scale:
        result["decimal"] = column.scale
    if column.type == "enum":
        result["elements"] = list(STATUSES)
    return result


def _image(image: pa.Table | None) -> list[Piece]:
    """An image: all values as strings, members in order of their names."""
    assert image is not None
    return [
        '{"created_at":"',
        pieces.clock(image["created_at"], "ms"),
        '","customer_id":"',
        pieces.text(image["customer_id"]),
        '","email":',
        pieces.quoted(image["email"], escape_html=True),
        ',"flag":"',
        pieces.text(image["flag"]),
        '","id":"',
        pieces.text(image["id"]),
        '","note":',
        pieces.quoted(image["note"], escape_html=True),
        ',"price":"',
        pieces.text(image["price"]),
        '","product_id":"',
        pieces.text(image["product_id"]),
        '","quantity":"',
        pieces.text(image["quantity"]),
        '","status":"',
        pieces.text(pieces.code(image["status"])),
        '","updated_at":{"location":"UTC","value":"',
        pieces.clock(image["updated_at"], "s"),
        '"}}',
    ]


def _compact(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
