"""Debezium in JSON, with schemas and the TiDB extension."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.topic import pieces
from bench.topic.encoder import Record, Rows
from bench.topic.events import DELETE, INSERT
from bench.topic.pieces import Piece
from bench.topic.schema import COLUMNS, DATABASE, STATUSES, Column, table_name

_CLUSTER = "default"
_CONNECT: dict[str, dict[str, Any]] = {
    "bigint": {"type": "int64"},
    "int": {"type": "int32"},
    "tinyint": {"type": "int16"},
    "decimal": {"type": "double"},
    "varchar": {"type": "string"},
    "enum": {"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": ",".join(STATUSES)}},
    "datetime": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "timestamp": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
}
_JDBC = {
    "bigint": -5, "int": 4, "tinyint": 5, "decimal": 3, "varchar": 12, "enum": 1, "datetime": 93, "timestamp": 2014
}  # fmt: skip


class Debezium:
    """`protocol=debezium&enable-tidb-extension=true`."""

    def ddl(self, sql: str, table: int | None, tables: int, commit_ts: int) -> Record:
        """A schema change, with the table's description."""
        name = "" if table is None else table_name(table, tables)
        payload = {
            "source": _source(DATABASE, name, commit_ts),
            "ts_ms": (commit_ts >> 18) + 1000,
            "databaseName": DATABASE,
            "schemaName": None,
            "ddl": sql,
            "tableChanges": [] if table is None else [_table_change(name)],
        }
        key_fields = [_field("databaseName", "string")]
        key_schema = _struct("io.debezium.connector.mysql.SchemaChangeKey", key_fields, version=1)
        schema = _struct("io.debezium.connector.mysql.SchemaChangeValue", _ddl_fields(), version=1)
        key = {"payload": {"databaseName": DATABASE}, "schema": key_schema}
        return Record(_compact(key).encode(), _compact({"payload": payload, "schema": schema}).encode())

    def bootstrap(self, table: int, tables: int) -> Record | None:
        """There are none."""
        return None

    def watermark(self, commit_ts: int) -> Record:
        """Operation `m`."""
        source = _source("", "", commit_ts)
        payload = {"source": source, "ts_ms": (commit_ts >> 18) + 1000, "transaction": None, "op": "m"}
        key = {"payload": {}, "schema": _struct(f"{_CLUSTER}.watermark.Key", [])}
        schema = _struct(f"{_CLUSTER}.watermark.Envelope", [_source_schema(), *_tail_fields()], version=1)
        return Record(_compact(key).encode(), _compact({"payload": payload, "schema": schema}).encode())

    def rows(self, op: int, rows: Rows) -> tuple[Piece | None, Piece]:
        """Operations `c`, `u` and `d`; every message carries its schema."""
        image = rows.before if op == DELETE else rows.after
        assert image is not None
        names = [table_name(number, rows.tables) for number in range(rows.tables)]
        key_tails = pieces.each([_compact(_key_schema(name)) for name in names], rows.table)
        value_tails = pieces.each([_compact(_envelope(name)) for name in names], rows.table)
        key = pieces.join('{"payload":{"id":', pieces.text(image["id"]), '},"schema":', key_tails, "}")
        value = pieces.join(
            '{"payload":{',
            *_source_pieces(rows),
            ',"ts_ms":',
            rows.sent_ms,
            f',"transaction":null,"op":"{"cud"[op]}","before":',
            *(["null"] if op == INSERT else _image(rows.before)),
            ',"after":',
            *(["null"] if op == DELETE else _image(rows.after)),
            '},"schema":',
            value_tails,
            "}",
        )
        return key.cast(pa.binary()), value.cast(pa.binary())


def _source_pieces(rows: Rows) -> list[Piece]:
    """The `source` member of row messages: what `_source` gives, with the parts that differ cut out."""
    whole = _compact(_source(DATABASE, "@table", 0))
    head, rest = whole.split('"ts_ms":0')
    middle, rest = rest.split("@table")
    between, tail = rest.split('"commit_ts":0')
    stamps = pieces.text(pa.array(rows.commit_ts))
    return [f'"source":{head}"ts_ms":', rows.wall_ms, middle, rows.names, f'{between}"commit_ts":', stamps, tail]


def _source(database: str, table: str, commit_ts: int) -> dict[str, Any]:
    return {
        "version": "2.4.0.Final",
        "connector": "TiCDC",
        "name": _CLUSTER,
        "ts_ms": commit_ts >> 18,
        "snapshot": "false",
        "db": database,
        "table": table,
        "server_id": 0,
        "gtid": None,
        "file": "",
        "pos": 0,
        "row": 0,
        "thread": 0,
        "query": None,
        "commit_ts": commit_ts,
        "cluster_id": _CLUSTER,
    }


