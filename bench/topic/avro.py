"""Avro with the TiDB extension and watermarks; decimals as bytes. Rows name their schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bench.topic import pieces
from bench.topic.encoder import Record, Rows
from bench.topic.events import DELETE
from bench.topic.pieces import Piece, avro_long, avro_string, scalar_long, scalar_string
from bench.topic.schema import COLUMNS, DATABASE, STATUSES, Column, table_name

_ROW, _DDL, _WATERMARK, _DELETED = b"\x00", b"\x01", b"\x02", b"\x03"
_CREATE_DATABASE, _CREATE_TABLE = 1, 3
_AVRO = {"bigint": "long", "int": "int", "tinyint": "int", "decimal": "bytes"}
_TIDB = {"tinyint": "INT", "varchar": "TEXT"}


class Avro:
    """`protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true`, server time zone UTC.

    Args:
        key_ids: Registry ids of each table's key schema.
        value_ids: Likewise, of its value schema.
    """

    def __init__(self, key_ids: Sequence[int], value_ids: Sequence[int]) -> None:
        self._key_heads = _heads(key_ids)
        self._value_heads = _heads(value_ids)

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """First byte 1, then JSON."""
        name = "" if table is None else table_name(table, tables)
        kind = _CREATE_DATABASE if table is None else _CREATE_TABLE
        body = {"query": sql, "type": kind, "schema": DATABASE, "table": name, "commitTs": commit_ts}
        return Record(None, _DDL + _compact(body).encode())

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """There are none."""
        return None

    def watermark(self, commit_ts: int) -> Record:
        """First byte 2, then the resolved ts."""
        return Record(None, _WATERMARK + commit_ts.to_bytes(8, "big"))

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """The key columns, and the row; of a delete only first byte 3 and the commit ts."""
        image = rows.before if op == DELETE else rows.after
        assert image is not None
        key = pieces.join(pieces.each(self._key_heads, rows.table), _value(COLUMNS[0], image))
        if op == DELETE:
            return key, pieces.join(_DELETED, pieces.big_endian(rows.commit_ts))
        columns = [_value(column, image) for column in COLUMNS]
        kind = scalar_string("cu"[op])
        stamps = [avro_long(rows.commit_ts), avro_long(rows.commit_ts >> 18)]
        return key, pieces.join(pieces.each(self._value_heads, rows.table), *columns, kind, *stamps)


def key_schema(table: int, tables: int) -> str:
    """What TiCDC registers for the key of a table."""
    return _compact(_record(table, tables, [{"name": "id", "type": _type(COLUMNS[0])}]))


def value_schema(table: int, tables: int) -> str:
    """What TiCDC registers for the rows of a table."""
    extension: list[dict[str, Any]] = [
        {"default": "", "name": "_tidb_op", "type": "string"},
        {"default": 0, "name": "_tidb_commit_ts", "type": "long"},
        {"default": 0, "name": "_tidb_commit_physical_time", "type": "long"},
    ]
    return _compact(_record(table, tables, [_field(column) for column in COLUMNS] + extension))


def _heads(ids: Sequence[int]) -> list[bytes]:
    return [_ROW + number.to_bytes(4, "big") for number in ids]


def _record(table: int, tables: int, fields: list[dict[str, Any]]) -> dict[str, Any]:
    name = table_name(table, tables)
    return {"type": "record", "name": name, "namespace": f"default.{DATABASE}", "fields": fields}


def _field(column: Column) -> dict[str, Any]:
    if column.is_key:
        return {"name": column.name, "type": _type(column)}
    return {"default": None, "name": column.name, "type": ["null", _type(column)]}


def _type(column: Column) -> dict[str, Any]:
    parameters = {"tidb_type": _TIDB.get(column.type, column.type.upper())}
    if column.type == "enum":
        parameters = {"allowed": ",".join(STATUSES)} | parameters
    result: dict[str, Any] = {"type": _AVRO.get(column.type, "string"), "connect.parameters": parameters}
    if column.type == "decimal":
        result |= {"logicalType": "decimal", "precision": column.length, "scale": column.scale}
    return result


def _value(column: Column, image: pa.Table) -> Piece:
    values = _bare(column, image[column.name])
    if column.is_key:
        return values
    return pieces.or_else(pieces.join(scalar_long(1), values), scalar_long(0))


def _bare(column: Column, values: Piece) -> Piece:
    match column.type:
        case "varchar":
            return avro_string(values)
        case "enum":
            return avro_string(values.cast(pa.string()))
        case "decimal":
            return pieces.avro_decimal(pieces.cents(values))
        case "datetime":
            return avro_string(pieces.clock(values, "ms"))
        case "timestamp":
            return avro_string(pieces.clock(values, "s"))
        case _:
            return avro_long(pieces.integers(values))


def _compact(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
