"""Simple protocol in Avro: one datum of the `Message` record, without a registry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bench.topic import pieces
from bench.topic.encoder import TABLE_ID, Record, Rows, schema_version
from bench.topic.events import DELETE, INSERT, START_MS
from bench.topic.pieces import Piece, avro_long, avro_string, scalar_long, scalar_string
from bench.topic.schema import COLUMNS, DATABASE, STATUSES, Column, table_name

_MESSAGE = scalar_long(11)
"""Branch of the top-level union."""
_WATERMARK, _BOOTSTRAP, _DDL, _DML = (_MESSAGE + scalar_long(kind) * 2 + scalar_long(1) for kind in range(4))
"""The kind, as symbol and again as branch of the payload, and the payload's version."""
_CREATE, _QUERY = scalar_long(0), scalar_long(7)
_NULL, _SOME = scalar_long(0), scalar_long(1)
_LONG, _STRING, _TIMESTAMP = scalar_long(1), scalar_long(4), scalar_long(6)
"""Branches of a value."""
_NUMBERS = {"bigint", "int", "tinyint", "decimal"}


class SimpleAvro:
    """`protocol=simple&encoding-format=avro`, server time zone UTC."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """DDL: QUERY for the database, CREATE with the schema for a table."""
        kind = _QUERY if table is None else _CREATE
        schema = _NULL if table is None else _SOME + _table_schema(table, tables)
        return Record(None, _DDL + kind + scalar_string(sql) + _longs(commit_ts, START_MS) + schema + _NULL)

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """BOOTSTRAP."""
        return Record(b"", _BOOTSTRAP + _longs(START_MS) + _table_schema(table, tables))

    def watermark(self, commit_ts: int) -> Record:
        """WATERMARK."""
        return Record(None, _WATERMARK + _longs(commit_ts, (commit_ts >> 18) + 1000))

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """DML; claim check, handle key and checksum are null."""
        names = scalar_string(rows.names) if isinstance(rows.names, str) else avro_string(rows.names)
        versions = np.array([schema_version(table) for table in range(rows.tables)])[rows.table]
        value = pieces.join(
            _DML + scalar_string(DATABASE),
            names,
            avro_long(rows.ids),
            scalar_long(op),
            avro_long(rows.commit_ts),
            avro_long((rows.commit_ts >> 18) + 1000),
            avro_long(versions),
            _NULL * 3,
            *([_NULL] if op == DELETE else _image(rows.after)),
            *([_NULL] if op == INSERT else _image(rows.before)),
        )
        return None, value


def _longs(*values: int) -> bytes:
    return b"".join(scalar_long(value) for value in values)


def _table_schema(table: int, tables: int) -> bytes:
    head = scalar_string(DATABASE) + scalar_string(table_name(table, tables))
    columns = b"".join(_column_schema(column) for column in COLUMNS)
    index = scalar_string("primary") + b"\x01\x01\x00" + scalar_long(1) + scalar_string("id") + _NULL
    numbers = _longs(TABLE_ID + 2 * table, schema_version(table), len(COLUMNS))
    return head + numbers + columns + _NULL + scalar_long(1) + index + _NULL


def _column_schema(column: Column) -> bytes:
    charset, collate = ("utf8mb4", "utf8mb4_bin") if column.is_text else ("binary", "binary")
    scale = _SOME + scalar_long(column.scale) if column.type in {"decimal", "timestamp"} else _NULL
    labels = b"".join(scalar_string(label) for label in STATUSES)
    elements = _SOME + scalar_long(len(STATUSES)) + labels + _NULL if column.type == "enum" else _NULL
    sign = (_SOME + b"\x00") * 2 if column.type in _NUMBERS else _NULL * 2
    names = b"".join(map(scalar_string, (column.type, charset, collate)))
    data_type = names + scalar_long(column.length) + scale + elements + sign
    nullable = b"\x00" if column.is_key else b"\x01"
    return scalar_string(column.name) + data_type + nullable + _NULL


def _image(image: pa.Table | None) -> list[Piece]:
    """A map of column name to value, in one block."""
    assert image is not None
    result: list[Piece] = [_SOME + scalar_long(len(COLUMNS))]
    for column in COLUMNS:
        result += [scalar_string(column.name), _value(column, image)]
    return [*result, _NULL]


def _value(column: Column, image: pa.Table) -> Piece:
    values = image[column.name]
    match column.type:
        case "varchar":
            return pieces.or_else(pieces.join(_STRING, avro_string(values)), _NULL)
        case "enum":
            return pieces.join(_LONG, avro_long(pieces.integers(pieces.code(values))))
        case "decimal":
            return pieces.join(_STRING, avro_string(pieces.text(values)))
        case "datetime":
            return pieces.join(_STRING, avro_string(pieces.clock(values, "ms")))
        case "timestamp":
            return pieces.join(_TIMESTAMP + scalar_string("UTC"), avro_string(pieces.clock(values, "s")))
        case _:
            return pieces.join(_LONG, avro_long(pieces.integers(values)))
