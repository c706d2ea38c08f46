"""Rows and DDL in, messages of each protocol out, written as TiCDC writes them: for names that no recording has.

Nothing that decodes messages has a part in it.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import fastavro

from applier.changefeed.ts import from_unix_ms
from tests.fake_registry import Answer, FakeRegistry

TS = from_unix_ms(1_795_250_000_000)
DATABASE, TABLE, RENAMED = "my`db.x 数", 'or\'der "s".tbl`', "select * from `t`;--"
KEY, ADDED = "select", "dr`op;--"
COLUMNS = ("a.b", "ta`ck", 'quo"te', "spa ce", "ünï", "it's", "1st", "back\\slash", "from", "%s{}")
LATER = (*COLUMNS, ADDED)
DEFAULT = "it's `here`"

Message = tuple[bytes | None, bytes]
Row = dict[str, Any]


class Change(NamedTuple):
    """One row: None as old is an insert, None as new a delete."""

    table: str
    columns: Sequence[str]
    old: Row | None
    new: Row | None


class Wire(Protocol):
    """Writes messages of one protocol."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """A DDL, with the table after it; "" for one of the database."""

    def row(self, change: Change, ts: int) -> Message:
        """A row."""

    def watermark(self, ts: int) -> Message:
        """A resolved ts."""


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class Simple:
    """Simple as JSON: each schema has a version, which rows name."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        message = {"version": 1, "type": kind, "sql": sql, "commitTs": ts, "buildTs": 1}
        return None, _json(message | ({"tableSchema": self._schema(table, columns)} if table else {}))

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        message: Row = {"version": 1, "database": DATABASE, "table": change.table, "tableID": 7, "type": _kind(change)}
        message |= {"commitTs": ts, "buildTs": 1, "schemaVersion": _version(change.columns)}
        for member, row in (("data", change.new), ("old", change.old)):
            if row is not None:
                message[member] = {name: None if value is None else str(value) for name, value in row.items()}
        return None, _json(message)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return None, _json({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 1})

    def _schema(self, table: str, columns: Sequence[str]) -> Row:
        number = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
        text = {"mysqlType": "varchar", "charset": "utf8mb4", "collate": "utf8mb4_bin", "length": 50}
        key = {"name": KEY, "dataType": number, "nullable": False, "default": None}
        others = [
            {"name": name, "dataType": text, "nullable": True, "default": DEFAULT if name == ADDED else None}
            for name in columns
        ]
        index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": [KEY]}
        where = {"schema": DATABASE, "table": table, "tableID": 7, "version": _version(columns)}
        return {**where, "columns": [key, *others], "indexes": [index]}


class Open:
    """Open: a key and a value, each behind its length."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        code = {"CREATE": 3 if table else 1, "ALTER": 5, "RENAME": 14}[kind if table else "CREATE"]
        return self._framed({"ts": ts, "scm": DATABASE, "tbl": table, "t": 2}, _json({"q": sql, "t": code}))

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        if change.new is None:
            body = {"d": self._image(change.old or {})}
        else:
            body = {"u": self._image(change.new)} | ({} if change.old is None else {"p": self._image(change.old)})
        return self._framed({"ts": ts, "scm": DATABASE, "tbl": change.table, "t": 1}, _json(body))

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return self._framed({"ts": ts, "t": 3}, b"")

    def _image(self, row: Row) -> Row:
        key = {KEY: {"t": 3, "h": True, "f": 11, "v": row[KEY]}}
        return key | {name: {"t": 15, "f": 64, "v": value} for name, value in row.items() if name != KEY}

    def _framed(self, key: Row, value: bytes) -> Message:
        name = _json(key)
        return struct.pack(">QQ", 1, len(name)) + name, struct.pack(">Q", len(value)) + value


class Canal:
    """Canal-JSON with the extension."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        message = self._message(table, kind if table else "QUERY", ts, {"commitTs": ts})
        return None, _json(message | {"isDdl": True, "sql": sql})

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        message = self._message(change.table, _kind(change), ts, {"commitTs": ts})
        row = change.old if change.new is None else change.new
        names = [KEY, *change.columns]
        message |= {
            "pkNames": [KEY],
            "sqlType": {name: 4 if name == KEY else 12 for name in names},
            "mysqlType": {name: "int" if name == KEY else "varchar" for name in names},
            "data": [self._texts(row or {})],
        }
        if change.old is not None and change.new is not None:
            message["old"] = [self._texts(change.old)]
        return b"", _json(message)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        message = self._message("", "TIDB_WATERMARK", ts, {"watermarkTs": ts})
        return None, _json(message | {"database": ""})

    def _message(self, table: str, kind: str, ts: int, tidb: Row) -> Row:
        return {
            "id": 0,
            "database": DATABASE,
            "table": table,
            "pkNames": None,
            "isDdl": False,
            "type": kind,
            "es": ts >> 18,
            "ts": 1_795_250_000_000,
            "sql": "",
            "sqlType": None,
            "mysqlType": None,
            "data": None,
            "old": None,
            "_tidb": tidb,
        }

    def _texts(self, row: Row) -> Row:
        return {name: None if value is None else str(value) for name, value in row.items()}