def _image(image: pa.Table | None) -> list[Piece]:
    assert image is not None
    result: list[Piece] = []
    for number, column in enumerate(COLUMNS):
        result += [f'{"," if number else "{"}"{column.name}":', _value(column, image)]
    return [*result, "}"]


def _value(column: Column, image: pa.Table) -> Piece:
    values = image[column.name]
    match column.type:
        case "varchar":
            return pieces.quoted(values, escape_html=False)
        case "enum":
            return pieces.join('"', pieces.text(values), '"')
        case "decimal":
            return pc.replace_substring_regex(pieces.text(values), r"\.?0+$", "")
        case "datetime":
            return pieces.text(pa.array(pieces.integers(values) // 1000))
        case "timestamp":
            return pieces.join('"', pc.replace_substring(pieces.clock(values, "s"), " ", "T"), 'Z"')
        case _:
            return pieces.text(values)


def _key_schema(name: str) -> dict[str, Any]:
    return _struct(f"{_CLUSTER}.{DATABASE}.{name}.Key", [_column_schema(COLUMNS[0])])


def _envelope(name: str) -> dict[str, Any]:
    columns = [_column_schema(column) for column in COLUMNS]
    image = {"type": "struct", "optional": True, "name": f"{_CLUSTER}.{DATABASE}.{name}.Value"}
    images = [image | {"field": side, "fields": columns} for side in ("before", "after")]
    fields = [*images, _source_schema(), *_tail_fields()]
    return _struct(f"{_CLUSTER}.{DATABASE}.{name}.Envelope", fields, version=1)


def _column_schema(column: Column) -> dict[str, Any]:
    connect = dict(_CONNECT[column.type])
    described = {"tidb_type": column.type, "type": connect.pop("type"), "optional": not column.is_key}
    if "name" in connect:
        described |= {"name": connect.pop("name"), "version": 1}
    return described | connect | {"field": column.name}


def _source_schema() -> dict[str, Any]:
    snapshot = {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1}
    snapshot |= {"parameters": {"allowed": "true,last,false,incremental"}, "default": "false", "field": "snapshot"}
    fields = [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        _field("ts_ms", "int64"),
        snapshot,
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        _field("table", "string", optional=True),
        _field("server_id", "int64"),
        _field("gtid", "string", optional=True),
        _field("file", "string"),
        _field("pos", "int64"),
        _field("row", "int32"),
        _field("thread", "int64", optional=True),
        _field("query", "string", optional=True),
        _field("commit_ts", "int64"),
        _field("cluster_id", "string"),
    ]
    return _struct("io.debezium.connector.mysql.Source", fields) | {"field": "source"}


def _tail_fields() -> list[dict[str, Any]]:
    orders = [_field("total_order", "int64"), _field("data_collection_order", "int64")]
    transaction = _struct("event.block", [_field("id", "string"), *orders], version=1)
    last = transaction | {"optional": True, "field": "transaction"}
    return [_field("op", "string"), _field("ts_ms", "int64", optional=True), last]


def _ddl_fields() -> list[dict[str, Any]]:
    texts = [_field(name, "string", optional=True) for name in ("databaseName", "schemaName", "ddl")]
    change = {"name": "io.debezium.connector.schema.Change", "optional": False, "type": "struct", "version": 1}
    change |= {"fields": [_field("type", "string"), _field("id", "string")]}
    changes = {"field": "tableChanges", "optional": False, "type": "array", "items": change}
    return [_source_schema(), _field("ts_ms", "int64"), *texts, changes]


def _table_change(name: str) -> dict[str, Any]:
    columns = [_described(position, column) for position, column in enumerate(COLUMNS, start=1)]
    table = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": columns, "comment": None}
    return {"type": "CREATE", "id": f'"{DATABASE}"."{name}"', "table": table}


def _described(position: int, column: Column) -> dict[str, Any]:
    is_enum = column.type == "enum"
    length = {"decimal": 12, "varchar": column.length, "datetime": column.scale, "enum": 1}.get(column.type)
    return {
        "name": column.name,
        "jdbcType": _JDBC[column.type],
        "nativeType": None,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": [f"'{label}'" for label in STATUSES] if is_enum else None,
        "typeName": column.type.upper(),
        "typeExpression": column.type.upper(),
        "charsetName": "utf8mb4" if column.is_text else None,
        "length": length,
        "scale": column.scale if column.type == "decimal" else None,
        "position": position,
        "optional": not column.is_key,
        "autoIncremented": False,
        "generated": False,
    }


def _struct(name: str, fields: list[dict[str, Any]], version: int | None = None) -> dict[str, Any]:
    numbered = {} if version is None else {"version": version}
    return {"type": "struct", "name": name, "optional": False} | numbered | {"fields": fields}


def _field(name: str, kind: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def _compact(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
