"""Open protocol, one row a message: the `index-value` dispatcher batches only rows of one key."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.topic import pieces
from bench.topic.encoder import Record, Rows
from bench.topic.events import DELETE, INSERT, UPDATE
from bench.topic.pieces import Piece
from bench.topic.schema import COLUMNS, DATABASE, Column, table_name

_VERSION = (1).to_bytes(8, "big")
_CODES = {
    "bigint": 8, "int": 3, "tinyint": 1, "decimal": 246, "enum": 247, "varchar": 15, "datetime": 12, "timestamp": 7
}  # fmt: skip
_CREATE_DATABASE, _CREATE_TABLE = 1, 3
_BINARY, _HANDLE, _PRIMARY, _NULLABLE = 1, 2, 8, 64


class OpenProtocol:
    """`protocol=open-protocol`, server time zone UTC."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """Event type 2."""
        name = "" if table is None else table_name(table, tables)
        key = {"ts": commit_ts, "scm": DATABASE, "tbl": name, "t": 2}
        return _framed(key, {"q": sql, "t": _CREATE_DATABASE if table is None else _CREATE_TABLE})

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """There are none."""
        return None

    def watermark(self, commit_ts: int) -> Record:
        """Event type 3, with an empty value."""
        return _framed({"ts": commit_ts, "t": 3}, None)

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """Event type 1: `u` holds a new image, `p` the one before, `d` a deleted one."""
        stamps = pieces.text(pa.array(rows.commit_ts))
        key = pieces.join('{"ts":', stamps, f',"scm":"{DATABASE}","tbl":"', rows.names, '","t":1}')
        if op == DELETE:
            value = pieces.join('{"d":{', *_image(rows.before), "}}")
        elif op == INSERT:
            value = pieces.join('{"u":{', *_image(rows.after), "}}")
        else:
            assert op == UPDATE
            value = pieces.join('{"u":{', *_image(rows.after), '},"p":{', *_image(rows.before), "}}")
        return pieces.join(_VERSION, _framed_rows(key)), _framed_rows(value)


def _framed_rows(bodies: Piece) -> Piece:
    content = bodies.cast(pa.binary())
    return pieces.join(pieces.big_endian(pieces.integers(pc.binary_length(content))), content)


def _framed(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    head = _compact(key)
    body = b"" if value is None else _compact(value)
    return Record(_VERSION + len(head).to_bytes(8, "big") + head, len(body).to_bytes(8, "big") + body)


def _compact(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _image(image: pa.Table | None) -> list[Piece]:
    assert image is not None
    result: list[Piece] = []
    for number, column in enumerate(COLUMNS):
        result += [f'{"," if number else ""}"{column.name}":{{{_described(column)},"v":', _value(column, image), "}"]
    return result


def _described(column: Column) -> str:
    if column.is_key:
        return f'"t":{_CODES[column.type]},"h":true,"f":{_BINARY | _HANDLE | _PRIMARY}'
    return f'"t":{_CODES[column.type]},"f":{_NULLABLE | (0 if column.is_text else _BINARY)}'


def _value(column: Column, image: pa.Table) -> Piece:
    values = image[column.name]
    match column.type:
        case "varchar":
            return pieces.quoted(values, escape_html=False)
        case "enum":
            return pieces.text(pieces.code(values))
        case "decimal":
            return pieces.join('"', pieces.text(values), '"')
        case "datetime":
            return pieces.join('"', pieces.clock(values, "ms"), '"')
        case "timestamp":
            return pieces.join('"', pieces.clock(values, "s"), '"')
        case _:
            return pieces.text(values)