class Debezium:
    """Debezium with the extension: a schema beside each payload."""

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        where = f'"{DATABASE}"."{table}"'
        described = [self._described(name, number) for number, name in enumerate([KEY, *columns], 1)]
        change = {
            "type": "CREATE" if kind == "CREATE" else "ALTER",
            "id": f'"{DATABASE}"."{TABLE}",{where}' if kind == "RENAME" else where,
            "table": {
                "defaultCharsetName": "utf8mb4",
                "primaryKeyColumnNames": [KEY],
                "columns": described,
                "comment": None,
            },
        }
        payload = {
            "source": self._source(table, ts),
            "ts_ms": 1_795_250_000_000,
            "databaseName": DATABASE,
            "schemaName": None,
            "ddl": sql,
            "tableChanges": [change] if table else [],
        }
        name = "io.debezium.connector.mysql.SchemaChange"
        key = {"payload": {"databaseName": DATABASE}, "schema": {"type": "struct", "name": f"{name}Key", "version": 1}}
        return _json(key), _json({"payload": payload, "schema": {"type": "struct", "name": f"{name}Value"}})

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        op = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[_kind(change)]
        payload = {"source": self._source(change.table, ts), "ts_ms": 1, "transaction": None, "op": op}
        payload |= {"before": change.old, "after": change.new}
        number = {"tidb_type": "int", "type": "int32", "optional": False, "field": KEY}
        texts = [{"tidb_type": "varchar", "type": "string", "optional": True, "field": name} for name in change.columns]
        if ADDED in change.columns:
            texts[-1]["default"] = DEFAULT
        where = "default." + re.sub(r"[^A-Za-z0-9_]", "_", DATABASE) + "." + _sanitised(change.table, ".")
        image = {"type": "struct", "optional": True, "name": f"{where}.Value", "fields": [number, *texts]}
        fields = [{**image, "field": "before"}, {**image, "field": "after"}]
        schema = {"type": "struct", "optional": False, "name": f"{where}.Envelope", "version": 1, "fields": fields}
        row = change.new or change.old or {}
        keys = {"type": "struct", "name": f"{where}.Key", "optional": False, "fields": [number]}
        return _json({"payload": {KEY: row[KEY]}, "schema": keys}), _json({"payload": payload, "schema": schema})

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        payload = {"source": self._source("", ts) | {"db": ""}, "ts_ms": 1, "transaction": None, "op": "m"}
        key = {"payload": {}, "schema": {"type": "struct", "name": "default.watermark.Key", "fields": []}}
        schema = {"type": "struct", "name": "default.watermark.Envelope", "version": 1, "fields": []}
        return _json(key), _json({"payload": payload, "schema": schema})

    def _source(self, table: str, ts: int) -> Row:
        return {
            "version": "2.4.0.Final",
            "connector": "TiCDC",
            "name": "default",
            "ts_ms": ts >> 18,
            "snapshot": "false",
            "db": DATABASE,
            "table": table,
            "server_id": 0,
            "gtid": None,
            "file": "",
            "pos": 0,
            "row": 0,
            "thread": 0,
            "query": None,
            "commit_ts": ts,
            "cluster_id": "default",
        }

    def _described(self, name: str, position: int) -> Row:
        is_key = name == KEY
        return {
            "name": name,
            "jdbcType": 4 if is_key else 12,
            "nativeType": None,
            "comment": None,
            "defaultValueExpression": DEFAULT if name == ADDED else None,
            "enumValues": None,
            "typeName": "INT" if is_key else "VARCHAR",
            "typeExpression": "INT" if is_key else "VARCHAR",
            "charsetName": None if is_key else "utf8mb4",
            "length": None if is_key else 50,
            "scale": None,
            "position": position,
            "optional": not is_key,
            "autoIncremented": False,
            "generated": False,
        }


class Avro:
    """Avro with watermark and DDL messages: rows carry sanitised names alone.

    Args:
        registry: Learns the schemas.
    """

    def __init__(self, registry: FakeRegistry) -> None:
        self._registry = registry
        self._ids: dict[str, int] = {}

    def ddl(self, sql: str, ts: int, kind: str, table: str, columns: Sequence[str]) -> Message:
        """See `Wire`."""
        code = {"CREATE": 3, "ALTER": 5, "RENAME": 14}[kind] if table else 1
        return None, b"\x01" + _json({"query": sql, "type": code, "schema": DATABASE, "table": table, "commitTs": ts})

    def row(self, change: Change, ts: int) -> Message:
        """See `Wire`."""
        number = {"name": _sanitised(KEY), "type": {"type": "int", "connect.parameters": {"tidb_type": "INT"}}}
        row = change.new or change.old or {}
        key = self._framed(change.table, [number], {_sanitised(KEY): row[KEY]})
        if change.new is None:
            return key, b"\x03" + struct.pack(">Q", ts)
        text = {"type": "string", "connect.parameters": {"tidb_type": "TEXT"}}
        fields: list[Row] = [number]
        for name in change.columns:
            is_added = name == ADDED
            union = [text, "null"] if is_added else ["null", text]
            fields.append({"name": _sanitised(name), "type": union, "default": DEFAULT if is_added else None})
        fields += [
            {"name": "_tidb_op", "type": "string", "default": ""},
            {"name": "_tidb_commit_ts", "type": "long", "default": 0},
            {"name": "_tidb_commit_physical_time", "type": "long", "default": 0},
        ]
        values = {_sanitised(name): value for name, value in change.new.items()}
        values |= {"_tidb_op": "c" if change.old is None else "u"}
        values |= {"_tidb_commit_ts": ts, "_tidb_commit_physical_time": ts >> 18}
        return key, self._framed(change.table, fields, values)

    def watermark(self, ts: int) -> Message:
        """See `Wire`."""
        return None, b"\x02" + struct.pack(">Q", ts)

    def _framed(self, table: str, fields: list[Row], values: Row) -> bytes:
        schema: Row = {"type": "record", "name": _sanitised(table), "namespace": f"default.{_sanitised(DATABASE)}"}
        schema |= {"fields": fields}
        text = json.dumps(schema)
        if text not in self._ids:
            self._ids[text] = len(self._ids) + 1
            self._registry.on(f"/schemas/ids/{self._ids[text]}", Answer(200, {"schema": text}))
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), values)
        return b"\0" + struct.pack(">I", self._ids[text]) + body.getvalue()


def _kind(change: Change) -> str:
    return "INSERT" if change.old is None else "DELETE" if change.new is None else "UPDATE"


def _version(columns: Sequence[str]) -> int:
    return TS + (5 if ADDED in columns else 2)


def _sanitised(name: str, also: str = "") -> str:
    text = "".join(c if re.match(r"[A-Za-z0-9_]", c) or c in also else "_" for c in name)
    return f"_{text}" if text[0].isdigit() else text


def quoted(name: str) -> str:
    """A name in a statement."""
    return "`" + name.replace("`", "``") + "`"
